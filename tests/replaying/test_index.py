"""Stops of a trace: which there are, in which order, on which thread, in which forward."""

import ast
import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest
from synthetic import coherent_rows, event, left_behind, make_trace

from tracer.errors import IncompleteTraceWarning
from tracer.replaying import columns, folds, index, nodes, tree
from tracer.replaying.index import stops_of
from tracer.replaying.nodes import KINDS, TABLE_OF
from tracer.replaying.replay import Replay
from tracer.schema import EVENT_TABLES, STAGES
from tracer.trace import open_trace

RECORDED = Path(__file__).resolve().parents[2] / "notebooks" / "traces"
EVERY_RECORDED = sorted(RECORDED.rglob("*.zip"))


def told(stops):
    """Each stop as its kind and name."""
    columns = stops.columns
    kinds = (KINDS[one] for one in columns["kind"])
    return list(zip(kinds, (stops.names[one] for one in columns["name"]), strict=True))


def test_every_event_but_samples_is_a_stop_once():
    trace = make_trace(coherent_rows())
    stops = stops_of(trace)
    events = sum(trace.rows(name) for name in EVENT_TABLES if name != "memory")
    facts = trace.rows("choices") + trace.rows("images")
    assert len(stops) == events + facts
    for kind, table in TABLE_OF.items():
        assert len(stops.of_kind(kind)) == trace.rows(table)


def test_a_stop_points_at_its_row():
    trace = make_trace(coherent_rows())
    stops = stops_of(trace)
    for kind, table in TABLE_OF.items():
        rows = trace.arrow(table).to_pylist()
        for stop in stops.of_kind(kind):
            row = rows[stops.columns["row"][stop]]
            if "seq" in row:
                assert row["seq"] == stops.seq[stop]
                # The model itself has an empty path: its class names it.
                name = row["name"] or row["class_name"]
                assert stops.names[stops.columns["name"][stop]] == name


def test_what_runs_beside_the_main_thread_stays_below_its_parent():
    rows = {
        "calls": [event(0, -1, 0, "resolve", "load", 0, 10) | {"kind": "from_pretrained"}],
        "spans": [
            event(1, 0, 0, "place", "placing", 1, 8),
            event(3, 1, 0, "place", "set", 4, 1),
            event(4, 0, 0, "tie", "tying", 9, 1),
        ],
        # Read by a worker for the call, between two spans of the main thread.
        "tensor_loads": [event(2, 0, 0, "tensor_load", "weight", 2, 5) | {"thread": "worker"}],
    }
    stops = stops_of(make_trace(rows))
    names = [name for _, name in told(stops)]
    assert names == ["load", "placing", "set", "weight", "tying"]
    assert stops.threads[stops.columns["thread"][3]] == "worker"
    assert stops.columns["last"].tolist() == [4, 2, 2, 3, 4]


def test_an_event_whose_parent_was_dropped_hangs_below_its_call():
    rows = {
        "calls": [event(0, -1, 0, "resolve", "load", 0, 10) | {"kind": "from_pretrained"}],
        "spans": [event(5, 3, 0, "place", "orphan", 1, 8), event(6, 7, 9, "tie", "lost", 3, 1)],
    }
    stops = stops_of(make_trace(rows))
    assert stops.columns["parent"].tolist() == [-1, 0, -1]


def test_a_token_comes_when_its_forward_has_ended():
    stops = stops_of(make_trace(coherent_rows()))
    columns = stops.columns
    for stop in columns["token_stop"]:
        forward = columns["parent"][stop]
        assert columns["start"][stop] == pytest.approx(
            columns["start"][forward] + columns["duration"][forward]
        )
        assert columns["thread"][stop] == columns["thread"][forward]


def test_what_happens_in_a_forward_knows_its_step():
    rows = coherent_rows()
    step = rows["steps"][1]
    inner = event(9_000, step["seq"], step["call"], "decode", "helper", 500, 1)
    rows["spans"].append(inner)
    stops = stops_of(make_trace(rows))
    (place,) = stops.of_seqs([9_000])
    assert stops.columns["step"][place] == step["step"]


