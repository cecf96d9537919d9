"""Ways to decode whose choices are not followed: a fault says so, the rest is told and true."""

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


@pytest.mark.skipif(release() >= LATE_FOUR, reason="later these are code of a hub repository")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", OLD)
def test_an_old_way_to_decode_tells_its_steps_and_what_it_returned(way):
    model = _model(0)
    plain = _asked(model, **OLD[way])
    with tracer.record(strict=True) as recording:
        output = _asked(model, **OLD[way])
    assert torch.equal(plain, output)
    trace = recording.trace
    (fault,) = trace["faults"].itertuples()
    assert fault.target == "choices"
    assert "choices, candidates, effects, stops" in fault.reason
    assert trace.rows("choices") == 0
    assert trace.rows("steps") >= 5
    assert trace["calls"]["finish"].isna().tolist() == [True]
    tokens = trace["tokens"].sort_values("index")
    answers = tokens[tokens["origin"] == "generated"].groupby("row")["token_id"]
    for own, ids in zip(answers.agg(list), output.tolist(), strict=True):
        assert own == ids[ROWS.shape[1] :][: len(own)]
        assert len(own) == 5 or own[-1] == 2
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
def test_a_loop_of_which_no_part_is_known_is_a_fault():
    model, ids = _model(0), ROWS[:1]
    with tracer.record(strict=True) as recording:
        output = model.generate(ids, custom_generate=_blind_loop, max_new_tokens=3)
    assert output.shape == (1, 9)
    trace = recording.trace
    assert trace["faults"]["target"].tolist() == ["steps"]
    assert "no part is known" in trace["faults"]["reason"].iloc[0]
    assert trace.rows("steps") == 0
    assert trace["tokens"]["token_id"].tolist() == ids[0].tolist()


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
    verdicts = trace.audit()
    assert verdicts[verdicts["verdict"] == "broken"].to_dict("records") == []


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
