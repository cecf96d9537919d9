"""A recording keeps no model, no tensor, no file and no thread."""

import gc
import os
import sys
import threading
import weakref

import pytest
import torch
from instrument.toys import generate, hook_count, text_inputs
from transformers import AutoModelForCausalLM

import tracer


def _tensors() -> int:
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def _open_files() -> set[str]:
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return {os.readlink(link) for link in links if os.path.exists(link)}


@pytest.mark.parametrize("detail", ["stages", "modules"])
def test_a_recorded_model_dies_while_its_trace_is_open(llama_folder, detail):
    options = {"detail": detail, "values": True, "logits": True}
    with tracer.record(strict=True, **options) as recording:
        model = AutoModelForCausalLM.from_pretrained(llama_folder)
        generate(model, text_inputs(rows=2), do_sample=True)
        model(**text_inputs())
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
    assert recording.trace.rows("steps") == 5 + 1  # the user's own forward made a cache


def test_a_model_dies_even_while_the_recording_goes_on(llama_folder):
    with tracer.record(strict=True):
        model = AutoModelForCausalLM.from_pretrained(llama_folder)
        generate(model, text_inputs())
        alive = weakref.ref(model)
        del model
        gc.collect()
        assert alive() is None


def test_no_tensor_of_the_run_or_of_the_lab_survives(llama):
    generate(llama, text_inputs(), do_sample=True)
    before = _tensors()
    with tracer.record(strict=True, logits=True, values=True) as recording:
        generate(llama, text_inputs(), do_sample=True)
    assert _tensors() == before
    assert recording.trace.rows("choices") == 5


@pytest.mark.slow
def test_no_tensor_piles_up_from_step_to_step(llama):
    counts = []

    def note(ids, scores):
        counts.append(_tensors())
        return scores

    with tracer.record(strict=True, logits=True):
        llama.generate(**text_inputs(), logits_processor=[note], max_new_tokens=4)
    assert len(set(counts[1:])) == 1


def test_a_model_whose_generate_failed_dies_too(llama_folder):
    model = AutoModelForCausalLM.from_pretrained(llama_folder)

    def fail(ids, scores):
        raise ValueError("no")

    recording = tracer.record(strict=True)
    with pytest.raises(ValueError, match="no"), recording:
        generate(model, text_inputs(), logits_processor=[fail])
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
def test_twenty_recordings_leave_hooks_files_and_threads_where_they_were(gpt2, tmp_path):
    gpt2(**text_inputs())
    before = hook_count(gpt2), _open_files(), threading.active_count()
    for number in range(20):
        with tracer.record(tmp_path / str(number), strict=True):
            gpt2(**text_inputs())
    gc.collect()
    assert (hook_count(gpt2), _open_files(), threading.active_count()) == before
