"""Ctrl-C inside the lab's own code comes through, and later calls of the thread are told whole."""

import contextlib
import gc
import json
import os
import random
import sys

import pytest
from instrument.injection import interrupted_at_line
from instrument.toys import World, generate, text_inputs
from transformers import AutoModelForCausalLM

import tracer
from tracer.instrument.installer import INSTALLER
from tracer.journal import Journal
from tracer.ledger import Options
from tracer.recorder import Recorder
from tracer.rows import Circumstances, ModuleSlot
from tracer.trace import Trace

# What was being opened when it was cut off, a file of weights or of the recording, nobody closes
# but the collector.
pytestmark = [
    pytest.mark.generations,
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

_QUICK = int(os.environ.get("TRACER_INTERRUPTS", "12"))
# Told in the course of time, once a recording, or of the interrupted call alone.
_NOT_COMPARED = {"memory", "messages", "sources", "stacks"}


@pytest.fixture(autouse=True)
def _collected():
    yield
    gc.collect()


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
    return INSTALLER.recorders[-1].next_seq()


@contextlib.contextmanager
def _let_pass(error):
    """Whatever comes out of the block is the very interrupt that was raised in it."""
    caught = None
    try:
        yield
    except KeyboardInterrupt as interrupt:
        caught = interrupt
    assert caught in (None, error)


def _assert_goes_on(work, again, expected, at, path=None):
    before, was_on = World.now(), gc.isenabled()
    error = KeyboardInterrupt(f"at {at}")
    with tracer.record(path, if_exists="replace", strict=True) as recording:
        with interrupted_at_line(at, error) as lines, _let_pass(error):
            work()
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
    # Of the call that was cut off a fault or a check may say that rows are missing.
    faults = trace["faults"]
    assert faults[faults["call"] > seq]["reason"].tolist() == [], lines.place
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    for found in map(json.loads, broken["evidence"]):
        assert not any(_is_of_later(one, trace, seq) for one in found), (
            lines.place,
            broken.to_dict("records"),
        )


def _is_of_later(evidence, trace, seq):
    """Whether what breaks a check, an event or words that may name a model, came after an event."""
    if isinstance(evidence, int):
        return evidence > seq
    models = trace["models"]
    return any(name in evidence for name in models.loc[models["event"] > seq, "model"])


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


@pytest.mark.parametrize("part", ["begin", "stop"])
def test_an_interrupt_as_a_recording_begins_or_ends_leaves_nothing_attached(llama, tmp_path, part):
    def begin():
        recording = tracer.start(tmp_path / "run", if_exists="replace", strict=True)
        sys.settrace(None)  # from here on the user can stop it
        recording.stop()

    def stop():
        with tracer.record(tmp_path / "run", if_exists="replace", strict=True):
            sys.settrace(None)
            _ask(llama)
            sys.settrace(lines)
            sys._getframe().f_trace = lines

    work = {"begin": begin, "stop": stop}[part]
    before = World.now()
    with interrupted_at_line() as lines:
        work()
    for at in _places(lines.count, 2 * _QUICK, 3):
        error = KeyboardInterrupt(f"at {at}")
        with interrupted_at_line(at, error, returns=False) as lines, _let_pass(error):
            work()
        assert before.differences() == [], lines.place


def _told_once(trace, plain):
    for table in set(plain.tables) - {"memory", "messages", "spans"}:
        assert trace.rows(table) == plain.rows(table), table
    assert trace["events"]["seq"].is_unique


def test_an_interrupt_as_a_recording_ends_loses_no_row_and_tells_none_twice(llama, tmp_path):
    """Whoever stops it again has the whole trace."""

    def recorded(path, at=0):
        recording = tracer.start(path, strict=True, detail="modules")
        _ask(llama)
        error = KeyboardInterrupt(f"at {at}")
        with interrupted_at_line(at, error) as lines, _let_pass(error):
            recording.stop()
        return recording.stop(), lines

    plain, lines = recorded(tmp_path / "plain")
    for at in _places(lines.count, 2 * _QUICK, 4):
        trace, lines = recorded(tmp_path / f"at-{at}", at)
        try:
            _told_once(trace, plain)
        except AssertionError as error:
            raise AssertionError(lines.place) from error


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_interrupt_between_steps_loses_no_row_and_writes_none_twice(tmp_path, in_memory):
    """Rows go to the journal once a second, which may take longer than a step."""

    def written(at=0):
        path = None if in_memory else tmp_path / f"at-{at}"
        recorder = Recorder(Journal(path), Options(), strict=True)
        state = recorder.thread_state()
        slot = recorder.add_slot(ModuleSlot("model-1", "", "Toy"))
        for number in range(4):
            recorder.add_fact("stops", 1, 1, token_id=number)
            frame = (recorder.next_seq(), -1, slot, recorder.clock())
            place = Circumstances()
            state.rows.append((frame, 0, recorder.clock(), (None, None), None, place))
        recorder.add_later("more", lambda: recorder.add_fact("effects", 1, 1, index=1))
        error = KeyboardInterrupt(f"at {at}")
        with interrupted_at_line(at, error) as lines, _let_pass(error):
            recorder.drain(state)
            recorder.flush()
        recorder.end()
        trace = Trace(recorder.sink.close({"schema_version": 1}))
        return lines, {table: trace.rows(table) for table in ("stops", "modules", "effects")}

    lines, plain = written()
    assert plain == {"stops": 4, "modules": 4, "effects": 1}
    for at in range(1, lines.count + 1, 1 if _QUICK > 12 else 7):
        lines, told = written(at)
        assert told == plain, lines.place
