"""Decoding loops of another making than the library's: what their ids and scores tell is told.

The loops here choose as contrastive, DoLa and group beam search do since they are code of hub
repositories, and in ways of their own.
"""

import json

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model
from instrument.toys import recorded_alike

import tracer
from tracer.analysis.replay import replay
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, LATE_FOUR

pytestmark = [
    pytest.mark.generations,
    pytest.mark.skipif(release() < LATE_FOUR, reason="earlier releases take no such function"),
]
NEW = 4
CACHE = "cache" if release() >= FIVE else "past_key_values"


def _logits(model, ids, kwargs):
    """The model's logits behind every row, without a cache: (rows, vocabulary)."""
    inputs = model.prepare_inputs_for_generation(
        ids, attention_mask=kwargs.get("attention_mask"), use_cache=False
    )
    return model(input_ids=inputs["input_ids"], use_cache=False).logits[:, -1].float()


def _contrastive(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """Candidates by probability, then a forward of each, then the one least like the rest."""
    done, scores = False, None
    while not done:
        if scores is None:
            scores = _logits(model, input_ids, rest)
        chances, ids = logits_processor(input_ids, scores).softmax(-1).topk(3)
        ways = torch.cat([input_ids.repeat_interleave(3, 0), ids.reshape(-1, 1)], 1)
        ahead = _logits(model, ways, {})
        picked = (chances - 0.1 * ahead.logsumexp(-1).reshape(-1, 3)).argmax(-1)
        rows = torch.arange(len(ids))
        scores = ahead.reshape(len(ids), 3, -1)[rows, picked]
        input_ids = torch.cat([input_ids, ids[rows, picked][:, None]], 1)
        done = bool(stopping_criteria(input_ids, None).all())
    return input_ids


def _contrasting_layers(
    model, input_ids, logits_processor, stopping_criteria, generation_config, **rest
):
    """Scores are the last layer's less an earlier one's."""
    done = torch.zeros(len(input_ids), dtype=torch.bool)
    while not done.all():
        inputs = model.prepare_inputs_for_generation(input_ids, use_cache=False)
        output = model(input_ids=inputs["input_ids"], use_cache=False, output_hidden_states=True)
        early = model.lm_head(output.hidden_states[0][:, -1]).log_softmax(-1)
        scores = output.logits[:, -1].log_softmax(-1) - early
        chosen = logits_processor(input_ids, scores).argmax(-1)
        chosen = torch.where(done, 0, chosen)
        input_ids = torch.cat([input_ids, chosen[:, None]], 1)
        done |= stopping_criteria(input_ids, None)
    return input_ids


def _drafting(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """Two tokens of each forward, the second guessed, and one test for both."""
    done = False
    while not done:
        scores = _logits(model, input_ids, rest)
        one = logits_processor(input_ids, scores).argmax(-1, keepdim=True)
        input_ids = torch.cat([input_ids, one, (one + 1) % 40], 1)
        done = bool(stopping_criteria(input_ids, None).all())
    return input_ids


def _crossing(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """Two rows of each prompt; in each round the better one is continued twice."""
    ids, done = input_ids, False
    while not done:
        logs = logits_processor(ids, _logits(model, ids, {}).log_softmax(-1))
        best, tokens = logs.topk(2)
        row = best[:, 0].argmax()
        ids = torch.cat([ids[row].repeat(2, 1), tokens[row][:, None]], 1)
        done = bool(stopping_criteria(ids, None).all())
    return ids[:1]


def _unprepared(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """Calls the model with inputs and a cache that it holds itself."""
    cache, fed, done = None, input_ids, False
    while not done:
        output = model(input_ids=fed, **{CACHE: cache}, use_cache=True)
        cache = output[CACHE]
        fed = logits_processor(input_ids, output.logits[:, -1].float()).argmax(-1, keepdim=True)
        input_ids = torch.cat([input_ids, fed], 1)
        done = bool(stopping_criteria(input_ids, None).all())
    return input_ids


def _run(loop, ids=ROWS[:1], **settings):
    model = _model(0)
    given = {"attention_mask": (ids != 0).long(), "do_sample": False, "max_new_tokens": NEW}
    given |= {"custom_generate": loop, "eos_token_id": [], "repetition_penalty": 1.2} | settings
    return model, *recorded_alike(model, ids, given, logits=True)


def _raw(model, output, row, place):
    """The model's own distribution before a place of a row."""
    with torch.no_grad():
        logits = model(output[row : row + 1, :place], use_cache=False).logits[0, -1]
    return logits.float().log_softmax(-1)


PLAIN = {"contrastive": _contrastive, "layers": _contrasting_layers, "unprepared": _unprepared}


@pytest.mark.parametrize("loop", PLAIN.values(), ids=PLAIN)
def test_each_choice_of_such_a_loop_has_the_models_own_distribution(loop):
    model, output, trace = _run(loop)
    assert trace.rows("faults") == 0
    (call,) = trace["calls"].itertuples()
    own = ", by scores of its own" if loop is _contrasting_layers else ""
    assert call.mode == f"custom (custom_generate: {loop.__name__}){own}"
    assert json.loads(call.finish) == ["length"]
    choices = trace["choices"].sort_values(["step", "offset"])
    assert choices["accepted"].all()
    assert choices["token_id"].tolist() == output[0, ROWS.shape[1] :].tolist()
    for place, one in enumerate(choices.itertuples(), ROWS.shape[1]):
        raw = _raw(model, output, 0, place)
        assert one.raw_logprob == pytest.approx(float(raw[one.token_id]), abs=1e-3)
        assert one.raw_rank == int((raw > raw[one.token_id]).sum())
        kept = trace["logits"].query("step == @one.step and offset == @one.offset")
        logits = torch.frombuffer(bytearray(kept["values"].iloc[0]), dtype=torch.float32)
        assert torch.allclose(logits.log_softmax(-1), raw, atol=1e-3)
    assert trace.rows("effects") == len(choices)
    assert trace["effects"]["class_name"].unique().tolist() == ["RepetitionPenaltyLogitsProcessor"]
    best = trace["candidates"].query("token_rank == 0").sort_values("step")["token_id"].tolist()
    assert (best == choices["token_id"].tolist()) == (loop is not _contrastive)
    again = replay(trace)
    assert again["stops_at"].eq(0).all() if own else again["stops_at"].isna().all()
    if not own:
        scores = again["score"].astype(float).tolist()
        assert again["replayed_score"].tolist() == pytest.approx(scores, rel=1e-4, abs=1e-4)


def test_the_forwards_of_a_loop_that_looks_ahead_are_steps_behind_its_prompt():
    _, _, trace = _run(_contrastive)
    steps = trace["steps"].sort_values("step")
    assert steps["kind"].tolist() == ["prefill"] + ["decode"] * NEW
    assert sorted(trace["choices"]["step"]) == list(range(1, NEW + 1))


def test_inputs_that_a_loop_made_itself_are_told_as_they_are():
    _, _, trace = _run(_unprepared)
    steps = trace["steps"].sort_values("step")
    assert steps["input_tokens"].tolist() == [6] + [1] * (NEW - 1)
    assert steps["cache_tokens_after"].tolist() == list(range(6, 6 + NEW))
    assert steps["kind"].tolist() == ["prefill"] + ["decode"] * (NEW - 1)
    assert steps["prepare_ns"].isna().all()
    assert trace.rows("cache_layers") == 2 * NEW


def test_rows_that_end_at_different_places_have_no_choice_behind_their_end():
    _, free, _ = _run(_contrasting_layers, ROWS)
    end = int(free[0, 7])
    _, output, trace = _run(_contrasting_layers, ROWS, eos_token_id=[end], max_new_tokens=6)
    choices = trace["choices"].sort_values("step")
    finish = []
    for row in range(2):
        answer = output[row, 6:].tolist()
        expected = answer[: answer.index(end) + 1] if end in answer else answer
        mine = choices[choices["row"] == row]
        assert mine["token_id"].tolist() == expected
        finish.append(mine["finish"].iloc[-1])
    assert json.loads(trace["calls"]["finish"].iloc[0]) == finish
    assert finish[0] == "eos"


def test_several_tokens_of_one_test_are_told_and_what_was_not_scored_says_so():
    _, output, trace = _run(_drafting)
    choices = trace["choices"].sort_values(["step", "offset"])
    assert choices["token_id"].tolist() == output[0, 6:].tolist()
    assert choices["offset"].tolist() == [0, 1] * (NEW // 2)
    assert choices["probability"].notna().tolist() == [True, False] * (NEW // 2)
    (fault,) = trace["faults"].itertuples()
    assert (fault.target, "no scores" in fault.reason) == ("choices", True)


def test_rows_that_change_places_are_followed_by_what_they_hold():
    model, output, trace = _run(_crossing, num_return_sequences=2, do_sample=True)
    assert trace.rows("faults") == 0
    (call,) = trace["calls"].itertuples()
    assert call.mode.endswith("rows change places")
    assert json.loads(call.finish) == ["length"]
    choices = trace["choices"]
    answer = output[0, 6:].tolist()
    stands = choices[choices["accepted"]].sort_values("step")
    assert stands["token_id"].tolist() == answer
    assert set(stands["sequence"]) == {0}
    assert stands["parent_row"].tolist()[1:] == stands["row"].tolist()[:-1]
    for place, one in enumerate(stands.itertuples(), 6):
        raw = _raw(model, output, 0, place)
        assert one.raw_logprob == pytest.approx(float(raw[one.token_id]), abs=1e-3)
    tokens = trace["tokens"].query("origin == 'generated'").sort_values("index")
    assert tokens["token_id"].tolist() == answer
    assert len(choices) == 2 * NEW


def _untested(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    for _ in range(3):
        scores = logits_processor(input_ids, _logits(model, input_ids, rest))
        input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], 1)
    return input_ids


def _only_new(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    return _contrasting_layers(
        model, input_ids, logits_processor, stopping_criteria, generation_config
    )[:, input_ids.shape[1] :]


def _words(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    _logits(model, input_ids, rest)
    return ["anything", {"at": "all"}]


def test_ids_that_no_test_was_shown_are_tokens_and_no_choices():
    _, output, trace = _run(_untested)
    assert trace.rows("choices") == 0
    (fault,) = trace["faults"].itertuples()
    assert "no stopping test" in fault.reason
    tokens = trace["tokens"].query("origin == 'generated'").sort_values("index")
    assert tokens["token_id"].tolist() == output[0, 6:].tolist()
    assert trace["steps"].sort_values("step")["kind"].tolist() == ["prefill", "decode", "decode"]


def test_a_loop_that_returns_its_new_ids_alone_is_told_by_its_choices():
    _, output, trace = _run(_only_new)
    assert trace["choices"].sort_values("step")["token_id"].tolist() == output[0].tolist()
    tokens = trace["tokens"].sort_values("index")["token_id"].tolist()
    assert tokens == [*ROWS[0].tolist(), *output[0].tolist()]
    assert trace["choices"]["accepted"].isna().all()


def test_a_loop_that_returns_anything_else_is_no_fault_of_its_own():
    model = _model(0)
    with tracer.record(strict=True) as recording:
        output = model.generate(ROWS[:1], custom_generate=_words, max_new_tokens=2)
    assert output == ["anything", {"at": "all"}]
    assert recording.trace["steps"]["kind"].tolist() == ["prefill"]
    assert recording.trace.rows("faults") == 0
