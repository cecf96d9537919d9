"""A checkpoint with very many tensors: the recorder's work grows with their number, no faster."""

import gc
import itertools
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer
from tracer.instrument.loads.load_notes import BATCH, Load, Plan
from tracer.instrument.loads.steps import placed
from tracer.journal import Journal
from tracer.ledger import Options
from tracer.recorder import Recorder

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


# What a tensor more may cost: calls of the lab's own Python functions and of C functions from
# them, in all threads, inside of the user's call and with what is put off until the recording
# closes; blocks of memory that wait for that; and bytes on their way to the disk. To set them
# anew after a change for the better: run this file with `-rP`, and write what it prints, rounded
# up by a tenth. Blocks depend on the day: half as many again.
LIMITS = {"python": 18.5, "c": 74, "all_python": 75, "all_c": 116, "blocks": 57, "bytes": 310}


class _Calls:
    """Counts what the lab itself calls, in all threads."""

    def __init__(self):
        self.python, self.c = itertools.count(), itertools.count()  # which no thread interrupts

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename.startswith(OWN):
            if event == "call":
                next(self.python)
            elif event == "c_call":
                next(self.c)

    def __enter__(self):
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)


def _counted(folder):
    """What a recorded load costs in all, by name, and how many tensors it read."""
    gc.collect()
    recording = tracer.start(strict=True)
    before = sys.getallocatedblocks()
    with _Calls() as calls:
        AutoModelForCausalLM.from_pretrained(folder)
    gc.collect()
    blocks = sys.getallocatedblocks() - before
    with _Calls() as later:
        trace = recording.stop()
    found = {"python": next(calls.python), "c": next(calls.c), "blocks": blocks}
    found |= {"all_python": found["python"] + next(later.python)}
    found |= {"all_c": found["c"] + next(later.c), "bytes": recording._journal.bytes_written}
    return found, trace.rows("tensor_loads")


def test_a_tensor_more_costs_no_more_than_it_did(tmp_path):
    """What a busy machine can't change: how often the lab's own functions run for a tensor."""
    for layers in (2, 12):
        config = LlamaConfig(**SIZES, **HEADS, num_hidden_layers=layers)
        LlamaForCausalLM(config).save_pretrained(tmp_path / str(layers))
    _counted(tmp_path / "2")  # what is done once in a process
    (few, less), (many, more) = (_counted(tmp_path / name) for name in ("2", "12"))
    assert (more, less) == (111, 21)
    found = {name: round((many[name] - few[name]) / (more - less), 1) for name in LIMITS}
    print(found)
    over = {name: (found[name], most) for name, most in LIMITS.items() if found[name] > most}
    assert not over, f"a tensor costs more than its limit: {over}"


@pytest.mark.slow
def test_twenty_thousand_tensors_take_little_room(tmp_path):
    config = LlamaConfig(**SIZES, **HEADS, num_hidden_layers=2222)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "model")
    with tracer.record(tmp_path / "run", strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert recording.trace.rows("tensor_loads") == recording.trace.rows("placements") - 2 == 20_001
    assert sum(file.stat().st_size for file in (tmp_path / "run").iterdir()) < 20_000_000
