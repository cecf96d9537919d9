"""Recorder on or off: the same ids, logits, random state, parameters and return types."""

import pytest
import torch
from instrument.toys import fingerprint, generate, text_inputs
from transformers.generation import LogitsProcessor, LogitsProcessorList
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging

import tracer

pytestmark = pytest.mark.generations

DETAILS = [
    {"detail": "stages"},
    {"detail": "layers"},
    {"detail": "modules"},
    {"values": True, "logits": True},
    {"effects": False, "top_k": 0},
    {"layers": (0,), "steps": (1, 2), "detail": "modules"},
]
SETTINGS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "temperature": 0.8, "top_k": 30, "top_p": 0.9},
    "penalised": {"do_sample": True, "repetition_penalty": 1.3, "min_new_tokens": 3},
}


class _Favour(LogitsProcessor):
    """A user's processor of two arguments."""

    def __call__(self, input_ids, scores):
        wanted = torch.zeros_like(scores)
        wanted[:, 100:110] = 2.0
        return scores + wanted


class _Ban(LogitsProcessor):
    """A user's processor that writes into the scores it was given."""

    def __call__(self, input_ids, scores):
        scores[:, 50:] -= 1.0
        scores[:, 7] = -float("inf")
        return scores


class _Listener(BaseStreamer):
    def __init__(self):
        self.heard = []

    def put(self, value):
        self.heard.append(value.tolist())

    def end(self):
        self.heard.append("end")


def assert_same(model, inputs, settings, **options):
    """Generate without and with a recording and compare everything."""
    bytes_before = fingerprint(model)
    plain = generate(model, inputs, **settings)
    plain_state = torch.get_rng_state()
    with tracer.record(strict=True, **options) as recording:
        recorded = generate(model, inputs, **settings)
        recorded_state = torch.get_rng_state()
    assert type(recorded) is type(plain)
    assert torch.equal(recorded.sequences, plain.sequences)
    for name in ("logits", "scores"):
        pairs = zip(getattr(recorded, name), getattr(plain, name), strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
    assert torch.equal(plain_state, recorded_state)
    assert fingerprint(model) == bytes_before
    assert recording.trace.rows("steps") == len(plain.logits)
    return recording.trace


@pytest.mark.parametrize("options", DETAILS, ids=str)
def test_recording_leaves_a_sampled_answer_bit_identical(llama, options):
    assert_same(llama, text_inputs(), SETTINGS["sampled"], **options)


@pytest.mark.parametrize("options", DETAILS[::2], ids=str)
@pytest.mark.parametrize("settings", ["greedy", "penalised"])
def test_recording_leaves_other_answers_bit_identical(llama, settings, options):
    assert_same(llama, text_inputs(), SETTINGS[settings], **options)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_left_padded_batch_is_answered_the_same(request, family, settings):
    trace = assert_same(request.getfixturevalue(family), text_inputs(rows=2), settings)
    assert set(trace["choices"]["row"]) == {0, 1}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_question_about_an_image_is_answered_the_same(seeing, seeing_inputs, settings):
    assert_same(seeing, seeing_inputs, settings, values=True, logits=True)


@pytest.mark.parametrize("effects", [True, False])
@pytest.mark.parametrize("do_sample", [True, False])
def test_processors_of_the_user_see_and_give_the_same_scores(llama, do_sample, effects):
    own = LogitsProcessorList([_Favour(), _Ban(), lambda ids, scores: scores * 1.5])
    settings = {"do_sample": do_sample, "logits_processor": own}
    trace = assert_same(llama, text_inputs(), settings, effects=effects)
    chain = trace["chain"]
    names = chain[chain["kind"] == "processor"].sort_values("index")["class_name"].tolist()
    own_names = [type(one).__name__ for one in own]
    assert [name for name in names if name in own_names] == own_names


def test_without_a_cache_the_library_warns_of_nothing_that_it_did_not_warn_of(llama):
    """The name of an older generation, looked up by us, must not be held against the user."""
    settings = {"max_new_tokens": 2, "do_sample": False, "use_cache": False}
    logging.warning_once.cache_clear()
    with tracer.record(strict=True) as recording:
        generate(llama, text_inputs(), **settings)
    told = recording.trace["messages"]["text"]
    assert [text for text in told if "past_key_values" in text] == []


def test_a_streamer_hears_the_same(llama):
    plain, recorded = _Listener(), _Listener()
    generate(llama, text_inputs(), streamer=plain, do_sample=True)
    with tracer.record(strict=True):
        generate(llama, text_inputs(), streamer=recorded, do_sample=True)
    assert recorded.heard == plain.heard
    assert recorded.heard[-1] == "end"


def test_a_bare_tensor_is_still_what_generate_returns(llama):
    plain = llama.generate(**text_inputs(), max_new_tokens=3, do_sample=False)
    with tracer.record(strict=True):
        recorded = llama.generate(**text_inputs(), max_new_tokens=3, do_sample=False)
    assert type(recorded) is type(plain) is torch.Tensor
    assert torch.equal(recorded, plain)


def test_a_model_loaded_while_recording_holds_the_same_bytes(seeing, demo):
    assert fingerprint(demo.model) == fingerprint(seeing)


def test_a_forward_gives_the_same_logits(gpt2):
    plain = gpt2(**text_inputs()).logits
    with tracer.record(strict=True, detail="modules", values=True):
        recorded = gpt2(**text_inputs()).logits
    assert torch.equal(recorded, plain)
    assert recorded.requires_grad == plain.requires_grad
