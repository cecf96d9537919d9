"""What if: other settings over recorded logits, exactly as the library would have done it."""

import numpy as np
import pytest
import torch

import tracer
from tracer.analysis.replay import Link, chain_of
from tracer.analysis.what_if import chain_with, first_unknown, ids_before, settings_of, what_if
from tracer.conversation import Settings

SAMPLED = Settings(
    do_sample=True, temperature=2.5, top_k=12, top_p=0.95, repetition_penalty=1.2, seed=4,
    max_new_tokens=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def lab():
    return tracer.Lab.open()


@pytest.fixture(scope="module")
def answer(lab):
    return lab.ask("Hello", SAMPLED)


def forward_scores(lab, answer, step, **settings):
    """Probabilities of the library itself, for the same ids, with other settings."""
    ids = torch.tensor([[*answer.prompt_ids, *answer.ids[:step]]])
    with torch.random.fork_rng():
        output = lab.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=1,
            return_dict_in_generate=True, output_scores=True, **settings,
        )  # fmt: skip
    return output.scores[0][0].softmax(-1).numpy()


@pytest.mark.parametrize("step", [0, 3])
def test_with_the_settings_of_the_run_it_is_the_run(answer, step):
    again = what_if(answer.trace, step, settings_of(answer.trace))
    assert (again["changed_probability"] == again["probability"]).all()
    candidates = answer.trace.read("candidates", where=[("step", "==", step)])
    found = again.set_index("token_id")["probability"].reindex(candidates["token_id"])
    assert found.to_numpy() == pytest.approx(candidates["probability"].to_numpy(float), abs=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.6},
        {"top_k": 3},
        {"top_k": 0, "top_p": 0.5},
        {"top_p": 1.0, "min_p": 0.2},
        {"repetition_penalty": 1.8, "temperature": 1.0},
    ],
)
def test_other_settings_give_what_the_library_would_give(lab, answer, changes):
    own = {"do_sample": True, "temperature": 2.5, "top_k": 12, "top_p": 0.95}
    own |= {"repetition_penalty": 1.2}
    expected = forward_scores(lab, answer, 3, **own | changes)
    found = what_if(answer.trace, 3, changes)["changed_probability"].to_numpy()
    assert found == pytest.approx(expected, abs=2e-5)


def test_a_greedy_run_can_be_looked_at_as_if_it_had_been_sampled(lab):
    greedy = lab.ask("Hello", Settings(do_sample=False, max_new_tokens=3, repetition_penalty=1.0))
    assert settings_of(greedy.trace)["temperature"] == 1.0
    expected = forward_scores(
        lab, greedy, 1, do_sample=True, temperature=3.0, top_k=5, top_p=1.0, repetition_penalty=1.0
    )
    found = what_if(greedy.trace, 1, {"temperature": 3.0, "top_k": 5})
    assert found["changed_probability"].to_numpy() == pytest.approx(expected, abs=2e-5)


def test_a_processor_is_put_where_the_library_has_it():
    chain = [Link("RepetitionPenaltyLogitsProcessor", {"penalty": 1.1}),
             Link("TopPLogitsWarper", {"top_p": 0.9}), Link("LogitNormalization")]  # fmt: skip
    changed = chain_with(chain, {"min_p": 0.1, "temperature": 0.5, "top_k": 4, "top_p": 1.0})
    assert [link.class_name for link in changed] == [
        "RepetitionPenaltyLogitsProcessor", "TemperatureLogitsWarper", "TopKLogitsWarper",
        "MinPLogitsWarper", "LogitNormalization",
    ]  # fmt: skip
    assert [link.class_name for link in chain][1] == "TopPLogitsWarper"  # the given one stays


def test_the_ids_before_a_step_are_prompt_and_choices(answer):
    assert ids_before(answer.trace, 2) == [*answer.prompt_ids, *answer.ids[:2]]


def test_without_logits_there_is_nothing_to_compute(lab):
    with tracer.record() as recording:
        ids = torch.tensor([[5, 6, 7]])
        lab.model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=2)
    assert what_if(recording.trace, 0, {"temperature": 2.0}).empty
    assert what_if(recording.trace, 99).empty


def test_a_processor_that_cannot_be_run_again_is_named(answer):
    assert first_unknown(answer.trace) is None
    assert np.isfinite(what_if(answer.trace, 0)["probability"]).all()
    assert len(chain_of(answer.trace)) == 4
