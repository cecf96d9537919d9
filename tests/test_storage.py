"""A stored trace: opened from wherever it lies, hostile files refused, and read lazily."""

import csv
import json
import os
import shutil
import struct
import zipfile

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from synthetic import coherent_rows, make_trace, spans

from tracer.errors import IncompleteTraceWarning, StorageError, TraceFormatError, TracerError
from tracer.journal import Journal
from tracer.schema import SCHEMA_VERSION, TABLES
from tracer.storage import Store, arrow_schema, open_store
from tracer.trace import Trace, open_trace, read_csv


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A closed trace in a folder, for tests that change nothing in it."""
    folder = tmp_path_factory.mktemp("closed") / "run"
    make_trace(coherent_rows(), folder)
    return folder


@pytest.fixture
def saved(closed, tmp_path):
    """A copy of it that a test may damage."""
    return shutil.copytree(closed, tmp_path / "run")


@pytest.mark.parametrize("name", ["saved", "saved.zip"])
def test_a_saved_trace_is_equal(saved, tmp_path, name):
    trace = open_trace(saved)
    assert open_trace(trace.save(tmp_path / name)).equals(trace)


def test_a_trace_in_memory_equals_the_one_on_disk(saved):
    assert make_trace(coherent_rows()).equals(open_trace(saved))


@pytest.mark.parametrize("name", ["saved", "saved.zip"])
def test_saving_over_something_needs_to_be_asked_for(saved, tmp_path, name):
    trace = open_trace(saved)
    trace.save(tmp_path / name)
    with pytest.raises(StorageError, match="if_exists='replace'"):
        trace.save(tmp_path / name)
    assert open_trace(trace.save(tmp_path / name, if_exists="replace")).equals(trace)


def test_a_newer_schema_gets_one_sentence(saved):
    manifest = saved / "manifest.json"
    manifest.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(
        TraceFormatError, match=r"schema version 2 and .* up to 1; update"
    ) as caught:
        open_store(saved)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": "1"}', "[]", "\xff", "[" * 10_000])
def test_a_damaged_manifest_is_named(saved, text):
    (saved / "manifest.json").write_text(text)
    with pytest.raises(TraceFormatError, match=r"manifest\.json"):
        open_store(saved)


@pytest.mark.parametrize("size", [0, 10, 500])
def test_a_torn_parquet_file_is_named_on_opening(saved, size):
    os.truncate(saved / "tokens.parquet", size)
    with pytest.raises(TraceFormatError, match=r"tokens\.parquet"):
        open_store(saved)


@pytest.mark.parametrize("kind", ["nothing", "empty folder", "text file"])
def test_what_is_no_trace_is_refused(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "text file":
        path.write_text("hello")
    with pytest.raises(TraceFormatError):
        open_store(path)


def test_only_asked_columns_are_read(saved):
    """A column whose bytes are destroyed hurts nobody who does not ask for it."""
    file = saved / "tokens.parquet"
    group = pq.ParquetFile(file).metadata.row_group(0)
    chunk = group.column(TABLES["tokens"].column_names.index("vocab"))
    with file.open("r+b") as opened:
        opened.seek(chunk.dictionary_page_offset)
        opened.write(b"\xff" * chunk.total_compressed_size)
    store = open_store(saved)
    assert store.read("tokens", ["token_id"])["token_id"].to_pylist()[:2] == [1, 2]
    with pytest.raises(TraceFormatError, match="tokens"):
        store.read("tokens", ["vocab"])
    with pytest.raises(TraceFormatError, match="tokens"):
        list(store.batches("tokens"))


def test_a_column_that_an_older_version_did_not_write_is_missing(saved):
    file = saved / "calls.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["rng_state"]), file)
    table = open_store(saved).read("calls")
    assert table.schema == arrow_schema("calls")
    assert table["rng_state"].null_count == 2


ADDED = {
    "calls": ["summary"],
    "steps": ["drafted_tokens"],
    "memory": ["minor_faults", "major_faults"],
    "files": ["expected_bytes"],
    "placements": ["verified_because"],
    "chain": ["defined_in", "origin"],
    "tokens": ["part"],
    "images": ["resizes", "helper_fps"],
    "choices": ["drafted_id"],
    "logits": ["offset"],
}
"""Columns that schema version 1 gained after traces had been written with it."""


def _drop_from_parquet(file, names):
    pq.write_table(pq.read_table(file).drop_columns(names), file)


def _drop_from_csv(file, names):
    with file.open(newline="") as text:
        header, *rows = csv.reader(text)
    kept = [place for place, name in enumerate(header) if name not in names]
    with file.open("w", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([row[place] for place in kept] for row in [header, *rows])


OLDER = {
    "parquet": (Trace.save, _drop_from_parquet, open_trace),
    "csv": (Trace.to_csv, _drop_from_csv, read_csv),
}


@pytest.mark.parametrize("form", OLDER)
def test_a_trace_of_an_earlier_lab_opens_with_the_columns_that_it_had(closed, tmp_path, form):
    write, drop, read = OLDER[form]
    trace = open_trace(closed)
    folder = write(trace, tmp_path / "older")
    met = [table for table in ADDED if (folder / f"{table}.{form}").exists()]
    assert len(met) > 5
    for table in met:
        drop(folder / f"{table}.{form}", ADDED[table])
    older = read(folder)
    assert older.tables == trace.tables
    for table in met:
        frame = older[table]
        assert frame[ADDED[table]].isna().all(axis=None)
        others = frame.columns.difference(ADDED[table])
        pd.testing.assert_frame_equal(frame[others], trace[table][others])
    assert older.audit()["check"].tolist() == trace.audit()["check"].tolist()
    assert "broken" not in set(older.audit()["verdict"])
    assert older.summary()


@pytest.fixture(scope="module")
def packed(closed):
    """The closed trace as a zip, for tests that change nothing in it."""
    return open_trace(closed).save(closed.with_name("run.zip"))


@pytest.fixture
def zipped(packed, tmp_path):
    """A copy of it that a test may damage."""
    return shutil.copy(packed, tmp_path / "run.zip")


def repacked(zipped, target, **options):
    """The same members in another zip, written with other options."""
    with zipfile.ZipFile(zipped) as source, zipfile.ZipFile(target, "w", **options) as copy:
        for name in source.namelist():
            copy.writestr(name, source.read(name))
    return target


def test_tables_lie_in_a_zip_as_they_are(zipped):
    with zipfile.ZipFile(zipped) as archive:
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}


def test_strange_members_of_a_zip_are_neither_read_nor_extracted(zipped, tmp_path):
    with zipfile.ZipFile(zipped, "a") as archive:
        for name in ["../escape.parquet", "/etc/evil.parquet", "run.pkl", "x/calls.parquet"]:
            archive.writestr(name, b"\x80\x04cos\nsystem\n")
    before = sorted(tmp_path.parent.rglob("*"))
    trace = open_trace(zipped)
    assert len(trace["calls"]) == 2
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_a_zip_that_was_packed_again_says_what_to_do(zipped, tmp_path):
    packed = repacked(zipped, tmp_path / "again.zip", compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(TraceFormatError, match="unpack it to a folder"):
        open_store(packed)


def test_a_zip_without_manifest_is_no_trace(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("run/manifest.json", "{}")
    with pytest.raises(TraceFormatError, match=r"no manifest\.json at its top"):
        open_store(tmp_path / "x.zip")


def test_a_manifest_that_unpacks_without_end_is_refused(tmp_path):
    with zipfile.ZipFile(
        tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as archive:
        archive.writestr("manifest.json", b" " * (65 * 2**20))
    with pytest.raises(TraceFormatError, match="larger than any manifest"):
        open_store(tmp_path / "bomb.zip")


def test_a_member_that_claims_to_reach_beyond_the_zip_is_refused(zipped):
    data = bytearray(zipped.read_bytes())
    entry = data.rindex(b"PK\x01\x02", 0, data.rindex(b"sources.parquet"))
    data[entry + 20 : entry + 28] = struct.pack("<II", 2**31 - 1, 2**31 - 1)
    zipped.write_bytes(data)
    with pytest.raises(TraceFormatError, match="ends outside the zip"):
        open_store(zipped)


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.99])
def test_a_zip_cut_short_is_refused(zipped, keep):
    os.truncate(zipped, int(zipped.stat().st_size * keep))
    with pytest.raises(TraceFormatError, match=r"run\.zip"):
        open_store(zipped)


@pytest.fixture(params=["folder", "zip", "memory", "tables", "journal"])
def store(request, tmp_path):
    """A hundred spans, wherever they can lie."""
    if request.param == "tables":
        return Store.from_tables({}, {"spans": pa.Table.from_batches([spans(0, 100)])})
    journal = Journal(None if request.param == "memory" else tmp_path / "run")
    journal.append("spans", spans(0, 60))
    journal.append("spans", spans(60, 40))
    if request.param == "journal":
        journal.release()
        return open_store(tmp_path / "run")
    closed = journal.close({})
    return open_store(closed.save(tmp_path / "x.zip")) if request.param == "zip" else closed


def test_reading_gives_schema_columns_or_the_asked_ones(store):
    assert store.tables() == ["spans"]
    assert store.rows("spans") == 100
    assert store.read("spans").schema == arrow_schema("spans")
    assert store.read("spans", ["name", "seq"]).column_names == ["name", "seq"]
    assert store.read("tokens").schema == arrow_schema("tokens")


@pytest.mark.parametrize(
    "where",
    [
        [("seq", ">", 89), ("name", "!=", "span 95")],
        (pc.field("seq") > 89) & (pc.field("name") != "span 95"),
    ],
)
def test_conditions_and_limits_choose_rows(store, where):
    seqs = [*range(90, 95), *range(96, 100)]
    assert store.read("spans", ["seq"], where)["seq"].to_pylist() == seqs
    assert store.read("spans", ["seq"], where, limit=3)["seq"].to_pylist() == seqs[:3]
    batches = store.batches("spans", ["name"], where)
    assert [name for batch in batches for name in batch["name"].to_pylist()] == [
        f"span {seq}" for seq in seqs
    ]


@pytest.mark.parametrize("limit", [0, 1, 70, 1_000])
def test_a_limit_gives_the_first_rows(store, limit):
    assert store.read("spans", ["seq"], limit=limit)["seq"].to_pylist() == list(
        range(min(limit, 100))
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("span",), "'span'; did you mean one of: spans"),
        (("spans", ["nam"]), "'nam'; did you mean one of: name"),
        (("spans", None, [("sq", "==", 1)]), "'sq'; did you mean one of: seq"),
        (("spans", None, [("seq", "~", 1)]), "~"),
        (("spans", None, [("seq", "==", "one")]), "does not fit"),
        (("spans", None, pc.field("nothing") == 1), "does not fit"),
    ],
)
def test_a_wrong_name_or_condition_is_explained(store, arguments, message):
    with pytest.raises(TracerError, match=message):
        store.read(*arguments)


def removed(place, table):
    """Take a table's file out of a folder or out of a zip."""
    if place.is_dir():
        (place / f"{table}.parquet").unlink()
        return
    with zipfile.ZipFile(place) as source:
        members = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(place, "w") as copy:
        for name, data in members.items():
            if name != f"{table}.parquet":
                copy.writestr(name, data)


