"""Whatever fails inside the recorder, wherever: the user's result is right and the trace opens."""

import os
import random

import pytest
import torch
from instrument.injection import Injected, injected
from instrument.toys import World, generate, text_inputs
from transformers import AutoModelForCausalLM

import tracer
from tracer.spans import ThreadState

_SPAN_ENDS = {ThreadState.open.__code__, ThreadState.close_held.__code__}
_QUICK = 25
_MANY = int(os.environ.get("TRACER_FAULTS", "0"))


def _load_and_ask(folder, tokens=3):
    model = AutoModelForCausalLM.from_pretrained(folder)
    settings = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": True}
    return generate(model, text_inputs(), **settings).sequences


def _is_span_end(frame):
    return frame.f_code in _SPAN_ENDS


def _rows(trace):
    """How many rows each table has; how often memory is sampled is a matter of time."""
    counts = {table: trace.rows(table) for table in trace.tables if table != "memory"}
    counts["spans"] = int((trace["spans"]["stage"] != "recorder").sum())
    return counts


@pytest.fixture(scope="module")
def plain(llama_folder):
    """The right answer, the rows of a sound trace, and how often the lab's functions are called."""
    answer = _load_and_ask(llama_folder)
    with tracer.record(strict=True) as recording:
        _load_and_ask(llama_folder)
    with tracer.record(strict=True) as counted, injected() as calls:
        _load_and_ask(llama_folder)
        counted.stop()
    return answer, _rows(recording.trace), calls.count


def _assert_survives(folder, path, plain, at):
    """Raise at one call of the lab, in the block or while it ends."""
    answer, rows, _ = plain
    before = World.now()
    recording = tracer.start(path, if_exists="replace")
    with injected(at, Injected(f"at {at}")) as calls:
        try:
            seen = _load_and_ask(folder)
        finally:
            recording.stop()
    assert torch.equal(seen, answer), calls.place
    assert before.differences() == [], calls.place
    trace = tracer.open_trace(path)
    assert trace.summary(), calls.place
    assert trace["events"]["seq"].is_unique, calls.place
    kept = _rows(trace) if trace.rows("spans") else {}
    lost = {table: count for table, count in rows.items() if kept.get(table, 0) < count}
    if lost:
        told = f"{trace['faults']['reason'].tolist()} {trace.manifest.get('closing_failure')}"
        assert f"at {at}" in told or "tried again" in told, (calls.place, lost)


@pytest.mark.parametrize("seed", range(_QUICK))
def test_an_error_in_the_recorder_costs_rows_never_the_answer(llama_folder, tmp_path, plain, seed):
    at = random.Random(seed).randint(1, plain[2])
    _assert_survives(llama_folder, tmp_path / "run", plain, at)


@pytest.mark.slow
@pytest.mark.skipif(not _MANY, reason="TRACER_FAULTS=1000 raises at so many random places")
def test_many_errors_in_the_recorder_cost_no_answer(llama_folder, tmp_path, plain):
    chance = random.Random()
    for at in sorted(chance.sample(range(1, plain[2] + 1), _MANY)):
        _assert_survives(llama_folder, tmp_path / "run", plain, at)


def _assert_interrupted(folder, path, at):
    """Ctrl-C at one boundary of a span; it comes out as itself and the trace is sound."""
    before, error = World.now(), KeyboardInterrupt(f"at {at}")
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        tracer.record(path, if_exists="replace", strict=True),
        injected(at, error, _is_span_end) as calls,
    ):
        _load_and_ask(folder, tokens=11)
    assert caught.value is error, calls.place
    assert before.differences() == [], calls.place
    trace = tracer.open_trace(path)
    events = trace["events"]
    assert events["seq"].is_unique
    assert set(events.loc[events["parent"] >= 0, "parent"]) <= set(events["seq"])
    assert trace.manifest["ended"].startswith("KeyboardInterrupt")
    assert "KeyboardInterrupt" in trace.summary()
    # The interrupt may come before the lab knows of the call that it interrupts.
    assert set(events["status"]) <= {"ok", "interrupted"}
    assert events.loc[events["status"] == "ok", "duration_ns"].notna().all()


@pytest.fixture(scope="module")
def boundaries(llama_folder):
    """How many ends of spans a load and ten decode steps have."""
    with tracer.record(strict=True), injected(wanted=_is_span_end) as calls:
        _load_and_ask(llama_folder, tokens=11)
    return calls.count


@pytest.mark.parametrize("share", [number / 12 for number in range(12)])
def test_an_interrupt_at_a_boundary_leaves_a_sound_trace(llama_folder, tmp_path, boundaries, share):
    _assert_interrupted(llama_folder, tmp_path / "run", 1 + int(share * boundaries))


@pytest.mark.slow
def test_an_interrupt_at_every_boundary_leaves_a_sound_trace(llama_folder, tmp_path, boundaries):
    for at in range(1, boundaries + 1):
        _assert_interrupted(llama_folder, tmp_path / "run", at)
