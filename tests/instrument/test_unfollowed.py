"""Ways to decode that the library does not follow itself: what is not seen is a fault."""

import json

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, LATE_FOUR

pytestmark = pytest.mark.generations

GROUPS = {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5}
OLD = {
    "contrastive": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
    "groups": GROUPS,
    "groups, all returned": GROUPS | {"num_return_sequences": 4},
    "constrained": {"num_beams": 3, "num_return_sequences": 2, "force_words_ids": [[5]]},
}


def _asked(model, **settings):
    given = {"input_ids": ROWS, "attention_mask": (ROWS != 0).long(), "do_sample": False}
    return model.generate(**given, max_new_tokens=5, **settings)


CROSSING = {"groups", "groups, all returned", "constrained"}


@pytest.mark.skipif(release() >= LATE_FOUR, reason="later these are code of a hub repository")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", OLD)
def test_an_old_way_to_decode_is_followed_by_the_ids_that_it_hands_over(way):
    model = _model(0)
    plain = _asked(model, **OLD[way])
    with tracer.record(strict=True) as recording:
        output = _asked(model, **OLD[way])
    assert torch.equal(plain, output)
    trace = recording.trace
    (call,) = trace["calls"].itertuples()
    assert ("rows change places" in call.mode) == (way in CROSSING)
    # A search with beams sets a sequence aside with its end id, which no stopping test is shown.
    ends = [row[:6].tolist() + [one for one in row[6:].tolist() if one] for row in output]
    expected = ["eos" if 2 in row[6:] else "length" for row in ends]
    assert json.loads(call.finish) == expected
    reasons = trace["faults"]["reason"].tolist()
    assert ["no stopping test" in one for one in reasons] == [True] * (
        way in CROSSING and "eos" in expected
    )
    assert trace.rows("steps") >= 5
    choices = trace["choices"]
    assert choices["probability"].notna().all()
    tokens = trace["tokens"].sort_values("index")
    answers = tokens[tokens["origin"] == "generated"].groupby("row")["token_id"].agg(list)
    stands = choices[choices["accepted"]].sort_values("step").groupby("sequence")["token_id"]
    for row, ids in enumerate(output.tolist()):
        own = answers[row]
        assert own == ids[ROWS.shape[1] :][: len(own)]
        assert len(own) == 5 or own[-1] == 2
        if way not in CROSSING:
            assert stands.get_group(row).tolist() == own
    if way == "dola":
        with torch.no_grad():
            raw = model(output[:1, :6]).logits[0, -1].float().log_softmax(-1)
        (first,) = choices.query("row == 0 and step == 0").itertuples()
        assert first.raw_logprob == pytest.approx(float(raw[first.token_id]), abs=1e-3)
        assert first.raw_logprob != pytest.approx(first.logprob, abs=1e-3)
    assert set(tokens["row"]) == set(range(len(output)))
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []


def _blind_loop(model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs):
    """Greedy decoding that asks the library for nothing."""
    for _ in range(3):
        logits = model(input_ids=input_ids, use_cache=False).logits[:, -1:]
        input_ids = torch.cat([input_ids, logits.argmax(-1)], 1)
    return input_ids


@pytest.mark.skipif(release() < LATE_FOUR, reason="earlier releases take no such function")
def test_a_loop_that_asks_the_library_for_nothing_is_told_by_its_forwards_and_its_answer():
    model, ids = _model(0), ROWS[:1]
    with tracer.record(strict=True) as recording:
        output = model.generate(ids, custom_generate=_blind_loop, max_new_tokens=3)
    assert output.shape == (1, 9)
    trace = recording.trace
    assert trace["faults"]["target"].tolist() == ["choices"]
    assert "asks the library for nothing" in trace["faults"]["reason"].iloc[0]
    choices = trace["choices"].sort_values("step")
    assert choices["token_id"].tolist() == output[0, 6:].tolist()
    assert choices["raw_rank"].tolist() == [0, 0, 0]
    assert choices["probability"].isna().all()
    steps = trace["steps"].sort_values("step")
    assert steps["kind"].tolist() == ["prefill", "decode", "decode"]
    assert steps["input_tokens"].tolist() == [6, 7, 8]
    assert trace["tokens"].sort_values("index")["token_id"].tolist() == output[0].tolist()


