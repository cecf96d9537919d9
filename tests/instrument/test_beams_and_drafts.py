"""Beam search and assisted decoding followed token by token, on every release."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations

ROWS = torch.tensor([[11, 12, 13, 14, 15, 16], [0, 0, 21, 22, 23, 24]])
REPEATS = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7]])
STOPS = [2, 5, 7, 30]


def _model(seed):
    """A model sharp enough to have favourites, with few ids to choose from."""
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.5,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def target():
    return _model(0)


@pytest.fixture(scope="module")
def helper():
    return _model(1)


def _asked(model, ids, **settings):
    torch.manual_seed(5)
    given = {"input_ids": ids, "attention_mask": (ids != 0).long(), "do_sample": False}
    every = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    return model.generate(**(given | every | settings))


def _recorded(model, ids, **settings):
    """The library's answer, the same without and with a recording, and the trace."""
    plain = _asked(model, ids, **settings)
    with tracer.record(strict=True, logits=True) as recording:
        output = _asked(model, ids, **settings)
    assert torch.equal(plain.sequences, output.sequences)
    verdicts = recording.trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []
    assert recording.trace.rows("faults") == 0
    return output, recording.trace


BEAMS = {
    "two": {"num_beams": 2},
    "three, two returned": {"num_beams": 3, "num_return_sequences": 2, "repetition_penalty": 1.2},
    "early": {"num_beams": 3, "early_stopping": True, "num_return_sequences": 3},
    "never": {"num_beams": 2, "early_stopping": "never", "length_penalty": 2.0},
    "sampled": {"num_beams": 2, "do_sample": True, "top_k": 8},
    "no cache": {"num_beams": 2, "use_cache": False},
}


@pytest.mark.parametrize("settings", BEAMS.values(), ids=BEAMS)
@pytest.mark.parametrize("rows", [1, 2])
def test_every_returned_sequence_is_a_way_through_the_beams(target, settings, rows):
    settings = {"max_new_tokens": 6, "eos_token_id": STOPS} | settings
    output, trace = _recorded(target, ROWS[:rows], **settings)
    choices = trace["choices"]
    ends = choices[choices["accepted"] & (choices["offset"] == 1)].set_index("sequence")
    assert sorted(ends.index) == list(range(len(output.sequences)))
    finish = []
    for sequence, end in ends.sort_index().iterrows():
        way = [end]
        while way[-1]["step"]:
            last = way[-1]
            (before,) = choices[
                (choices["step"] == last["step"] - 1)
                & (choices["row"] == last["parent_row"])
                & (choices["offset"] == 0)
            ].to_dict("records")
            assert before["accepted"]
            way.append(before)
        way.reverse()
        count = len(way)
        ids = output.sequences[sequence, ROWS.shape[1] :].tolist()
        assert [one["token_id"] for one in way] == ids[:count]
        parents = output.beam_indices[sequence].tolist()
        assert [one["parent_row"] for one in way] == parents[:count]
        assert all(parent < 0 for parent in parents[count:])
        score = float(output.sequences_scores[sequence])
        penalty = settings.get("length_penalty", 1.0)
        assert end["score"] / count**penalty == pytest.approx(score, rel=1e-4)
        finish.append("eos" if ids[count - 1] in settings["eos_token_id"] else "length")
    (call,) = trace["calls"].itertuples()
    assert json.loads(call.finish) == finish == ends.sort_index()["finish"].tolist()
    assert (call.beams, call.rows) == (settings["num_beams"], rows)
    assert call.mode.startswith("beam search, ")


def test_a_choice_of_a_beam_has_the_distribution_that_it_came_from(target):
    settings = {"max_new_tokens": 4, "num_beams": 3, "repetition_penalty": 1.3, "top_k": 9}
    output, trace = _recorded(target, ROWS, eos_token_id=STOPS, do_sample=True, **settings)
    for one in trace["choices"].itertuples():
        scores, logits = output.scores[one.step][one.parent_row], output.logits[one.step]
        spread = torch.log_softmax(scores.float(), -1)
        assert one.logprob == pytest.approx(float(spread[one.token_id]), abs=1e-4)
        raw = torch.log_softmax(logits[one.parent_row].float(), -1)
        assert one.raw_logprob == pytest.approx(float(raw[one.token_id]), abs=1e-4)
        place = "call == @one.call and step == @one.step and row == @one.row"
        mine = trace["candidates"].query(f"{place} and offset == @one.offset")
        ids = torch.tensor(mine["token_id"].tolist())
        assert mine["score"].tolist() == pytest.approx(scores[ids].tolist(), abs=1e-4)
        expected = logits[one.parent_row][ids].tolist()
        assert mine["raw_logit"].tolist() == pytest.approx(expected, abs=1e-4)
    kept = trace["logits"]
    for row in kept.itertuples():
        mine = torch.frombuffer(bytearray(row.values), dtype=torch.float32)
        assert torch.allclose(mine, output.logits[row.step][row.row])


