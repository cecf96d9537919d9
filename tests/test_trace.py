"""A trace for people: frames with honest types, events, equality; and numbers as people read."""

import math

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from synthetic import coherent_rows, make_trace

from tracer.errors import TraceFormatError, TracerError
from tracer.frames import frame_of_batches, to_frame
from tracer.schema import EVENT_TABLES, TABLES
from tracer.storage import Store, arrow_schema
from tracer.trace import Trace, open_trace, read_csv
from tracer.views.labels import (
    aligned,
    bytes_label,
    count_label,
    duration_label,
    shape_label,
    share_label,
)


@pytest.fixture
def rows():
    """Rows of the coherent trace, to be changed."""
    return coherent_rows()


@pytest.fixture(scope="module")
def trace():
    """The coherent trace in memory; nothing changes a trace."""
    return make_trace(coherent_rows())


DTYPES = {
    "integer": "Int64",
    "boolean": "boolean",
    "text": "string",
    "json": "string",
    "real": "double[pyarrow]",
    "bytes": "binary[pyarrow]",
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_table_has_all_schema_columns_in_order_and_type(trace, table, is_empty):
    frame = make_trace({})[table] if is_empty else trace[table]
    expected = {column.name: DTYPES[column.kind] for column in TABLES[table].columns}
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == expected
    assert list(frame.columns) == TABLES[table].column_names


def test_nan_infinity_and_missing_stay_three_things(rows):
    scores = [math.nan, math.inf, None, 0.5]
    for choice, score in zip(rows["choices"], scores, strict=True):
        choice["score"] = score
    column = make_trace(rows)["choices"]["score"]
    assert list(column.isna()) == [False, False, True, False]
    assert pa.array(column).to_pylist()[1:] == [math.inf, None, 0.5]
    assert math.isnan(column[0])


def test_missing_text_is_not_empty_text(rows):
    rows["choices"][0]["text"] = ""
    rows["choices"][1]["text"] = None
    text = make_trace(rows)["choices"]["text"]
    assert text[0] == ""
    assert text[1] is pd.NA


def test_integers_beyond_doubles_are_exact(rows):
    rows["files"][0]["size_bytes"] = 2**53 + 1
    rows["files"][1]["size_bytes"] = None
    sizes = make_trace(rows)["files"]["size_bytes"]
    assert sizes[0] == 2**53 + 1
    assert sizes[1] is pd.NA


def test_tables_are_those_with_rows_and_without_events(trace, rows):
    assert trace.tables == [name for name in TABLES if rows.get(name)]
    assert trace.rows("tokens") == len(rows["tokens"])
    assert trace.rows("faults") == 0
    assert trace.rows("events") == sum(len(rows.get(name, [])) for name in EVENT_TABLES)


def test_events_are_the_common_columns_of_all_event_tables_by_seq(trace, rows):
    events = trace["events"]
    expected = sorted((row["seq"], name) for name in EVENT_TABLES for row in rows.get(name, []))
    assert list(zip(events["seq"], events["table"], strict=True)) == expected
    assert list(events.columns) == [*TABLES["calls"].column_names[:10], "table"]
    assert make_trace({})["events"].dtypes.equals(events.dtypes)


@pytest.mark.parametrize(
    "where",
    [
        [("table", "==", "steps"), ("name", "!=", "step 0")],
        (pc.field("table") == "steps") & (pc.field("name") != "step 0"),
    ],
)
def test_events_can_be_read_in_part(trace, where):
    frame = trace.read("events", ["name", "table"], where, limit=2)
    assert frame.to_dict("list") == {"name": ["step 1", "step 2"], "table": ["steps", "steps"]}


def test_a_table_is_in_order_of_start_even_where_it_is_stored_otherwise(rows):
    calls = pa.Table.from_pylist(
        [{"seq": 3, "name": "inner"}, {"seq": 1, "name": "outer"}], schema=arrow_schema("calls")
    )
    trace = Trace(Store.from_tables({}, {"calls": calls}))
    assert list(trace["calls"]["name"]) == ["outer", "inner"]
    assert list(trace.read("calls")["name"]) == ["inner", "outer"]


def test_a_large_table_has_the_same_frame_as_a_small_one(tmp_path):
    """Beyond some rows a frame is filled batch by batch."""
    few = [
        {"index": 2**53 + 1, "kind": "image", "mode": None, "fps": math.nan, "fps_known": True},
        {"index": None, "kind": "", "mode": "RGB", "fps": None, "fps_known": None},
        {"index": -1, "kind": "视频", "mode": "L", "fps": 0.5, "fps_known": False},
    ]
    schema = arrow_schema("images")
    small = pa.Table.from_pylist(few, schema=schema)
    rows = pa.array([row % 3 for row in range(300_000)])
    for trace in (
        Trace(Store.from_tables({}, {"images": small.take(rows)})),
        open_trace(Trace(Store.from_tables({}, {"images": small.take(rows)})).save(tmp_path / "x")),
    ):
        for columns in (None, ["kind", "index"], ["index", "index"]):
            expected = to_frame(small.take(rows).select(columns or schema.names))
            pd.testing.assert_frame_equal(trace.read("images", columns), expected)
        with pytest.raises(KeyError, match="'indx'"):
            trace.read("images", ["indx"])


def test_a_table_that_has_not_the_rows_that_it_tells_is_damaged():
    schema = arrow_schema("stacks")
    batch = pa.RecordBatch.from_pylist([{"stack": "k1"}], schema=schema)
    for told in (0, 2):
        with pytest.raises(TraceFormatError, match="damaged"):
            frame_of_batches(schema, [batch], told)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda trace: trace["event"], "'event'; did you mean one of: events"),
        (lambda trace: trace["cals"], "'cals'; did you mean one of: calls"),
        (lambda trace: trace["zzzz"], "cache_layers, calls"),
        (lambda trace: trace.read("events", ["nam"]), "'nam'; did you mean one of: name"),
        (lambda trace: trace.read("events", where=[("tabl", "==", 1)]), "one of: table"),
    ],
)
def test_an_unknown_name_is_a_key_error_with_the_close_ones(trace, ask, message):
    with pytest.raises(KeyError, match=message) as caught:
        ask(trace)
    assert isinstance(caught.value, TracerError)