def _nothing_at_all(model, input_ids, **kwargs):
    return torch.cat([input_ids, input_ids], 1)


@pytest.mark.skipif(release() < LATE_FOUR, reason="earlier releases take no such function")
def test_a_loop_of_which_no_part_is_known_is_a_fault():
    model, ids = _model(0), ROWS[:1]
    with tracer.record(strict=True) as recording:
        model.generate(ids, custom_generate=_nothing_at_all, max_new_tokens=3)
    trace = recording.trace
    assert trace["faults"]["target"].tolist() == ["steps"]
    assert "no part is known" in trace["faults"]["reason"].iloc[0]
    assert trace.rows("steps") == 0
    assert trace["tokens"]["token_id"].tolist() == ids[0].tolist()


_SEARCH = """
import torch
from transformers.generation.utils import GenerationMixin


def _search(model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs):
    done = torch.zeros(len(input_ids), dtype=torch.bool)
    while not done.all():
        inputs = model.prepare_inputs_for_generation(input_ids, use_cache=False)
        logits = model(input_ids=inputs["input_ids"], use_cache=False).logits[:, -1].float()
        chosen = logits_processor(input_ids, logits).argmax(-1, keepdim=True)
        input_ids = torch.cat([input_ids, chosen], 1)
        done |= stopping_criteria(input_ids, None)
    return input_ids


def generate(model, *args, **kwargs):
    return GenerationMixin.generate(model, *args, custom_generate=_search, **kwargs)
"""


@pytest.mark.skipif(release() < LATE_FOUR, reason="earlier releases take no such folder")
@pytest.mark.filterwarnings("ignore")
def test_a_way_to_decode_out_of_a_folder_is_followed_in_the_generate_that_it_calls(tmp_path):
    """As contrastive, group and constrained search and DoLa are since they left the library."""
    (tmp_path / "own" / "custom_generate").mkdir(parents=True)
    (tmp_path / "own" / "custom_generate" / "generate.py").write_text(_SEARCH, "utf-8")
    model, ids = _model(0), ROWS[:1]
    with tracer.record(strict=True) as recording:
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), custom_generate=str(tmp_path / "own"),
            trust_remote_code=True, max_new_tokens=4, do_sample=False,
        )  # fmt: skip
    trace = recording.trace
    assert trace.rows("faults") == 0
    outer, inner = trace["calls"].sort_values("seq").itertuples()
    assert outer.mode == "custom_generate: own, by a generate() within"
    assert inner.mode == "custom (custom_generate: _search)"
    choices = trace["choices"].sort_values("step")
    assert choices["token_id"].tolist() == output[0, 6:].tolist()
    assert set(choices["call"]) == set(trace["tokens"]["call"]) == {inner.seq}
    assert trace["tokens"]["token_id"].tolist() == output[0].tolist()
    assert str(tmp_path) not in trace["calls"].to_csv()


@pytest.mark.skipif(release() < LATE_FOUR, reason="earlier releases have them themselves")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", OLD)
def test_a_way_that_left_the_library_is_refused_by_it_and_told_as_an_error(way):
    with tracer.record(strict=True) as recording, pytest.raises(ValueError, match="trust_remote"):
        _asked(_model(0), **OLD[way])
    trace = recording.trace
    assert trace["calls"]["status"].tolist() == ["error"]
    assert trace.rows("steps") == trace.rows("faults") == 0