@pytest.fixture(params=["saved", "zipped", "exported"])
def place(request, saved, tmp_path):
    """A trace on disk in each form that open_trace reads."""
    if request.param == "zipped":
        return open_trace(saved).save(tmp_path / "run.zip")
    if request.param == "exported":
        return make_trace(coherent_rows()).to_parquet(tmp_path / "export")
    return saved


def test_a_closed_trace_knows_how_many_rows_each_table_has(place):
    assert open_store(place).manifest["rows"] == {
        table: len(rows) for table, rows in coherent_rows().items() if rows
    }


def test_a_removed_table_is_named_on_opening_in_the_summary_and_by_the_audit(place):
    removed(place, "tokens")
    message = "tokens: 12 rows were written, none is there"
    with pytest.warns(IncompleteTraceWarning, match=message):
        trace = open_trace(place)
    assert message in trace.summary()
    audit = trace.audit().set_index("check")
    assert audit.loc["0 tables whole", "verdict"] == "broken"
    assert audit.loc["0 tables whole", "evidence"] == '["tokens"]'
    assert audit.loc["6 tokens = choices", "verdict"] == "not applicable"
    assert "tokens" in audit.loc["6 tokens = choices", "found"]
    assert audit.loc["1 reads = fates", "verdict"] == "holds"


