"""A checkpoint with very many tensors: the recorder's work grows with their number, no faster."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer
from tracer.instrument.loads.load_notes import BATCH, Load, Plan
from tracer.instrument.loads.reads import placed
from tracer.journal import Journal
from tracer.recorder import Options, Recorder

MANY = 8 * BATCH


class Counted(dict[str, Any]):
    """Plans of a load, and how often one was looked up."""

    looks = 0

    def get(self, *key: Any) -> Any:
        self.looks += 1
        return super().get(*key)


@pytest.fixture
def load():
    """A load whose workers have read everything before the first parameter is set."""
    recorder = Recorder(Journal(None), Options(), strict=True)
    state = recorder.thread_state()
    span = state.open("calls", "resolve", "a load")
    state.load = load = Load(state, span.seq)
    load.known_plans = Counted(
        {f"t{index}": Plan(f"p{index}", None, "", []) for index in range(MANY)}
    )
    memory = (None, None, None)
    load.reads = [
        (recorder.next_seq(), f"t{index}", 0, 1, 1, index, "worker", "ok", None, None, *memory)
        for index in range(MANY)
    ]
    yield load
    state.close(span)


def test_rows_of_waiting_reads_are_not_looked_for_again_and_again(load):
    class Info:
        mismatched_keys = unexpected_keys = missing_keys = ()

    note = placed("place")(lambda *args, **kwargs: None, lambda: True)
    for index in range(MANY):
        note(None, f"p{index}", None, Info)
    assert len(load.placed) == MANY
    assert len(load.reads) < BATCH
    assert load.plans.looks < 6 * MANY


OWN = str(Path(tracer.__file__).parent)
SIZES = {"vocab_size": 64, "hidden_size": 8, "intermediate_size": 8}
HEADS = {"num_attention_heads": 1, "num_key_value_heads": 1}


def _calls(folder):
    """Calls of the lab's own functions in a recorded load, in all its threads; tensors read."""
    numbers = iter(range(10_000_000))

    def seen(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(OWN):
            next(numbers)

    with tracer.record(strict=True, detail="stages") as recording:
        threading.setprofile(seen)
        sys.setprofile(seen)
        try:
            AutoModelForCausalLM.from_pretrained(folder)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return next(numbers), recording.trace.rows("tensor_loads")


def test_a_tensor_more_costs_so_many_calls_more(tmp_path):
    """What a busy machine can't change: how often the lab's own functions run for a tensor."""
    for layers in (2, 12):
        config = LlamaConfig(**SIZES, **HEADS, num_hidden_layers=layers)
        LlamaForCausalLM(config).save_pretrained(tmp_path / str(layers))
    _calls(tmp_path / "2")  # what is done once in a process
    (few, less), (many, more) = (_calls(tmp_path / name) for name in ("2", "12"))
    assert (more, less) == (111, 21)
    assert (many - few) / (more - less) < 70


@pytest.mark.slow
def test_twenty_thousand_tensors_take_little_room(tmp_path):
    config = LlamaConfig(**SIZES, **HEADS, num_hidden_layers=2222)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "model")
    with tracer.record(tmp_path / "run", strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert recording.trace.rows("tensor_loads") == recording.trace.rows("placements") - 2 == 20_001
    assert sum(file.stat().st_size for file in (tmp_path / "run").iterdir()) < 20_000_000
