"""CSV: what goes out comes back, one row is one line, and nothing that is not ours is touched."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracer.errors import StorageError, TraceFormatError
from tracer.export.csv import write_csv
from tracer.export.csv_read import read_tables
from tracer.export.parquet import write_parquet
from tracer.export.text import storable_text
from tracer.schema import EVENT_COLUMNS, SCHEMA_VERSION, TABLES
from tracer.storage import Store, arrow_schema, open_store

MANIFEST = {"schema_version": SCHEMA_VERSION, "machine": {"name": "机器"}, "note": "half \udc80"}

TEXTS = [
    "a,b",
    'say "no"',
    "line\nfeed",
    "lone\rreturn",
    "both\r\nends",
    "a\ttab",
    "  leading",
    "trailing  ",
    storable_text("half \ud83d of one"),
    "nul\x00inside",
    "line\u2028separator",
    "paragraph\u2029separator",
    "next\x85line",
    "\ufeffmark",
    "NA",
    "null",
    "None",
    "nan",
    "NaN",
    "Infinity",
    "true",
    "007",
    "1e5",
    "",
    "=1+1",
    "+cmd",
    "-3",
    "@x",
    "\t=1",
    "\\",
    "\\n",
    '"',
    '""',
    "'",
    "😀",
    "你好",
    "\ufffd\ufffd",
    "\x1b[31m",
]
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF)]


def store_of(manifest=MANIFEST, **tables):
    return Store.from_tables(
        manifest,
        {
            name: pyarrow.Table.from_pylist(rows, schema=arrow_schema(name))
            for name, rows in tables.items()
        },
    )


def token_rows(texts):
    return [
        {
            "event": 1,
            "call": 1,
            "rank": 0,
            "row": 0,
            "index": n,
            "token_id": n,
            "text": text,
        }
        for n, text in enumerate(texts)
    ]


def event(seq, **cells):
    common = {"seq": seq, "parent": -1, "call": -1, "stage": "setup", "name": f"event {seq}"}
    return {**common, "start_ns": seq, "thread": "Main", "rank": 0, "status": "ok", **cells}


def written_and_read(store, folder):
    write_csv(store, folder)
    manifest, tables = read_tables(folder)
    for name in store.tables():
        assert tables[name].schema == arrow_schema(name)
    return manifest, tables


def cells_with_bits(table):
    """Cells in a form in which NaN equals itself and 0.0 does not equal -0.0."""
    return [
        {key: repr(value) if isinstance(value, float) else value for key, value in row.items()}
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize("position", ["alone", "first", "last", "between", "repeated"])
@pytest.mark.parametrize("text", [*TEXTS, None])
def test_every_text_comes_back_in_every_position(tmp_path, text, position):
    texts = {
        "alone": [text],
        "first": [text, "x", None],
        "last": ["x", None, text],
        "between": ["", text, "y"],
        "repeated": [text] * 3,
    }[position]
    store = store_of(tokens=token_rows(texts))
    _, tables = written_and_read(store, tmp_path)
    assert tables["tokens"]["text"].to_pylist() == texts
    assert tables["tokens"].equals(store.read("tokens"))


@pytest.mark.parametrize("column", ["vocab", "text", "bytes_hex", "kind"])
def test_every_text_comes_back_in_every_text_column(tmp_path, column):
    rows = [{**row, "text": None, column: row["text"]} for row in token_rows(TEXTS)]
    store = store_of(tokens=rows)
    _, tables = written_and_read(store, tmp_path)
    assert tables["tokens"].equals(store.read("tokens"))


def test_a_row_is_a_line_whatever_its_cells_hold(tmp_path):
    texts = TEXTS + CONTROLS
    write_csv(store_of(tokens=token_rows(texts)), tmp_path)
    content = (tmp_path / "tokens.csv").read_bytes()
    assert content.count(b"\n") == len(texts) + 1
    assert len(content.decode().splitlines()) == len(texts) + 1
    assert not set(CONTROLS) - {"\n"} & set(content.decode())


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts=st.lists(st.none() | st.text(), min_size=1, max_size=8))
def test_any_text_comes_back(tmp_path, texts):
    stored = [None if text is None else storable_text(text) for text in texts]
    store = store_of(tokens=token_rows(stored))
    _, tables = written_and_read(store, tmp_path)
    assert tables["tokens"]["text"].to_pylist() == stored
    assert len((tmp_path / "tokens.csv").read_text().splitlines()) == len(texts) + 1


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    reals=st.lists(st.none() | st.floats(), min_size=1, max_size=8),
    integer=st.none() | st.integers(-(2**63), 2**63 - 1),
)
def test_any_number_comes_back_to_the_last_bit(tmp_path, reals, integer):
    rows = [event(n, mean=real, nonfinite=integer) for n, real in enumerate(reals)]
    store = store_of(modules=rows)
    _, tables = written_and_read(store, tmp_path)
    assert cells_with_bits(tables["modules"]) == cells_with_bits(store.read("modules"))


def test_not_a_number_infinity_and_missing_stay_three_things(tmp_path):
    reals = [math.nan, math.inf, -math.inf, None, 0.5]
    write_csv(store_of(modules=[event(n, mean=real) for n, real in enumerate(reals)]), tmp_path)
    with (tmp_path / "modules.csv").open(newline="") as file:
        assert [row["mean"] for row in csv.DictReader(file)] == [
            "NaN",
            "Infinity",
            "-Infinity",
            "",
            "0.5",
        ]
    _, tables = read_tables(tmp_path)
    mean = tables["modules"]["mean"]
    assert mean.null_count == 1
    assert np.array_equal(mean.to_pylist()[:3], reals[:3], equal_nan=True)


def test_numbers_and_booleans_stand_bare_and_text_is_a_quoted_literal(tmp_path):
    row = {**token_rows(['a"b'])[0], "token_id": 2**62 + 1, "attended": True, "vocab": ""}
    write_csv(store_of(tokens=[row]), tmp_path)
    header, line = (tmp_path / "tokens.csv").read_text().splitlines()
    assert header == ",".join(TABLES["tokens"].column_names)
    assert line == f'1,1,0,0,0,,{2**62 + 1},"""""",,"""a\\""b""",,,,,true,,,'


def test_integers_with_gaps_stay_integers(tmp_path):
    large = 2**63 - 1
    store = store_of(tokens=[{**row, "image": None} for row in token_rows(["a", "b"])])
    store = store_of(tokens=[*store.read("tokens").to_pylist(), {"image": large}])
    _, tables = written_and_read(store, tmp_path)
    assert tables["tokens"]["image"].to_pylist() == [None, None, large]
    assert tables["tokens"].schema.field("image").type == pyarrow.int64()


@pytest.mark.parametrize("values", [b"", b'\x00\xff\n\r,"', bytes(range(256)) * 9, None])
def test_bytes_come_back(tmp_path, values):
    store = store_of(logits=[{"call": 1, "step": 0, "row": 0, "dtype": "bf16", "values": values}])
    _, tables = written_and_read(store, tmp_path)
    assert tables["logits"]["values"].to_pylist() == [values]


def test_chinese_stays_readable_in_the_file(tmp_path):
    write_csv(store_of(tokens=token_rows(["你好"])), tmp_path)
    assert '"""你好"""' in (tmp_path / "tokens.csv").read_text(encoding="utf-8")


def test_text_that_is_no_unicode_is_stored_with_its_surrogates_escaped():
    assert storable_text("a\udc80b") == "a\\udc80b"
    assert storable_text("你好 😀") == "你好 😀"


def test_manifest_comes_back_as_it_was(tmp_path):
    store = store_of(tokens=token_rows(["a"]))
    manifest, _ = written_and_read(store, tmp_path)
    assert manifest == store.manifest


def test_only_tables_with_rows_get_a_file(tmp_path):
    write_csv(store_of(tokens=token_rows(["a"]), images=[]), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokens.csv", "events.csv", "manifest.json"}


def test_events_are_the_union_of_the_event_tables_in_order_of_seq(tmp_path):
    tables = {"calls": [event(0), event(9)], "spans": [event(5), event(2)], "memory": [event(7)]}
    write_csv(store_of(**tables), tmp_path)
    frame = read_by_pandas(tmp_path / "events.csv")
    assert list(frame.columns) == [*(column.name for column in EVENT_COLUMNS), "table"]
    assert frame["seq"].tolist() == [0, 2, 5, 7, 9]
    assert frame["table"].tolist() == ["calls", "spans", "spans", "memory", "calls"]
    assert frame["name"].tolist() == [f"event {seq}" for seq in (0, 2, 5, 7, 9)]


def test_events_are_sorted_across_batches_that_end_in_another_order(tmp_path):
    rows = 150_000  # more than two batches, each window of rows in the order of their ends
    seqs = np.arange(1, rows + 1)
    windows = np.concatenate([part[::-1] for part in np.split(seqs, 30)])
    schema = arrow_schema("modules")
    columns = {"seq": windows, "parent": windows - 1}
    modules = pyarrow.table(
        [pyarrow.array(columns[f.name]) if f.name in columns else pyarrow.nulls(rows, f.type)
         for f in schema],
        schema=schema,
    )  # fmt: skip
    calls = pyarrow.Table.from_pylist([event(rows + 1), event(0)], schema=arrow_schema("calls"))
    write_csv(Store.from_tables(MANIFEST, {"modules": modules, "calls": calls}), tmp_path)
    frame = pandas.read_csv(tmp_path / "events.csv", usecols=["seq", "parent"])
    assert frame["seq"].tolist() == list(range(rows + 2))
    assert (frame["parent"][1:-1] == frame["seq"][1:-1] - 1).all()


def read_by_pandas(path):
    """The call that the module's documentation names."""
    frame = pandas.read_csv(
        path, keep_default_na=False, na_values=["", "NaN"], dtype_backend="numpy_nullable"
    )
    for column in frame.columns[frame.dtypes == "string"]:
        frame[column] = frame[column].map(json.loads, na_action="ignore")
    return frame


