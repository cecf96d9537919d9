"""Choices of continuous batching, held against the model asked about each row alone."""

import json

import pytest
import torch
from instrument.test_beams_and_drafts import _model

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = [
    pytest.mark.generations,
    pytest.mark.skipif(release() < FIVE, reason="it does not run on a processor yet"),
]

BATCHES = {
    "greedy": {},
    "sampled": {"do_sample": True, "temperature": 0.7, "top_k": 9},
    "several of each": {"do_sample": True, "num_return_sequences": 3},
    "soon at an end": {"eos_token_id": list(range(2, 30))},
}


def _at(frame, **place):
    for name, value in place.items():
        frame = frame[frame[name] == value]
    return frame


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("settings", BATCHES.values(), ids=BATCHES)
def test_choices_of_a_batch_have_the_distribution_that_a_row_alone_has(settings):
    from transformers import GenerationConfig
    from transformers.generation import ContinuousBatchingConfig

    model, prompts = _model(0), [[31, 32, 33], [34, 35, 36, 37, 38], [39]]
    pages = ContinuousBatchingConfig(num_blocks=16, page_size=16, max_batch_tokens=16)
    plain = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": 2, "pad_token_id": 0}
    with tracer.record(strict=True) as recording:
        answers = model.generate_batch(
            prompts,
            generation_config=GenerationConfig(**(plain | settings)),
            continuous_batching_config=pages,
        )
    trace = recording.trace
    assert len(trace["choices"]) == sum(len(one.generated_tokens) for one in answers.values())
    ends = []
    for row, answer in enumerate(answers.values()):
        choices = _at(trace["choices"], row=row).sort_values("step")
        assert choices["token_id"].tolist() == answer.generated_tokens
        ends += choices["finish"].dropna().tolist()
        for step, choice in enumerate(choices.itertuples()):
            ids = torch.tensor([[*answer.prompt_ids, *answer.generated_tokens[:step]]])
            with torch.no_grad():
                raw = model(ids).logits[0, -1].double()
            scores = raw / settings.get("temperature", 1.0)
            if "top_k" in settings:
                scores = scores.where(scores >= scores.topk(9).values[-1], -torch.inf)
            told = choice.raw_logprob, choice.raw_rank, choice.probability
            token, shares = choice.token_id, scores.softmax(-1)
            expected = raw.log_softmax(-1)[token], (raw > raw[token]).sum(), shares[token]
            assert told == pytest.approx([float(one) for one in expected], abs=1e-4)
            best = _at(trace["candidates"], row=row, step=step).sort_values("token_rank")
            assert best["probability"].tolist() == pytest.approx(
                shares.topk(len(best)).values.tolist(), abs=1e-4
            )
            stops = _at(trace["stops"], row=row, step=step)
            assert stops["token_id"].tolist() == settings.get("eos_token_id", [2])
            assert stops["probability"].tolist() == pytest.approx(
                shares[stops["token_id"].tolist()].tolist(), abs=1e-4
            )
    (call,) = trace["calls"].query("kind == 'generate_batch'").itertuples()
    assert json.loads(call.finish) == ends
    assert "eos" in ends or "eos_token_id" not in settings


@pytest.mark.filterwarnings("ignore")
def test_scores_that_are_not_seen_are_one_fault_for_all_requests(monkeypatch):
    from transformers import GenerationConfig
    from transformers.generation import ContinuousBatchingConfig
    from transformers.generation.continuous_batching.model_runner import ModelRunner

    def greedy(self, scores, output_ids):  # of a runner that samples in another way
        output_ids[0, : scores.shape[1]].copy_(scores[0].argmax(-1))

    pages = ContinuousBatchingConfig(num_blocks=16, page_size=16, max_batch_tokens=16)
    config = GenerationConfig(max_new_tokens=3, do_sample=False, eos_token_id=2, pad_token_id=0)
    with tracer.record(strict=True) as recording, monkeypatch.context() as patched:
        patched.setattr(ModelRunner, "_sample", greedy)
        _model(0).generate_batch(
            [[31, 32], [33], [34]], generation_config=config, continuous_batching_config=pages
        )
    trace = recording.trace
    assert trace.rows("choices") == 0
    assert trace["tokens"]["origin"].eq("generated").sum() == 9
    (fault,) = trace["faults"].query("target == 'choices'").itertuples()
    assert "3 requests" in fault.reason