def test_csv_and_parquet_give_back_the_same_cells(rows, tmp_path):
    rows["choices"][0] |= {"score": math.nan, "text": '一,\n"é"\u2028', "raw_logprob": -math.inf}
    trace = make_trace(rows)
    assert read_csv(trace.to_csv(tmp_path / "csv")).equals(trace)
    assert open_trace(trace.to_parquet(tmp_path / "parquet")).equals(trace)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("choices", "score", 0.1), ("choices", "score", None), ("choices", "text", "other")],
)
def test_equality_sees_one_changed_cell(rows, trace, table, column, value):
    assert make_trace(coherent_rows()).equals(trace)
    rows[table][0][column] = value
    assert not make_trace(rows).equals(trace)


def test_equality_sees_one_changed_cell_of_many():
    cells = [{"seq": seq, "reason": "same"} for seq in range(20_000)]
    trace = make_trace({"faults": cells})
    assert make_trace({"faults": cells}).equals(trace)
    assert not make_trace({"faults": cells[:-1]}).equals(trace)
    assert not make_trace({"faults": [*cells[:-1], cells[-1] | {"reason": "other"}]}).equals(trace)


def test_equality_tells_nan_from_missing(rows):
    rows["choices"][0]["score"] = math.nan
    with_nan = make_trace(rows)
    assert with_nan.equals(make_trace(rows))
    rows["choices"][0]["score"] = None
    assert not with_nan.equals(make_trace(rows))


def test_a_coherent_trace_passes_its_audit(trace):
    verdicts = trace.audit()
    assert "broken" not in set(verdicts["verdict"])
    assert "holds" in set(verdicts["verdict"])


@pytest.mark.parametrize(
    ("label", "value", "text"),
    [
        (bytes_label, 0, "0 B"),
        (bytes_label, 999, "999 B"),
        (bytes_label, 1_000, "1.00 kB"),
        (bytes_label, 999_999, "1.00 MB"),
        (bytes_label, 16_584_333_312, "16.6 GB"),
        (bytes_label, None, "-"),
        (duration_label, 850, "850 ns"),
        (duration_label, 2_300, "2.30 µs"),
        (duration_label, 61_000_000, "61.0 ms"),
        (duration_label, 99_940_000_000, "99.9 s"),
        (duration_label, 125_000_000_000, "2 min 05 s"),
        (duration_label, 3_720_000_000_000, "1 h 02 min"),
        (duration_label, pd.NA, "-"),
        (count_label, 8_292_166_656, "8,292,166,656"),
        (count_label, math.nan, "-"),
        (shape_label, "[1, 3602, 3584]", "1 × 3602 × 3584"),
        (shape_label, [], "scalar"),
        (shape_label, None, "-"),
    ],
)
def test_numbers_read_like_people_write_them(label, value, text):
    assert label(value) == text


def test_a_share_of_nothing_is_missing():
    assert share_label(31, 1_000) == "3.1 %"
    assert share_label(1, 0) == "-"


def test_columns_are_aligned_and_numbers_to_the_right():
    assert aligned([["a", "10"], ["bcd", "9"], ["e"]], right=(1,), indent="") == (
        "a    10\nbcd   9\ne"
    )
