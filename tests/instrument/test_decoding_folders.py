"""Decoding methods out of a folder, as hub repositories bring them: each in a form of its own."""

import json

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, LATE_FOUR

pytestmark = [
    pytest.mark.generations,
    pytest.mark.skipif(release() < LATE_FOUR, reason="earlier releases take no such folder"),
    pytest.mark.filterwarnings("ignore"),
]
CACHE = "cache" if release() >= FIVE else "past_key_values"

PREPARED = """
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import MaxLengthCriteria, RepetitionPenaltyLogitsProcessor

def generate(model, input_ids, max_new_tokens=4, **kwargs):
    config = GenerationConfig(do_sample=False, pad_token_id=0, max_length=10, use_cache=True)
    model._prepare_special_tokens(config, True, device=input_ids.device)
    return model._sample(
        input_ids,
        logits_processor=LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.3)]),
        stopping_criteria=StoppingCriteriaList([MaxLengthCriteria(input_ids.shape[1] + 4)]),
        generation_config=config,
        synced_gpus=False,
        attention_mask=kwargs.get("attention_mask"),
        use_cache=True,
    )
"""
CACHED = """
import torch

def generate(model, input_ids, max_new_tokens=4, **kwargs):
    cache, fed = None, input_ids
    for _ in range(max_new_tokens):
        output = model(input_ids=fed, CACHE=cache, use_cache=True)
        cache, fed = output["CACHE"], output.logits[:, -1:].argmax(-1)
        input_ids = torch.cat([input_ids, fed], 1)
    return input_ids
""".replace("CACHE", CACHE)
UNCACHED = """
import torch

def generate(model, input_ids, max_new_tokens=4, **kwargs):
    for _ in range(max_new_tokens):
        logits = model(input_ids, use_cache=False).logits[:, -1:]
        input_ids = torch.cat([input_ids, logits.argmax(-1)], 1)
    return input_ids
"""
CONTRASTING = """
import torch

def generate(model, input_ids, max_new_tokens=4, **kwargs):
    for _ in range(max_new_tokens):
        expert = model(input_ids, use_cache=False).logits[:, -1]
        amateur = model(input_ids[:, 1:], use_cache=False).logits[:, -1]
        scores = expert.log_softmax(-1) - 0.5 * amateur.log_softmax(-1)
        input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], 1)
    return input_ids
"""
ANSWERING_WITH_A_DICT = UNCACHED.replace(
    "return input_ids", 'return {"sequences": input_ids, "name": "own"}'
)
WITHIN = """
import torch
from transformers.generation.utils import GenerationMixin

def _search(model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs):
    done, cache, fed = torch.zeros(len(input_ids)).bool(), None, input_ids
    while not done.all():
        output = model(input_ids=fed, CACHE=cache, use_cache=True)
        cache, scores = output["CACHE"], output.logits[:, -1].float()
        fed = logits_processor(input_ids, scores).argmax(-1, keepdim=True)
        input_ids = torch.cat([input_ids, fed], 1)
        done |= stopping_criteria(input_ids, None)
    return input_ids

def generate(model, *args, **kwargs):
    return GenerationMixin.generate(model, *args, custom_generate=_search, **kwargs)
""".replace("CACHE", CACHE)
FORMS = {
    "prepared": PREPARED, "cached": CACHED, "uncached": UNCACHED, "contrasting": CONTRASTING,
    "a dict": ANSWERING_WITH_A_DICT, "within": WITHIN,
}  # fmt: skip
OWN = ("cached", "uncached", "contrasting", "a dict")


def _asked(model, folder, ids):
    return model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), custom_generate=str(folder),
        trust_remote_code=True, max_new_tokens=4, do_sample=False,
    )  # fmt: skip


def _recorded(tmp_path, form, ids=None):
    ids = ROWS[:1] if ids is None else ids
    folder = tmp_path / f"own_{form}".replace(" ", "_")
    (folder / "custom_generate").mkdir(parents=True)
    (folder / "custom_generate" / "generate.py").write_text(FORMS[form], "utf-8")
    model = _model(0)
    with torch.no_grad():
        plain = _asked(model, folder, ids)
        with tracer.record(strict=True) as recording:
            output = _asked(model, folder, ids)
    plain, output = (one["sequences"] if isinstance(one, dict) else one for one in (plain, output))
    assert torch.equal(plain, output)
    verdicts = recording.trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []
    assert str(tmp_path) not in recording.trace["calls"].to_csv()
    return model, output, recording.trace


@pytest.mark.parametrize("form", FORMS)
def test_steps_tokens_and_choices_are_told_of_each_form(tmp_path, form):
    model, output, trace = _recorded(tmp_path, form)
    answer = output[0, 6:].tolist()
    tokens = trace["tokens"].sort_values("index")
    assert tokens["token_id"].tolist() == output[0].tolist()
    assert tokens["origin"].eq("generated").sum() == len(answer) == 4
    choices = trace["choices"].sort_values("step")
    assert choices["token_id"].tolist() == answer
    assert choices["accepted"].all()
    forwards = 2 if form == "contrasting" else 1
    steps = trace["steps"].sort_values("step")
    assert steps["step"].tolist() == list(range(4 * forwards))
    is_cached = form in ("prepared", "cached", "within")
    fed = [6, 1, 1, 1] if is_cached else [6, 7, 8, 9]
    if form == "contrasting":
        fed = [6, 5, 7, 6, 8, 7, 9, 8]
    assert steps["input_tokens"].tolist() == fed
    assert steps["kind"].iloc[0] == "prefill"
    if is_cached:
        assert steps["cache_tokens_after"].tolist() == [6, 7, 8, 9]
        assert trace.rows("cache_layers") == 2 * 4
    if form == "contrasting":
        return
    for place, one in enumerate(choices.itertuples(), 6):
        with torch.no_grad():
            raw = model(output[:1, :place], use_cache=False).logits[0, -1].float().log_softmax(-1)
        assert one.raw_logprob == pytest.approx(float(raw[one.token_id]), abs=1e-3)
        assert one.raw_rank == int((raw > raw[one.token_id]).sum())


@pytest.mark.parametrize("form", OWN)
def test_a_loop_that_asks_for_nothing_claims_no_more_than_was_seen(tmp_path, form):
    _, _, trace = _recorded(tmp_path, form)
    (call,) = trace["calls"].itertuples()
    assert call.mode == f"custom (custom_generate: own_{form.replace(' ', '_')})"
    assert json.loads(call.finish) == ["unknown"]
    choices = trace["choices"]
    # What a choice was made from is the loop's own affair.
    assert choices[["probability", "logprob", "score", "entropy"]].isna().all().all()
    assert trace.rows("candidates") == trace.rows("effects") == 0
    assert set(trace["faults"]["target"]) == {"settings", "choices"}


@pytest.mark.parametrize("form", ["prepared", "cached", "uncached"])
def test_each_row_of_a_batch_has_its_own(tmp_path, form):
    ids = torch.tensor([[11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25, 26]])
    _, output, trace = _recorded(tmp_path, form, ids)
    for row in range(2):
        mine = trace["choices"].query("row == @row").sort_values("step")
        assert mine["token_id"].tolist() == output[row, 6:].tolist()
        tokens = trace["tokens"].query("row == @row").sort_values("index")
        assert tokens["token_id"].tolist() == output[row].tolist()