def test_a_removed_table_is_not_an_empty_one(saved):
    removed(saved, "steps")
    store = open_store(saved)
    with pytest.raises(TraceFormatError, match=r"'steps' .* 4 rows were written"):
        store.read("steps")
    with pytest.raises(TraceFormatError, match="'steps'"):
        list(store.batches("steps"))
    with pytest.raises(TraceFormatError, match="'steps'"):
        Trace(store)["events"]
    assert Trace(store).rows("steps") == 0


def test_a_short_table_is_named_and_what_it_has_is_read(saved):
    file = saved / "tokens.parquet"
    pq.write_table(pq.read_table(file).slice(0, 5), file)
    with pytest.warns(IncompleteTraceWarning, match="tokens: 12 rows were written, 5 are there"):
        trace = open_trace(saved)
    assert len(trace["tokens"]) == 5
    assert "0 tables whole" in set(trace.audit()["check"])


def test_a_table_that_was_never_written_is_named(saved, tmp_path):
    shutil.copy(saved / "tokens.parquet", tmp_path)
    json_file = saved / "manifest.json"
    manifest = json.loads(json_file.read_text())
    del manifest["rows"]["tokens"]
    json_file.write_text(json.dumps(manifest))
    with pytest.warns(IncompleteTraceWarning, match="tokens: no row was written, 12 are there"):
        open_trace(saved)


@pytest.mark.parametrize("name", ["copy", "copy.zip", "csv", "parquet"])
def test_a_copy_of_an_incomplete_trace_stays_incomplete(saved, tmp_path, name):
    removed(saved, "tokens")
    trace = Trace(open_store(saved))
    if name == "csv":
        copy = read_csv(trace.to_csv(tmp_path / name))
    else:
        write = trace.to_parquet if name == "parquet" else trace.save
        copy = Trace(open_store(write(tmp_path / name)))
    assert "tokens: 12 rows were written, none is there" in copy.summary()
    assert "tokens: 12 rows were written, none is there" in copy.scrub().summary()
    assert "12 rows" in str(copy.audit()["found"].tolist())


def test_a_trace_whose_manifest_has_no_row_counts_opens_as_before(saved):
    json_file = saved / "manifest.json"
    manifest = json.loads(json_file.read_text())
    del manifest["rows"]
    json_file.write_text(json.dumps(manifest))
    removed(saved, "tokens")
    assert len(open_trace(saved)["tokens"]) == 0
