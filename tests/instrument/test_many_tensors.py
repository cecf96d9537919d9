"""A checkpoint with very many tensors: the recorder's work grows with their number, no faster."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer
from tracer.instrument.reads import BATCH, Load, Plan, placed
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
    load.plans = Counted({f"t{index}": Plan(f"p{index}", None, "", []) for index in range(MANY)})
    memory = (None, None, None)
    load.reads = [
        (recorder.next_seq(), f"t{index}", 0, 1, 1, index, "worker", "ok", None, None, *memory)
        for index in range(MANY)
    ]
    yield load
    state.close(span)


def test_rows_of_waiting_reads_are_not_looked_for_again_and_again(load):
    class Info:
        mismatched_keys = unexpected_keys = ()

    note = placed("place")(lambda *args, **kwargs: None, lambda: True)
    for index in range(MANY):
        note(None, f"p{index}", None, Info)
    assert len(load.placed) == MANY
    assert len(load.reads) < BATCH
    assert load.plans.looks < 6 * MANY


@pytest.mark.slow
def test_twenty_thousand_tensors_take_little_room(tmp_path):
    sizes = {"vocab_size": 64, "hidden_size": 8, "intermediate_size": 8}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    config = LlamaConfig(**sizes, **heads, num_hidden_layers=2222)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "model")
    with tracer.record(tmp_path / "run", strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert recording.trace.rows("tensor_loads") == recording.trace.rows("placements") - 2 == 20_001
    assert sum(file.stat().st_size for file in (tmp_path / "run").iterdir()) < 20_000_000
