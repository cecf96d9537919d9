"""The timeline: valid JSON, a track for each thread, times in microseconds, counters."""

import json

import pyarrow
import pytest

from tracer.errors import StorageError
from tracer.export.perfetto import write_perfetto
from tracer.storage import Store, arrow_schema


def event(seq, **cells):
    common = {"seq": seq, "parent": -1, "call": 0, "stage": "decode", "name": f"event {seq}"}
    times = {"start_ns": seq * 1000, "duration_ns": 500, "rank": 0, "status": "ok"}
    return {**common, **times, "thread": "MainThread", **cells}


ROWS = {
    "calls": [event(0, stage="setup", name='generate "你好"\n', duration_ns=9_500)],
    "spans": [event(1, thread="loader-1"), event(2, duration_ns=None, status="interrupted")],
    "steps": [event(3, cache="c1", cache_bytes=4096), event(4)],
    "memory": [event(5, rss_bytes=77, disk_bytes=None)],
    "messages": [event(6, level="warning", text="look")],
    "modules": [event(7, rank=1)],
}


def store_of(rows):
    tables = {
        name: pyarrow.Table.from_pylist(part, schema=arrow_schema(name))
        for name, part in rows.items()
    }
    return Store.from_tables({}, tables)


@pytest.fixture
def events(tmp_path):
    path = write_perfetto(store_of(ROWS), tmp_path / "new" / "trace.json")
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def only(events, **wanted):
    return [each for each in events if all(each.get(key) == wanted[key] for key in wanted)]


def test_a_span_has_its_times_in_microseconds_and_its_origin(events):
    (call,) = only(events, name='generate "你好"\n')
    assert (call["ph"], call["ts"], call["dur"]) == ("X", 0, 9.5)
    assert call["args"] == {"table": "calls", "seq": 0, "stage": "setup", "call": 0, "status": "ok"}


def test_every_thread_of_every_rank_has_a_named_track(events):
    tracks = {(each["pid"], each["tid"]): each["args"]["name"] for each in only(events, ph="M")}
    assert tracks == {(0, 1): "MainThread", (0, 2): "loader-1", (1, 3): "MainThread"}
    (load,) = only(events, name="event 1")
    assert tracks[load["pid"], load["tid"]] == "loader-1"


def test_a_span_that_never_ended_has_no_end(events):
    (span,) = only(events, name="event 2")
    assert span["ph"] == "B"
    assert "dur" not in span


def test_memory_and_cache_are_counters(events):
    counters = [(each["name"], each["ts"], each["args"]) for each in only(events, ph="C")]
    assert counters == [("c1 bytes", 3.5, {"bytes": 4096}), ("rss_bytes", 5.0, {"bytes": 77})]


def test_messages_are_instants(events):
    (message,) = only(events, name="event 6")
    assert message["ph"] == "i"


def test_an_empty_trace_is_valid_json(tmp_path):
    path = write_perfetto(store_of({}), tmp_path / "trace.json")
    assert json.loads(path.read_text())["traceEvents"] == []


def test_only_its_own_file_is_replaced(tmp_path):
    path = write_perfetto(store_of({}), tmp_path / "trace.json")
    write_perfetto(store_of(ROWS), path)
    assert json.loads(path.read_text())["traceEvents"]
    path.write_text("[]")
    with pytest.raises(StorageError, match="no timeline"):
        write_perfetto(store_of(ROWS), path)
    assert path.read_text() == "[]"
    with pytest.raises(StorageError, match="is a folder"):
        write_perfetto(store_of(ROWS), tmp_path)
