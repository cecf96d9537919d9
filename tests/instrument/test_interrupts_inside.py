"""Ctrl-C inside the lab's own code: it comes through, and the thread's later calls are told whole."""

import gc
import os
import random

import pytest
from instrument.injection import interrupted_at_line
from instrument.toys import World, generate, text_inputs
from transformers import AutoModelForCausalLM

import tracer

pytestmark = pytest.mark.generations

_QUICK = int(os.environ.get("TRACER_INTERRUPTS", "12"))
# Told in the course of time, once a recording, or of the interrupted call alone.
_NOT_COMPARED = {"memory", "messages", "sources", "stacks"}


def _ask(model):
    generate(model, text_inputs(), max_new_tokens=3, do_sample=True)


def _load(folder):
    AutoModelForCausalLM.from_pretrained(folder)


def _rows_since(trace, seq):
    """How many rows each table has of what began after an event."""
    counts = {}
    for table in set(trace.tables) - _NOT_COMPARED:
        frame = trace[table]
        if table == "spans":
            frame = frame[frame["stage"] != "recorder"]
        column = "event" if "event" in frame else "seq"
        counts[table] = int((frame[column] > seq).sum())
    return {table: count for table, count in counts.items() if count}


def _parts(work, again):
    """What a recording tells of the second of two calls, and how many lines of the lab it takes."""
    with tracer.record(strict=True) as recording:
        with interrupted_at_line() as lines:
            work()
        seq = _last_seq()
        again()
    return _rows_since(recording.trace, seq), lines.count


def _last_seq():
    from tracer.instrument.installer import INSTALLER

    return INSTALLER.recorders[-1].next_seq()


def _assert_goes_on(work, again, expected, at, path=None):
    before, was_on = World.now(), gc.isenabled()
    error = KeyboardInterrupt(f"at {at}")
    with tracer.record(path, if_exists="replace", strict=True) as recording:
        with interrupted_at_line(at, error) as lines:
            try:
                work()
            except KeyboardInterrupt as caught:
                assert caught is error
        assert gc.isenabled() == was_on, lines.place
        seq = _last_seq()
        again()
    assert before.differences() == [], lines.place
    trace = recording.trace
    events = trace["events"]
    assert events["seq"].is_unique, lines.place
    assert set(events.loc[events["parent"] >= 0, "parent"]) <= set(events["seq"]), lines.place
    later = trace["calls"][trace["calls"]["seq"] > seq]
    assert set(later["status"]) == {"ok"}, lines.place
    assert later["parent"].min() == -1, lines.place
    assert _rows_since(trace, seq) == expected, lines.place
    assert trace.rows("faults") == 0, (lines.place, trace["faults"]["reason"].tolist())
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == [], lines.place


def _places(count, number, seed):
    chance = random.Random(seed)
    return sorted(chance.sample(range(1, count + 1), min(number, count)))


@pytest.mark.parametrize("kind", ["generate", "load"])
def test_calls_after_an_interrupt_inside_the_lab_are_told_whole(llama, llama_folder, kind):
    works = {"generate": lambda: _ask(llama), "load": lambda: _load(llama_folder)}
    works[kind]()
    expected, count = _parts(works[kind], works[kind])
    for at in _places(count, _QUICK, 1):
        _assert_goes_on(works[kind], works[kind], expected, at)