@pytest.mark.skipif(release() < FIVE, reason="it does not run on a processor yet")
@pytest.mark.filterwarnings("ignore")
def test_continuous_batching_tells_forwards_prompts_and_answers():
    from transformers import GenerationConfig
    from transformers.generation import ContinuousBatchingConfig

    model, prompts = _model(0), [[11, 12, 13], [14, 15, 16, 17]]
    pages = ContinuousBatchingConfig(num_blocks=4, page_size=16, max_batch_tokens=16)
    config = GenerationConfig(max_new_tokens=3, do_sample=False, eos_token_id=2, pad_token_id=0)
    with tracer.record(strict=True) as recording:
        answers = model.generate_batch(
            prompts, generation_config=config, continuous_batching_config=pages
        )
    trace = recording.trace
    (fault,) = trace["faults"].itertuples()
    assert fault.target == "steps"
    assert "continuous batching" in fault.reason
    calls = trace["calls"].sort_values("seq")
    assert calls["kind"].tolist()[0] == "generate_batch"
    assert (calls["mode"].iloc[0], calls["rows"].iloc[0]) == ("continuous batching", 2)
    forwards = calls[calls["kind"] == "forward"]
    assert len(forwards) == trace["modules"]["path"].eq("lm_head").sum() >= 3
    assert forwards["thread"].nunique() == 1
    tokens = trace["tokens"].sort_values("index")
    for row, answer in enumerate(answers.values()):
        own = tokens[tokens["row"] == row]
        assert own["token_id"].tolist() == [*prompts[row], *answer.generated_tokens]
        assert own["origin"].eq("generated").sum() == len(answer.generated_tokens) > 0
        choices = trace["choices"].query("row == @row").sort_values("step")
        assert choices["token_id"].tolist() == answer.generated_tokens
        assert choices["finish"].dropna().tolist() == ["length"]
    verdicts = trace.audit()
    assert verdicts[verdicts["verdict"] == "broken"].to_dict("records") == []


@pytest.mark.skipif(release() < FIVE, reason="it does not run on a processor yet")
@pytest.mark.filterwarnings("ignore")
def test_a_generate_that_is_asked_for_pages_hands_on_to_a_batch():
    from transformers.generation import ContinuousBatchingConfig

    model, ids = _model(0), torch.tensor([[11, 12, 13], [14, 15, 16]])
    pages = ContinuousBatchingConfig(num_blocks=4, page_size=16, max_batch_tokens=16)
    with tracer.record(strict=True) as recording:
        output = model.generate(
            ids, cache_implementation="paged", continuous_batching_config=pages, do_sample=False,
            max_new_tokens=3, min_new_tokens=3,
        )  # fmt: skip
    trace = recording.trace
    assert ["continuous batching" in one for one in trace["faults"]["reason"]] == [True]
    calls = trace["calls"].sort_values("seq").set_index("kind")
    asked, batch = calls.loc["generate"], calls.loc["generate_batch"]
    assert asked["mode"] == "continuous batching, by a generate_batch() within"
    tokens = trace["tokens"].sort_values("index")
    assert set(tokens["call"]) == {batch["seq"]}
    for row, whole in enumerate(output[0].tolist()):
        assert tokens[tokens["row"] == row]["token_id"].tolist() == whole


@pytest.mark.parametrize("settings", [
    {}, {"num_beams": 3}, {"num_return_sequences": 2, "do_sample": True},
    {"num_beams": 4, "num_return_sequences": 2},
], ids=str)  # fmt: skip
@pytest.mark.parametrize(("mask", "pads"), [("given", 0), ("ones", 2)])
def test_pads_are_counted_in_the_prompts_and_not_in_their_copies(settings, mask, pads):
    model = _model(0)
    given = (ROWS != 0).long() if mask == "given" else torch.ones_like(ROWS)
    with tracer.record(strict=True) as recording:
        model.generate(
            ROWS, attention_mask=given, max_new_tokens=2, **({"do_sample": False} | settings)
        )
    (call,) = recording.trace["calls"].itertuples()
    assert call.attended_pads == pads
    assert call.rows == 2


@pytest.mark.parametrize("beams", [1, 3])
def test_pads_without_a_mask_are_counted_once_a_prompt(beams):
    model = _model(0)
    model.generation_config.pad_token_id = model.generation_config.eos_token_id = 2
    ids = torch.where(ROWS == 0, 2, ROWS)
    with tracer.record(strict=True) as recording:
        model.generate(ids, max_new_tokens=2, num_beams=beams, do_sample=False)
    (call,) = recording.trace["calls"].itertuples()
    assert (call.mask_origin, call.attended_pads) == ("all ones", 2)
    assert json.loads(call.stop_ids)[0]["id"] == 2
