"""A trace for people: frames with honest types, events, a summary, a copy that can be shared."""

import json
import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from synthetic import GENERATED, MANIFEST, coherent_rows, make_trace

from tracer.errors import TracerError
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


@pytest.fixture
def trace(rows):
    """The coherent trace in memory."""
    return make_trace(rows)


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


# --- summary --------------------------------------------------------------------------------


def test_the_summary_tells_the_run_in_thirty_lines(trace):
    text = trace.summary()
    assert text.startswith("Trace complete.\n2 calls, 1 model, ")
    for line in [
        r"#0   from_pretrained  m1   100 ms  ok",
        r"m1  TinyForCausalLM  120 parameters  488 B  float32  sdpa",
        r"tensor_load  6  24.0 ms  480 B",
        r"decode       3  30.0 ms",
        r"Faults: none recorded",
    ]:
        assert line in text
    assert "tokens 12" in text
    assert len(text.splitlines()) <= 32


def test_time_inside_a_span_of_the_same_stage_counts_once(rows):
    outer = next(span for span in rows["spans"] if span["stage"] == "config")
    rows["spans"].append(outer | {"seq": 900, "parent": outer["seq"]})
    assert "config       1  10.0 ms" in make_trace(rows).summary()


def test_the_summary_groups_faults(rows):
    rows["faults"] = [
        {"seq": 500 + index, "target": "generate", "reason": "was\ncompiled"} for index in range(3)
    ]
    text = make_trace(rows).summary()
    assert "3 x  generate  was compiled" in text
    assert "none recorded" not in text


def test_the_summary_says_how_the_run_ended(trace, rows):
    ended = make_trace(rows, manifest={**MANIFEST, "ended": "KeyboardInterrupt"})
    assert "How the run ended: KeyboardInterrupt" in ended.summary()
    assert "How the run ended" not in trace.summary()


def test_an_empty_trace_has_a_summary():
    assert "0 calls, 0 models, 0 rows in 0 tables" in make_trace({}).summary()


def test_many_calls_are_counted_not_listed(rows):
    rows["calls"] = [rows["calls"][0] | {"seq": seq} for seq in range(20)]
    assert "... and 14 more" in make_trace(rows).summary()


def test_names_in_the_summary_move_no_cursor_and_end_no_line(rows):
    rows["calls"][0]["name"] = "load\x1b[2J\nnow"
    line = next(line for line in make_trace(rows).summary().splitlines() if "#0" in line)
    assert "\x1b" not in line
    assert "now" in line


def test_html_is_escaped(rows):
    rows["calls"][0]["name"] = "<script>alert(1)</script>"
    page = make_trace(rows)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_repr_is_one_line(trace):
    assert repr(trace) == "<Trace: complete, 22 tables, 107 rows>"


# --- sharing --------------------------------------------------------------------------------

SECRETS = ["zorba", "kazan", "hunter2", "schnee", "laptop", "word5", "banned", "nas01"]


@pytest.fixture
def private(rows):
    """A trace with secrets in every corner."""
    home = "/home/zorba kazan/models"
    rows["models"][0] |= {"asked": f"{home}/tiny", "folder": "C:\\Users\\zorba\\models\\tiny"}
    rows["stacks"][0]["frames"] = [f"{home}/run.py:3 <module>", r"\\nas01\share\x.py:4 main"]
    rows["prompts"] = [{"event": 1, "row": 0, "text": "who is hunter2"}]
    rows["segments"] = [{"event": 1, "row": 0, "start": 0, "end": 3, "text": "hunter2"}]
    rows["messages"] = [{"seq": 700, "level": "warning", "text": "schnee in ~/kazan/x"}]
    rows["faults"] = [
        {"seq": 701, "target": "x", "reason": f"no file '{home}/a.py'", "traceback": "schnee"}
    ]
    rows["settings"].append(
        {"event": 1, "scope": "generate", "setting": "stop_strings", "asked": ["schnee"]}
    )
    rows["chain"].append(
        {"event": 1, "kind": "processor", "index": 0}
        | {"parameters": {"words": ["banned"], "penalty": 1.5}}
    )
    rows["logits"] = [{"event": 1, "step": 0, "row": 0, "dtype": "float32", "values": b"hunter2"}]
    manifest = {
        "machine": {"host": "laptop", "platform": "Linux laptop 6.1", "user": "kazan"},
        "options": {"path": f"{home}/run", "top_k": 2},
        "ended": "ValueError: schnee is no image",
        "argv": ["~/kazan/run.py", "--root=/srv/zorba/x"],
    }
    return make_trace(rows, manifest=manifest)


