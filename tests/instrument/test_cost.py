"""What the recorder does a module call and a token, in counts: a busy machine can't blur them."""

import collections
import sys
from pathlib import Path

import pytest
import torch
from instrument.toys import text_inputs

import tracer
from tracer.instrument.module_hooks import hook_module
from tracer.instrument.modules import selected
from tracer.recorder import Nowhere, Options, Recorder

LAB = str(Path(tracer.__file__).parent)


@pytest.fixture
def hooked():
    """A module under the hooks of a recorder that keeps nothing, and the thread's state."""
    recorder, module = Recorder(Nowhere(), Options()), torch.nn.Linear(4, 3)
    state = recorder.thread_state()
    state.open("calls", "forward", "counted")
    state.place = "here", None
    handles = list(hook_module(recorder, "model-1", "module", module))
    with torch.no_grad():
        module(torch.ones(1, 4))  # the first call looks round
    yield module, state
    for handle in handles:
        handle.remove()
    state.end_all()


class _Counts:
    """Counts what the lab's own functions do: bytecodes, and calls of Python and of C."""

    def __init__(self):
        self.instructions = 0
        self.calls = collections.Counter()

    def of(self, work, *, bytecodes=False):
        """Run it, counted."""
        before = sys.gettrace(), sys.getprofile()
        if bytecodes:
            sys.settrace(self._traced)
        sys.setprofile(self._profiled)
        try:
            work()
        finally:
            sys.setprofile(before[1])
            sys.settrace(before[0])
        return self

    def _traced(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(LAB):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.instructions += event == "opcode"
        return self._traced

    def _profiled(self, frame, event, argument):
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(LAB):
            self.calls[event] += 1


def test_a_hook_pair_does_little(hooked):
    module, state = hooked
    tensor, before = torch.ones(1, 4), len(state.rows)
    with torch.no_grad():
        counts = _Counts().of(lambda: module(tensor), bytecodes=True)
    # On Python 3.11 it is 157; other versions cut the same lines into a few more or fewer.
    assert counts.instructions < 220
    assert counts.calls["call"] == 2
    assert counts.calls["c_call"] <= 9
    assert len(state.rows) == before + 1
    assert len(state.rows[-1]) == 7


def _generate(model, tokens):
    one = {name: ids[:1] for name, ids in text_inputs().items()}
    settings = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": True, "top_k": 20}
    return model.generate(**one, **settings)


def _a_token(model, **options):
    """Calls of the lab's functions and rows of each table for one more token."""
    found = []
    for tokens in (4, 8):
        with tracer.record(strict=True, **options) as recording:
            counts = _Counts().of(lambda tokens=tokens: _generate(model, tokens))
        rows = {name: recording.trace.rows(name) for name in recording.trace.tables}
        found.append((counts.calls["call"], rows))
    (fewer, before), (more, after) = found
    return (more - fewer) / 4, {name: (after[name] - before[name]) / 4 for name in after}


def test_a_token_is_told_in_few_rows(llama):
    _, rows = _a_token(llama, detail="layers", effects=False)
    assert rows.pop("modules") == len(list(selected(llama, "layers"))) == 12
    assert {name: count for name, count in rows.items() if count} == {
        "steps": 1, "choices": 1, "tokens": 1, "spans": 1, "stops": 1,
        "candidates": 10, "cache_layers": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"detail": "stages", "effects": False}, 230),  # 187 when this was written
        ({"detail": "layers", "effects": False}, 290),  # 234
        ({"detail": "layers", "effects": True}, 360),  # 293
    ],
    ids=["stages", "layers", "effects"],
)
def test_a_token_takes_few_calls(llama, options, most):
    calls, _ = _a_token(llama, **options)
    assert calls < most