def test_the_documented_pandas_call_reads_the_same_cells(tmp_path):
    texts = [*TEXTS, None]
    rows = [
        {**row, "image": 2**62 + 1 if n % 2 else None} for n, row in enumerate(token_rows(texts))
    ]
    write_csv(store_of(tokens=rows), tmp_path)
    frame = read_by_pandas(tmp_path / "tokens.csv")
    assert [None if pandas.isna(text) else text for text in frame["text"]] == texts
    assert frame["image"].dtype == "Int64"
    assert frame["image"].dropna().unique().tolist() == [2**62 + 1]


def test_the_documented_pandas_call_reads_infinity_as_a_number(tmp_path):
    reals = [math.inf, -math.inf, math.nan, None, 0.1]
    write_csv(store_of(modules=[event(n, mean=real) for n, real in enumerate(reals)]), tmp_path)
    mean = read_by_pandas(tmp_path / "modules.csv")["mean"]
    assert mean.dtype == "Float64"
    assert mean.dropna().tolist() == [math.inf, -math.inf, 0.1]


def excel_cells(folder, table, column):
    with (folder / f"{table}.csv").open(encoding="utf-8-sig", newline="") as file:
        return [row[column] for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("-3", "'-3"),
        ("@x", "'@x"),
        ("\t=1", "'\t=1"),
        ("\n=1", "'\n=1"),
        ("\r=1", "'\\u000d=1"),
        ("＝1+1", "'＝1+1"),
        ("＠x", "'＠x"),
        ("'=1", "''=1"),
        ("你好", "你好"),
        ('say "no", twice', 'say "no", twice'),
        ("two\nlines", "two\nlines"),
        ("nul\x00", "nul\\u0000"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_excel_shows_plain_text_and_guards_formulas(tmp_path, text, shown):
    write_csv(store_of(tokens=token_rows([text])), tmp_path, excel=True)
    assert excel_cells(tmp_path, "tokens", "text") == [shown]


def test_excel_leaves_negative_numbers_numbers(tmp_path):
    write_csv(store_of(modules=[event(1, mean=-0.5)]), tmp_path, excel=True)
    content = (tmp_path / "modules.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbfseq,")
    assert b",-0.5," in content
    assert excel_cells(tmp_path, "modules", "parent") == ["-1"]


def test_excel_cells_fit_a_spreadsheet(tmp_path):
    rows = [{"call": 1, "step": 0, "row": 0, "values": bytes(50_000)}]
    store = store_of(tokens=token_rows(["=" * 40_000]), logits=rows)
    write_csv(store, tmp_path, excel=True)
    (text,) = excel_cells(tmp_path, "tokens", "text")
    assert len(text) <= 32_767
    assert "(40000 characters;" in text
    assert excel_cells(tmp_path, "logits", "values") == ["(50000 bytes)"]


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_an_earlier_export_is_replaced_whole(tmp_path, write):
    write(store_of(tokens=token_rows(["a"]), calls=[event(0)]), tmp_path)
    (tmp_path / "mine.txt").write_text("kept")
    write(store_of(images=[{"event": 1, "kind": "image", "index": 0}]), tmp_path)
    left = {path.stem for path in tmp_path.iterdir()} - {"events"}
    assert left == {"images", "manifest", "mine"}


@pytest.mark.parametrize("write", [write_csv, write_parquet])
@pytest.mark.parametrize(
    "files",
    [
        {"notes.txt": "mine"},
        {"manifest.json": "{}"},
        {"manifest.json": "no JSON"},
        {"manifest.json": '{"export": {"files": ["../tokens.csv"]}}'},
        {"manifest.json": '{"schema_version": 1, "state": "complete"}', "tokens.parquet": "x"},
    ],
)
def test_a_strangers_folder_is_left_alone(tmp_path, write, files):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(StorageError, match="no earlier export"):
        write(store_of(tokens=token_rows(["a"])), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_a_strangers_file_in_an_earlier_export_is_left_alone(tmp_path):
    write_csv(store_of(calls=[event(0)]), tmp_path)
    (tmp_path / "tokens.csv").write_text("mine")
    with pytest.raises(StorageError, match=r"tokens\.csv"):
        write_csv(store_of(tokens=token_rows(["a"])), tmp_path)
    assert (tmp_path / "tokens.csv").read_text() == "mine"
    assert (tmp_path / "calls.csv").exists()


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_a_file_is_no_place_for_an_export(tmp_path, write):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(StorageError, match="is a file"):
        write(store_of(tokens=token_rows(["a"])), path)
    with pytest.raises(StorageError):
        write(store_of(tokens=token_rows(["a"])), path / "below")
    assert path.read_text() == "mine"


def test_parquet_files_hold_the_same_rows(tmp_path):
    store = store_of(tokens=token_rows(TEXTS), calls=[event(0)])
    assert write_parquet(store, tmp_path / "deep" / "folder") == tmp_path / "deep" / "folder"
    for table in ("tokens", "calls"):
        read = pyarrow.parquet.read_table(tmp_path / "deep" / "folder" / f"{table}.parquet")
        assert read.equals(store.read(table))


def edit(folder: Path, change):
    path = folder / "tokens.csv"
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.replace(b'"""c"""', b'"""c""",7'), r"tokens\.csv, line 4: .*columns"),
        (lambda data: data.replace(b'"""c"""', b'"""c'), r"tokens\.csv, line 4: .*columns"),
        (lambda data: data.replace(b'"""b"""', b"plain"), r"line 3: text: 'plain' is no JSON"),
        (lambda data: data.replace(b'"""b"""', b"7"), r"line 3: text: '7' is no JSON string"),
        (lambda data: data.replace(b"1,1,0,0,2", b"1,1,0,0,two"), r"line 4: .*int64.*'two'"),
        (lambda data: data.replace(b"b", b"\xff", 1), r"tokens\.csv, line 1: the header"),
        (lambda data: data.replace(b'"""b"""', b'"""\xff"""'), r"line 3: .*UTF8"),
        (lambda data: data.replace(b"token_id", b"id"), r"line 1: the header"),
        (lambda data: b"\xef\xbb\xbf" + data, r"line 1: it begins with a byte order mark"),
        (lambda data: data[:-1], r"tokens\.csv: the last line does not end"),
        (lambda data: b"", r"line 1: the header"),
        (lambda data: data[: data.rindex(b"\n", 0, -1) + 1], r"has 2 rows, but 3 were written"),
    ],
)
def test_a_changed_file_is_refused_with_file_and_line(tmp_path, change, message):
    write_csv(store_of(tokens=token_rows(["a", "b", "c"])), tmp_path)
    edit(tmp_path, change)
    with pytest.raises(TraceFormatError, match=message):
        read_tables(tmp_path)