def test_prompt_and_answer_of_beams_are_told_by_returned_sequence(target):
    output, trace = _recorded(
        target, ROWS, num_beams=3, num_return_sequences=2, max_new_tokens=5, eos_token_id=STOPS
    )
    tokens = trace["tokens"].sort_values("index")
    for row, ids in enumerate(output.sequences.tolist()):
        mine = tokens[tokens["row"] == row]
        assert mine["token_id"].tolist() == ids[: len(mine)]
        prompt = mine[mine["origin"] != "generated"]
        assert prompt["attended"].tolist() == (ROWS[row // 2] != 0).tolist()


DRAFTS = {
    "another model": {},
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
    "prompt lookup, penalised": {"prompt_lookup_num_tokens": 3, "repetition_penalty": 1.1},
    "sampled": {"do_sample": True, "top_k": 5},
    "prompt lookup, sampled": {"prompt_lookup_num_tokens": 2, "do_sample": True, "top_k": 4},
    "ends within a draft": {"prompt_lookup_num_tokens": 3, "eos_token_id": STOPS},
}


@pytest.mark.parametrize("settings", DRAFTS.values(), ids=DRAFTS)
@pytest.mark.parametrize("same", [False, True], ids=["other", "same"])
def test_every_draft_is_judged_and_what_stands_is_the_answer(target, helper, settings, same):
    if same and "prompt_lookup_num_tokens" in settings:
        pytest.skip("no model drafts")
    if "prompt_lookup_num_tokens" not in settings:
        settings = settings | {"assistant_model": target if same else helper}
    settings = {"max_new_tokens": 10} | settings
    output, trace = _recorded(target, REPEATS, **settings)
    (outer,) = trace["calls"].query("parent == -1")["seq"]
    choices, steps, layers, logits = (
        trace[table][trace[table]["call"] == outer]
        for table in ("choices", "steps", "cache_layers", "logits")
    )
    choices, steps = choices.sort_values(["step", "offset"]), steps.set_index("step")
    standing = choices[choices["accepted"]]
    assert standing["token_id"].tolist() == output.sequences[0, REPEATS.shape[1] :].tolist()
    for place, one in enumerate(standing.itertuples()):
        spread = torch.log_softmax(output.scores[place][0].float(), -1)
        assert one.logprob == pytest.approx(float(spread[one.token_id]), abs=1e-3)
        raw = torch.log_softmax(output.logits[place][0].float(), -1)
        assert one.raw_logprob == pytest.approx(float(raw[one.token_id]), abs=1e-3)
    for number, mine in choices.groupby("step"):
        stands = mine["accepted"].sum()
        drafted = mine["drafted_id"].notna().sum()
        assert steps.loc[number, "drafted_tokens"] == drafted
        assert mine["offset"].tolist() == list(range(len(mine)))
        assert mine["accepted"].tolist() == sorted(mine["accepted"], reverse=True)
        # Of what stands all but the last was drafted: that one is the model's own.
        assert (mine["drafted_id"] == mine["token_id"]).iloc[: stands - 1].all()
        fed = drafted + (REPEATS.shape[1] if number == 0 else 1)
        assert steps.loc[number, "input_tokens"] == fed
        kind = "prefill" if number == 0 else ("verify" if drafted else "decode")
        assert steps.loc[number, "kind"] == kind
        grown = steps.loc[number, "cache_tokens_after"] - steps.loc[number, "cache_tokens_before"]
        assert grown == fed - (drafted - stands + 1)
        seen = set(layers[layers["step"] == number]["tokens_seen"])
        assert seen == {steps.loc[number, "cache_tokens_after"]}
    assert len(logits) == len(choices)
    mode = trace["calls"].query("parent == -1")["mode"].iloc[0]
    named = "PromptLookup" if "prompt_lookup_num_tokens" in settings else "Assisted"
    assert mode.startswith(f"assisted by {named}CandidateGenerator, ")
    if same and "do_sample" not in settings:
        assert choices["accepted"].all()
        assert len(steps) < len(standing)


def _said(ids, scores, **_):
    return torch.tensor([bool(row[-1] % 3 == 0) for row in ids.tolist()])


class Threes:
    """Ends a row with a token that three divides; not a class of the library."""

    def __call__(self, ids, scores, **kwargs):
        return _said(ids, scores)


@pytest.mark.parametrize("settings", [{}, {"num_beams": 2}], ids=["rows", "beams"])
def test_a_row_is_said_to_end_by_the_criterion_that_ended_it(target, settings):
    _, trace = _recorded(
        target, ROWS, stopping_criteria=[Threes()], max_new_tokens=8, eos_token_id=STOPS, **settings
    )
    ends = trace["choices"].dropna(subset=["finish"])
    assert "other (Threes)" in set(ends["finish"])
    for one in ends.itertuples():
        if one.token_id in STOPS:
            assert one.finish == "eos"
        elif one.token_id % 3 == 0:
            assert one.finish == "other (Threes)"
        else:
            assert (one.finish, one.step) == ("length", 7)


def test_a_time_limit_is_a_reason_of_its_own(target):
    _, trace = _recorded(target, ROWS, max_new_tokens=50, max_time=0.0)
    assert trace["choices"]["finish"].tolist() == ["time", "time"]


def test_a_stop_string_is_told_by_the_librarys_own_test(processor, seeing):
    text = processor.tokenizer
    ids = text("red circle", return_tensors="pt")
    asked = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    plain = seeing.generate(**ids, **asked)
    answer = text.decode(plain[0, ids["input_ids"].shape[1] :])
    stop = answer[3:5]
    with tracer.record(strict=True) as recording:
        output = seeing.generate(**ids, **asked, stop_strings=stop, tokenizer=text)
    assert output.shape[1] < plain.shape[1]
    (call,) = recording.trace["calls"].query("kind == 'generate'").itertuples()
    assert json.loads(call.finish) == ["stop string"]
    # The same letters further up are no end: the limit is what ended this one.
    with tracer.record(strict=True) as recording:
        seeing.generate(**ids, **asked, stop_strings="no such end", tokenizer=text)
    (call,) = recording.trace["calls"].query("kind == 'generate'").itertuples()
    assert json.loads(call.finish) == ["length"]


@pytest.mark.skipif(release() < FIVE, reason="generation 4 never looks at the end one step late")
def test_a_step_that_the_library_takes_back_is_undone(target, monkeypatch):
    from transformers.generation.utils import DeferredStopCheck

    monkeypatch.setattr(DeferredStopCheck, "is_supported", staticmethod(lambda *a, **k: True))
    monkeypatch.setattr(torch, "Event", _NoEvent)
    output, trace = _recorded(target, ROWS, max_new_tokens=30, eos_token_id=list(range(1, 40, 2)))
    count = output.sequences.shape[1] - ROWS.shape[1]
    steps = trace["steps"].sort_values("step")
    assert steps["undone"].tolist() == [False] * count + [True]
    assert trace["choices"]["accepted"].all()


class _NoEvent:
    """The processor does a copy at once: there is nothing to wait for."""

    def __init__(self, **_):
        pass

    def record(self):
        pass

    synchronize = record


@pytest.mark.parametrize("length", [9, 11, 13])
def test_a_call_that_fails_among_drafts_leaves_a_sound_trace(target, helper, length):
    def fail(ids, scores):
        if ids.shape[1] >= length:
            raise ZeroDivisionError("the user's own")
        return scores

    with tracer.record(strict=True) as recording, pytest.raises(ZeroDivisionError, match="own"):
        _asked(target, REPEATS, assistant_model=helper, max_new_tokens=8, logits_processor=[fail])
    trace = recording.trace
    assert trace["calls"].query("parent == -1")["status"].tolist() == ["error"]
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []
