"""What recording costs, counted instead of timed: a change that doubles it fails on any machine.

Each number is the difference between a longer and a shorter answer of the same model, so what is
done once a recording falls out. To set LIMITS anew after a change for the better: run this file
with `-rP`, and write what it prints, rounded up by a tenth.
"""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from instrument.toys import text_inputs

import tracer
from tracer.instrument.modules import selected
from tracer.instrument.watching import watch_module
from tracer.ledger import Options
from tracer.recorder import Recorder
from tracer.schema import TABLES
from tracer.short_ids import ShortIds
from tracer.sinks import Nowhere

PACKAGE = str(Path(tracer.__file__).parent)
SHORT, LONG = 6, 18
DETAILS = {
    "stages": {"detail": "stages"},
    "layers": {"detail": "layers", "effects": False},
    "effects": {"detail": "layers", "effects": True},
    "modules": {"detail": "modules", "effects": False},
}
# A token of a Llama of two layers: rows of all tables; calls of Python functions of the package,
# and of C functions that they call; blocks of memory that stay until the rows are handed over;
# and bytes of an event, of all tables together. Blocks depend on the day: half as many again.
LIMITS = {
    "stages": {"rows": 16, "python": 245, "c": 340, "blocks": 150, "bytes": 42},
    "layers": {"rows": 28, "python": 295, "c": 487, "blocks": 300, "bytes": 57},
    "effects": {"rows": 32, "python": 420, "c": 752, "blocks": 420, "bytes": 53},
    "modules": {"rows": 48, "python": 360, "c": 685, "blocks": 480, "bytes": 66},
}
# What a module call adds, of detail "modules".
PYTHON_CALLS_A_MODULE_CALL, C_CALLS_A_MODULE_CALL = 3.3, 10


def _answer(model, tokens):
    torch.manual_seed(0)
    settings = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8}
    settings |= {"repetition_penalty": 1.05, "eos_token_id": None}
    model.generate(**text_inputs(), max_new_tokens=tokens, min_new_tokens=tokens, **settings)


class _Calls:
    """Counts calls of the package's functions, and of C functions from them, in this thread.

    With `bytecodes` the instructions that those functions run too.
    """

    def __init__(self, *, bytecodes=False):
        self.python = self.c = self.instructions = 0
        self._counts_instructions = bytecodes

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename.startswith(PACKAGE):
            self.python += event == "call"
            self.c += event == "c_call"

    def _traced(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.instructions += event == "opcode"
        return self._traced

    def __enter__(self):
        self._before = sys.gettrace(), sys.getprofile()
        if self._counts_instructions:
            sys.settrace(self._traced)
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(self._before[1])
        sys.settrace(self._before[0])


def _counted(model, tokens, options):
    """All counts of a recording with one answer of so many tokens, after one of two."""
    with tracer.record(strict=True, **options) as recording:
        _answer(model, 2)  # what is made once is made now
        gc.collect()
        before = sys.getallocatedblocks()
        with _Calls() as calls:
            _answer(model, tokens)
        gc.collect()
        blocks = sys.getallocatedblocks() - before
    trace = recording.trace
    tables = {table: trace.rows(table) for table in trace.tables}
    return tables | {
        "rows": sum(tables.values()),
        "python": calls.python,
        "c": calls.c,
        "blocks": blocks,
        "bytes": recording._journal.bytes_written,
    }


def _a_token(model, options):
    """All counts of one more token; bytes are those of an event."""
    # A thread of its own: the call path, which the recorder walks, is as long on any day.
    with ThreadPoolExecutor(1) as thread:
        short, long = thread.map(lambda tokens: _counted(model, tokens, options), (SHORT, LONG))
    found = {key: (long[key] - short[key]) / (LONG - SHORT) for key in short}
    found["bytes"] /= found["rows"]
    return found


@pytest.fixture(scope="module")
def counts(llama):
    """Counts a token, by detail; bytes are those of an event."""
    _answer(llama, SHORT)
    found = {}
    for name, options in DETAILS.items():
        found[name] = _a_token(llama, options)
        # Blocks are those of the whole process, in which a long suite may have threads left.
        for _ in range(4):
            if found[name]["blocks"] <= LIMITS[name]["blocks"]:
                break
            again = _a_token(llama, options)
            found[name] = {key: min(value, again[key]) for key, value in found[name].items()}
    return found


@pytest.mark.parametrize("detail", DETAILS)
def test_a_token_costs_no_more_than_it_did(counts, detail):
    found = {key: round(counts[detail][key], 1) for key in LIMITS[detail]}
    print(detail, found)
    over = {key: (found[key], most) for key, most in LIMITS[detail].items() if found[key] > most}
    assert not over, f"a token at detail {detail} costs more than its limit: {over}"


def test_a_module_call_costs_no_more_than_it_did(counts):
    pairs = counts["modules"]["modules"] - counts["layers"]["modules"]
    python, c = (
        round((counts["modules"][key] - counts["layers"][key]) / pairs, 2)
        for key in ("python", "c")
    )
    print("a module call", python, c)
    assert python <= PYTHON_CALLS_A_MODULE_CALL
    assert c <= C_CALLS_A_MODULE_CALL


@pytest.mark.parametrize(
    ("by_torch", "calls_a_module", "instructions"),
    [(False, 2, 212), (True, 3, 240)],
    ids=["stand-in", "torch's hooks"],
)
def test_a_module_call_runs_few_instructions(by_torch, calls_a_module, instructions):
    recorder, module = Recorder(Nowhere(), Options()), torch.nn.Linear(4, 3)
    state, tensor = recorder.thread_state(), torch.ones(1, 4)
    state.open("calls", "forward", "counted")
    state.place = "here", None
    handles = [watch_module(recorder, "model-1", "module", module, by_torch=by_torch)]
    with torch.no_grad():
        module(tensor)  # the first call looks round
        before = len(state.rows)
        with _Calls(bytecodes=True) as calls:
            module(tensor)
    for handle in handles:
        handle.remove()
    row = state.rows[before:]
    state.end_all()
    print(calls.instructions, calls.python, calls.c)
    # Those of Python 3.11; other versions cut the same lines into a few more or fewer.
    assert calls.instructions < instructions
    assert (calls.python, len(row), len(row[0])) == (calls_a_module, 1, 6)
    assert calls.c <= 11


def test_a_token_is_told_in_few_rows(counts, llama):
    found = {table: counts["layers"][table] for table in TABLES if counts["layers"].get(table)}
    assert found.pop("modules") == len(list(selected(llama, "layers"))) == 12
    assert found == {
        "steps": 1, "choices": 1, "tokens": 1, "spans": 1, "candidates": 10, "cache_layers": 2,
    }  # fmt: skip


def test_only_the_packages_calls_are_counted():
    with _Calls() as calls:
        gc.isenabled()
        Path("a").with_suffix(".b")
    assert (calls.python, calls.c) == (0, 0)
    with _Calls() as calls:
        ShortIds("word").alive()
    assert calls.python == 2  # made, asked


def test_the_recorder_tells_its_share_at_every_detail(llama):
    for options in DETAILS.values():
        with tracer.record(strict=True, **options) as recording:
            _answer(llama, SHORT)
        told = recording.trace.manifest["recorder"]
        assert 0 < told["share"] < 1
        assert told["observed_calls"] > 0
        assert (told["module_call_ns"] is None) == (told["module_calls"] == 0)