def test_line_ends_of_another_system_do_no_harm(tmp_path):
    store = store_of(tokens=token_rows(["a", "b\r\nc"]))
    write_csv(store, tmp_path)
    edit(tmp_path, lambda data: data.replace(b"\n", b"\r\n"))
    _, tables = read_tables(tmp_path)
    assert tables["tokens"].equals(store.read("tokens"))


def test_an_excel_export_is_refused(tmp_path):
    write_csv(store_of(tokens=token_rows(["a"])), tmp_path, excel=True)
    with pytest.raises(TraceFormatError, match="'excel'"):
        read_tables(tmp_path)


def test_a_newer_schema_is_refused(tmp_path):
    newer = {**MANIFEST, "schema_version": SCHEMA_VERSION + 1}
    write_csv(store_of(newer, tokens=token_rows(["a"])), tmp_path)
    with pytest.raises(TraceFormatError, match=f"schema version {SCHEMA_VERSION + 1}"):
        read_tables(tmp_path)


@pytest.mark.parametrize("files", [{}, {"tokens.csv": "a,b\n"}, {"manifest.json": "{}"}])
def test_a_foreign_folder_is_refused(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(TraceFormatError, match=r"manifest\.json"):
        read_tables(tmp_path)
    with pytest.raises(TraceFormatError, match=r"manifest\.json"):
        read_tables(tmp_path / "nowhere")


def test_a_missing_file_is_refused_by_name(tmp_path):
    write_csv(store_of(tokens=token_rows(["a"])), tmp_path)
    (tmp_path / "tokens.csv").unlink()
    with pytest.raises(TraceFormatError, match=r"tokens\.csv is missing"):
        read_tables(tmp_path)


def test_an_export_cut_short_says_so_and_can_be_repeated(tmp_path):
    class Failing(Store):
        def batches(self, table, columns=None, where=None, *, encoded=False):
            yield from super().batches(table, columns, where, encoded=encoded)
            raise KeyboardInterrupt

    tables = {"tokens": store_of(tokens=token_rows(["a"])).read("tokens")}
    with pytest.raises(KeyboardInterrupt):
        write_csv(Failing.from_tables(MANIFEST, tables), tmp_path)
    with pytest.raises(TraceFormatError, match="did not finish"):
        read_tables(tmp_path)
    write_csv(Store.from_tables(MANIFEST, tables), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        write_csv(Failing.from_tables(MANIFEST, tables), tmp_path)
    assert read_tables(tmp_path)[1]["tokens"].num_rows == 1
    assert {path.name for path in tmp_path.iterdir()} == {
        "tokens.csv",
        "events.csv",
        "manifest.json",
    }


def test_a_trace_can_be_exported_to_the_folder_that_it_is_read_from(tmp_path):
    rows = store_of(tokens=token_rows(TEXTS))
    write_parquet(rows, tmp_path)
    write_parquet(open_store(tmp_path), tmp_path)
    assert open_store(tmp_path).read("tokens").equals(rows.read("tokens"))
    with pytest.raises(StorageError, match="holds a parquet export"):
        write_csv(open_store(tmp_path), tmp_path)


def test_an_excel_export_may_take_the_place_of_a_csv_export_and_back(tmp_path):
    store = store_of(tokens=token_rows(TEXTS))
    write_csv(store, tmp_path)
    write_csv(store, tmp_path, excel=True)
    assert written_and_read(store, tmp_path)[1]["tokens"].equals(store.read("tokens"))


def test_many_rows_come_back_in_order(tmp_path):
    rows = 200_001
    ids = pyarrow.array(np.arange(rows))
    texts = pyarrow.array(["a", None, "b\n", ""]).take(pyarrow.array(np.arange(rows) % 4))
    columns = {"index": ids, "text": texts}
    schema = arrow_schema("tokens")
    table = pyarrow.table(
        [columns.get(field.name, pyarrow.nulls(rows, field.type)) for field in schema],
        schema=schema,
    )
    _, tables = written_and_read(Store.from_tables(MANIFEST, {"tokens": table}), tmp_path)
    assert tables["tokens"].equals(table)


def test_wide_rows_are_written_in_small_pieces(tmp_path):
    values = [bytes([n]) * 3_000_000 for n in range(12)]
    rows = [{"call": 1, "step": n, "row": 0, "values": cell} for n, cell in enumerate(values)]
    _, tables = written_and_read(store_of(logits=rows), tmp_path)
    assert tables["logits"]["values"].to_pylist() == values


def test_a_written_literal_is_what_json_reads(tmp_path):
    write_csv(store_of(tokens=token_rows(TEXTS)), tmp_path)
    content = (tmp_path / "tokens.csv").read_text(encoding="utf-8")
    literals = [row["text"] for row in csv.DictReader(io.StringIO(content, newline=""))]
    assert [json.loads(literal) for literal in literals] == TEXTS