def plain_bytes(trace, folder):
    """Everything that a trace says, uncompressed, in lower case."""
    trace.to_csv(folder)
    return b"".join(path.read_bytes() for path in Path(folder).iterdir()).lower()


def test_a_scrubbed_trace_holds_no_secret(private, tmp_path):
    before = plain_bytes(private, tmp_path / "before")
    after = plain_bytes(private.scrub(), tmp_path / "after")
    assert [secret for secret in SECRETS if secret.encode() not in before] == []
    assert [secret for secret in SECRETS if secret.encode() in after] == []


def test_a_scrubbed_zip_holds_no_secret_in_its_raw_bytes(private, tmp_path):
    raw = private.scrub().save(tmp_path / "shared.zip").read_bytes().lower()
    assert [secret for secret in SECRETS if secret.encode() in raw] == []


def test_scrubbing_keeps_kinds_counts_and_numbers(private):
    shared = private.scrub()
    assert shared.tables == private.tables
    for table, columns in [
        ("tokens", ["kind", "origin", "position", "attended"]),
        ("choices", ["probability", "raw_rank", "finish"]),
        ("steps", None),
    ]:
        assert shared.arrow(table, columns).equals(private.arrow(table, columns))
    assert shared["tokens"][["token_id", "vocab", "bytes_hex", "text"]].isna().all(axis=None)
    assert json.loads(shared["chain"]["parameters"].iloc[-1]) == {"penalty": 1.5}
    assert shared.manifest["scrubbed"] == ["paths", "host", "text"]
    assert shared.manifest["ended"] == "ValueError"
    assert shared.manifest["options"] == {"path": "<path1>/run", "top_k": 2}
    assert list(private["choices"]["token_id"]) == GENERATED


def test_a_folder_has_one_placeholder_and_names_stay_apart(rows):
    rows["sources"] += [
        {"source": "/home/x/a/model.py:1"},
        {"source": "/home/x/b/model.py:1"},
        {"source": "/home/x/a/other.py:1"},
    ]
    keys = list(make_trace(rows).scrub()["sources"]["source"])
    assert keys[0] == "transformers/modeling_utils.py:3900"
    assert len(set(keys)) == len(keys)
    first, second, third = (key.split("/")[0] for key in keys[2:])
    assert first == third != second


@pytest.mark.parametrize("kept", ["paths", "host", "text"])
def test_what_need_not_be_scrubbed_stays(private, tmp_path, kept):
    said = plain_bytes(private.scrub(**{kept: False}), tmp_path / "csv")
    secret = {"paths": b"/home/zorba kazan", "host": b"laptop", "text": b"who is hunter2"}
    assert {name for name, text in secret.items() if text in said} == {kept}


def test_an_interrupted_trace_stays_interrupted_when_scrubbed(private):
    private.manifest["state"] = "interrupted"
    assert private.scrub().manifest["state"] == "interrupted"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("/home/ada/models/tiny", "<path1>/tiny"),
        ("/home/ada", "<path1>/home"),
        ("C:\\Users\\ada", "<path1>/home"),
        ("open /home/A B/my models/x.py:12 main", "open <path1>/x.py:12 main"),
        ("at '/p/q/z' and '/p/q/y'", "at '<path1>/z' and '<path1>/y'"),
        ("file:///home/x/y.txt", "file:/<path1>/y.txt"),
        ("d:/data/模型/x", "<path1>/x"),
        ("root=/a/b", "root=<path1>/b"),
        ("https://hub.example/org/name", "https://hub.example/org/name"),
        ("org/name", "org/name"),
        ("transformers/models/x.py:3", "transformers/models/x.py:3"),
        ("./run/x/y", "./run/x/y"),
        ("</b></i> 1/2/3", "</b></i> 1/2/3"),
    ],
)
def test_absolute_paths_are_hidden_and_nothing_else(text, hidden):
    trace = make_trace({"faults": [{"seq": 1, "reason": text}]}, manifest={"note": text})
    shared = trace.scrub(host=False, text=False)
    assert shared["faults"]["reason"][0] == hidden
    assert shared.manifest["note"] == hidden


# --- labels ---------------------------------------------------------------------------------


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