def test_an_open_span_has_no_duration(tmp_path):
    left_behind(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        replay = Replay(open_trace(tmp_path / "run"))
    durations, status = (replay.stops.columns[name] for name in ("duration", "status"))
    assert np.isnan(durations[status == 2]).all()
    assert (status == 2).sum() == 2
    assert replay.header["ended"] == "interrupted"
    assert [mark["key"] for mark in replay.header["marks"]] == ["interrupted"]
    for stop in range(len(replay.stops)):
        replay.detail(stop)


def test_an_empty_trace_has_no_stops():
    replay = Replay(make_trace({}))
    assert replay.header["count"] == 0
    assert replay.marks == []


def test_a_trace_that_lost_a_table_is_played_without_it(tmp_path):
    make_trace(coherent_rows(), tmp_path / "run")
    (tmp_path / "run" / "modules.parquet").unlink()
    with pytest.warns(IncompleteTraceWarning):
        replay = Replay(open_trace(tmp_path / "run"))
    assert len(replay.stops.of_kind("module")) == 0
    for stop in range(len(replay.stops)):
        replay.detail(stop)


def test_ranks_are_threads_apart():
    rows = {
        "calls": [
            event(0, -1, 0, "setup", "generate", 0, 10) | {"kind": "generate"},
            event(2**40, -1, 2**40, "setup", "generate", 0, 10) | {"kind": "generate", "rank": 1},
        ],
        "messages": [event(1, 0, 0, "setup", "log", 1, 0) | {"level": "INFO", "text": "hello"}],
    }
    stops = stops_of(make_trace(rows))
    assert [stops.threads[one] for one in stops.columns["thread"]] == [
        "rank 0 MainThread",
        "rank 0 MainThread",
        "rank 1 MainThread",
    ]


def test_an_unknown_stage_of_a_stranger_is_the_last_one_known():
    rows = {"spans": [event(0, -1, -1, "brewing", "tea", 0, 1)]}
    (stage,) = stops_of(make_trace(rows)).columns["stage"]
    assert list(STAGES)[stage] == "recorder"


def loops_over_rows(function) -> list[int]:
    """Lines of loops in a function; comprehensions count."""
    nodes = ast.walk(ast.parse(inspect.getsource(function)))
    kinds = (ast.For, ast.While, ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.SetComp)
    return [node.lineno for node in nodes if isinstance(node, kinds)]


def test_no_loop_walks_over_rows():
    # What loops, loops over columns, tables, levels or distinct names: each is named here.
    loops = {
        name
        for room in (tree, folds, columns, nodes, index)
        for name, function in inspect.getmembers(room, inspect.isfunction)
        if function.__module__ == room.__name__ and loops_over_rows(function)
    }
    over_few = {
        *("walk", "_levels"),  # levels
        *("folds", "_distinct"),  # distinct names
        *("stops_of", "events_of", "_parents", "_give_times", "_inherited"),  # columns and levels
        *("place_in", "_place_of"),  # batches, distinct stages
        "threads_of",  # distinct pairs of rank and thread
    }
    assert loops <= over_few, loops - over_few


SOME = [
    pytest.param(
        path,
        id=f"{path.parent.name}/{path.stem}",
        marks=[] if number % 6 == 0 else pytest.mark.slow,
    )
    for number, path in enumerate(EVERY_RECORDED)
]


@pytest.mark.parametrize("path", SOME)
def test_every_recorded_run_can_be_walked(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        replay = Replay(open_trace(path))
    columns = replay.stops.columns
    assert (columns["parent"] < np.arange(len(replay.stops))).all()
    for stop in range(0, len(replay.stops), 7):
        assert replay.detail(stop)["row"]["cells"]


def test_a_run_that_was_killed_is_as_long_as_what_came_last(tmp_path):
    left_behind(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteTraceWarning)
        replay = Replay(open_trace(tmp_path))
    assert dict(replay.header["facts"])["run_ns"] == "20.0 ms"


def test_a_name_is_no_longer_than_anyone_reads():
    rows = coherent_rows()
    rows["choices"][0]["text"] = "ha" * 50_000
    rows["tensor_loads"][0]["name"] = "x" * 50_000
    names = stops_of(make_trace(rows)).names
    assert max(map(len, names)) == columns.LONGEST_NAME
