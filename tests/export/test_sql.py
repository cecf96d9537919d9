"""Two hundred traces in a folder are tables of one database, as DuckDB reads them."""

import importlib.util
import shutil

import pytest
from synthetic import coherent_rows, make_trace

import tracer
from tracer.errors import TracerError
from tracer.export.sql import views_sql

TRACES = 200
TABLES = ("calls", "steps", "choices")
MS = 1_000_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Traces of two generations of the library: in every second one the steps took longer."""
    folder = tmp_path_factory.mktemp("many") / "it's runs"
    kinds = []
    for number, release in enumerate(["5.24.0", "4.57.6"]):
        rows = {table: rows for table, rows in coherent_rows().items() if table in TABLES}
        for step in rows["steps"]:
            step["duration_ns"] += number * MS
        manifest = {"versions": {"transformers": release}, "options": {"detail": "layers"}}
        manifest |= {"recorder": {"share": 0.01}, "ended": "completed", "duration_ns": 5}
        kinds.append(tmp_path_factory.mktemp("kind") / release)
        make_trace(rows, kinds[-1], manifest)
    for number in range(TRACES):
        shutil.copytree(kinds[number % 2], folder / f"day-{number % 7}" / f"run-{number:03}")
    return folder


@pytest.fixture(scope="module")
def database(runs):
    if importlib.util.find_spec("duckdb") is None:
        pytest.skip("duckdb is not installed; pip install duckdb")
    connection = importlib.import_module("duckdb").connect()
    connection.execute(views_sql(runs))
    yield connection
    connection.close()


def test_every_trace_is_a_run_with_its_rows(database, runs):
    counts = dict(database.sql("select run, count(*) from steps group by run").fetchall())
    assert len(counts) == TRACES
    assert set(counts.values()) == {4}
    trace = tracer.open_trace(runs / "day-3" / "run-003")
    assert counts["day-3/run-003"] == trace.rows("steps")


def test_columns_are_those_of_the_trace(database, runs):
    trace = tracer.open_trace(runs / "day-0" / "run-000")
    for table in TABLES:
        made = database.sql(f"select * from {table} where run = 'day-0/run-000'").to_arrow_table()
        assert made.column_names == ["run", *trace[table].columns]
        assert made["duration_ns" if table != "choices" else "token_id"].to_pylist() == (
            trace.arrow(table)["duration_ns" if table != "choices" else "token_id"].to_pylist()
        )


def test_runs_are_compared_by_what_their_manifests_say(database):
    slower = database.sql(
        """
        select versions->>'transformers' as release, count(distinct run) as runs,
               median(duration_ns) as step_ns
        from steps join manifests using (run) where kind = 'decode'
        group by release order by step_ns
        """
    ).fetchall()
    assert slower == [("5.24.0", 100, 10 * MS), ("4.57.6", 100, 11 * MS)]
    shares = database.sql("select distinct (recorder->>'share')::double from manifests").fetchall()
    assert shares == [(0.01,)]


def test_a_folder_without_a_trace_is_said(tmp_path):
    with pytest.raises(TracerError, match="no closed trace below"):
        views_sql(tmp_path)


def test_a_name_that_is_a_pattern_is_said(tmp_path):
    with pytest.raises(TracerError, match="pattern"):
        views_sql(tmp_path / "runs [old]")


def test_it_needs_no_database(runs):
    text = views_sql(runs)
    assert text.count("create or replace view") == len(TABLES) + 1
    assert "it''s runs" in text
