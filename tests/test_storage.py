"""Rows survive: kills, full disks, hostile files; and are read lazily from wherever they lie."""

import contextlib
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from synthetic import as_batch, coherent_rows, event, make_trace

import tracer
from tracer.errors import StorageError, TraceFormatError, TracerError
from tracer.recovery import START_SCHEMA
from tracer.schema import SCHEMA_VERSION, TABLES
from tracer.storage import Journal, Store, arrow_schema, open_store
from tracer.trace import Trace, open_trace

KILLS = 50
STARTS = [
    {"seq": 0, "parent": -1, "call": 0, "stage": "setup", "name": "generate", "start_ns": 5}
    | {"thread": "MainThread", "rank": 0, "table": "calls"},
    {"seq": 1, "parent": 0, "call": 0, "stage": "setup", "name": "setup", "start_ns": 6}
    | {"thread": "MainThread", "rank": 0, "table": "spans"},
]


def starts(*records):
    return pa.RecordBatch.from_pylist(list(records), schema=START_SCHEMA)


def spans(first, count):
    """Some rows of `spans` that hardly compress."""
    noise = np.random.default_rng(first)
    records = [
        event(first + index, 0, 0, "setup", f"span {first + index}", index, 1)
        | {"summary": {"noise": noise.bytes(200).hex()}}
        for index in range(count)
    ]
    return as_batch("spans", records)


def left_behind(folder):
    """A journal as a kill leaves it: two open spans, one of them in a call, and some rows."""
    journal = Journal(folder)
    journal.append_starts(starts(*STARTS))
    journal.append("spans", spans(2, 20))
    journal.append("spans", spans(22, 20))
    journal.release()
    return journal


# --- kill -9 --------------------------------------------------------------------------------

WRITER = """
import os, sys
import pyarrow as pa
from tracer.recovery import START_SCHEMA
from tracer.storage import Journal, arrow_schema

def write(folder):
    journal = Journal(folder)
    seq = 0
    for number in range(1_000_000):
        span = {"seq": seq, "parent": -1, "call": -1, "stage": "decode", "table": "spans"}
        journal.append_starts(pa.RecordBatch.from_pylist([span], schema=START_SCHEMA))
        rows = [{"seq": seq + 1 + n, "path": f"layer.{n}"} for n in range(1 + number % 50)]
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema("modules"))
        journal.append("modules", batch)
        os.write(1, b"batch %d %d\\n" % (number, seq))
        if number % 3 == 0:
            row = pa.RecordBatch.from_pylist([{**span, "status": "ok", "duration_ns": 7}],
                                             schema=arrow_schema("spans"))
            journal.append("spans", row)
            os.write(1, b"ended %d\\n" % seq)
        seq += 1 + len(rows)

for line in sys.stdin:
    # A fork of a process that has imported everything starts in a millisecond.
    if (child := os.fork()) == 0:
        write(line.strip())
    os.write(1, b"pid %d\\n" % child)
    os.waitpid(child, 0)
    os.write(1, b"killed\\n")
"""


@pytest.fixture(scope="module")
def writer():
    """A process that starts a writer for each folder it is told."""
    root = str(Path(tracer.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    )
    with process:
        yield process
        process.stdin.close()


def killed_writer(writer, folder, dice):
    """Kill a writer at a random moment; give the batches and span ends that it acknowledged."""
    writer.stdin.write(f"{folder}\n".encode())
    writer.stdin.flush()
    batches, ended, pid = [], [], 0
    wanted = dice.randrange(1, 60)
    while len(batches) < wanted or not pid:
        word, *numbers = writer.stdout.readline().split()
        if word == b"pid":
            pid = int(numbers[0])
        else:
            (batches if word == b"batch" else ended).append(int(numbers[-1]))
    until = time.perf_counter() + dice.uniform(0, 500e-6)
    while time.perf_counter() < until:
        pass
    os.kill(pid, signal.SIGKILL)
    while (line := writer.stdout.readline().split()) != [b"killed"]:
        (batches if line[0] == b"batch" else ended).append(int(line[-1]))
    return batches, ended


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_writer_loses_no_acknowledged_batch(writer, tmp_path, seed):
    dice = random.Random(seed)
    batches, ended = killed_writer(writer, tmp_path / "run", dice)
    trace = open_trace(tmp_path / "run")
    assert trace.manifest["state"] == "interrupted"
    # Batch n has 1 + n % 50 rows: what is there is a row of whole batches from the first on.
    sizes = [1 + number % 50 for number in range(len(batches) + 1)]
    assert trace.rows("modules") in (sum(sizes[:-1]), sum(sizes))
    frame = trace["spans"]
    still_open = frame[frame["status"] == "interrupted"]
    assert still_open["duration_ns"].isna().all()
    assert set(ended) <= set(frame[frame["status"] == "ok"]["seq"])
    # Every third span got its row; of the others the start record must be there.
    never_ended = {seq for number, seq in enumerate(batches) if number % 3}
    assert never_ended <= set(still_open["seq"])
    first, *_ = trace.summary().splitlines()
    assert "interrupted" in first
    assert f"{len(still_open):,} open span" in first


def test_open_spans_come_back_in_their_table_without_duration(tmp_path):
    left_behind(tmp_path / "run")
    trace = open_trace(tmp_path / "run")
    call = trace["calls"].iloc[0]
    assert (call.seq, call.status, call["name"]) == (0, "interrupted", "generate")
    assert call.isna().duration_ns
    assert list(trace["spans"]["seq"]) == list(range(1, 42))
    assert trace.read("spans", ["seq"], [("status", "==", "interrupted")])["seq"].tolist() == [1]


def test_a_span_that_ended_is_not_open(tmp_path):
    journal = left_behind(tmp_path / "run")
    journal.append("spans", spans(1, 1))
    journal.release()
    assert open_store(tmp_path / "run").rows("spans") == 41


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 500, 2_000])
def test_a_torn_tail_costs_only_the_last_batch(tmp_path, cut):
    left_behind(tmp_path / "run")
    stream = tmp_path / "run" / "journal" / "spans.arrows"
    os.truncate(stream, stream.stat().st_size - cut)
    assert open_store(tmp_path / "run").rows("spans") == 20 + 1


@pytest.mark.parametrize("length", [0, 4, 100])
def test_a_stream_torn_in_its_schema_is_an_empty_table(tmp_path, length):
    left_behind(tmp_path / "run")
    os.truncate(tmp_path / "run" / "journal" / "spans.arrows", length)
    assert open_store(tmp_path / "run").rows("spans") == 1  # the open one


def test_garbage_after_whole_batches_is_ignored(tmp_path):
    left_behind(tmp_path / "run")
    with (tmp_path / "run" / "journal" / "spans.arrows").open("ab") as stream:
        stream.write(random.Random(0).randbytes(5_000))
    assert open_store(tmp_path / "run").rows("spans") == 41


def test_a_kill_while_closing_leaves_the_journal_in_force(tmp_path):
    left_behind(tmp_path / "run")
    (tmp_path / "run" / "spans.parquet").write_bytes(b"PAR1 half a file")
    assert open_store(tmp_path / "run").rows("spans") == 41


def test_an_interrupted_trace_is_saved_as_interrupted(tmp_path):
    left_behind(tmp_path / "run")
    trace = open_trace(tmp_path / "run")
    saved = open_trace(trace.save(tmp_path / "saved.zip"))
    assert saved.manifest["state"] == "interrupted"
    assert set(saved["spans"]["seq"]) == set(trace["spans"]["seq"])


def test_what_was_described_while_recording_is_known_after_a_kill(tmp_path):
    left_behind(tmp_path / "run").describe({"versions": {"torch": "2"}})
    manifest = open_store(tmp_path / "run").manifest
    assert manifest["versions"] == {"torch": "2"}
    assert manifest["state"] == "interrupted"


# --- places ---------------------------------------------------------------------------------


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("if_exists", ["error", "replace", "number"])
@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_path_that_is_a_file_or_below_one_is_refused_at_once(tmp_path, if_exists, below):
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(StorageError, match=r"notes\.txt"):
        Journal(file / below, if_exists=if_exists)
    assert file.read_text() == "mine"


def test_an_unwritable_folder_is_refused_at_once(read_only):
    with pytest.raises(StorageError, match="can't be written"):
        Journal(read_only / "run")


def mounted(folder, options):
    """Mount a memory disk, or skip: only root may."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("mounting a memory disk needs root")


@pytest.fixture
def read_only(tmp_path):
    """A folder that can't be written: by its mode, or for root by its mount."""
    folder = tmp_path / "read-only"
    if os.geteuid():
        folder.mkdir(mode=0o500)
        yield folder
        return
    mounted(folder, "ro,size=64k")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_an_existing_trace_is_refused_and_left_alone(tmp_path):
    make_trace(coherent_rows(), tmp_path / "run")
    before = snapshot(tmp_path)
    with pytest.raises(StorageError, match="if_exists='replace' or 'number'"):
        Journal(tmp_path / "run")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("make", [lambda p: make_trace(coherent_rows(), p), left_behind])
def test_replace_removes_the_old_trace_and_only_it(tmp_path, make):
    make(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    journal = Journal(tmp_path / "run", if_exists="replace")
    left = {path.name for path in (tmp_path / "run").rglob("*")}
    assert left == {"manifest.json", "notes.txt", "journal"}
    assert journal.close({}).tables() == []


@pytest.mark.parametrize("if_exists", ["error", "replace"])
@pytest.mark.parametrize("manifest", [None, "{}", '{"name": "an app"}', "[1]", "no json"])
def test_a_folder_of_strangers_is_never_touched(tmp_path, if_exists, manifest):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "calls.parquet").write_text("mine")
    if manifest:
        (folder / "manifest.json").write_text(manifest)
    before = snapshot(tmp_path)
    with pytest.raises(StorageError, match="no trace"):
        Journal(folder, if_exists=if_exists)
    assert snapshot(tmp_path) == before


def test_number_finds_the_next_free_name(tmp_path):
    (tmp_path / "run-2").write_text("a file in the way")
    journals = [Journal(tmp_path / "run", if_exists="number") for _ in range(3)]
    assert [journal.folder.name for journal in journals] == ["run", "run-3", "run-4"]


def test_an_empty_folder_is_taken(tmp_path):
    assert Journal(tmp_path).folder == tmp_path


# --- full disk ------------------------------------------------------------------------------


@contextlib.contextmanager
def limited_files(size):
    """Let no file of this process grow beyond a size: the disk then refuses like a full one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(params=["full memory disk", "file size limit"])
def small_disk(request, tmp_path):
    """A folder, and a context in which some hundred kilobytes fill it."""
    folder = tmp_path / "disk"
    if request.param == "file size limit":
        folder.mkdir()
        yield folder, lambda: limited_files(200_000)
        return
    mounted(folder, "size=256k")
    yield folder, contextlib.nullcontext
    subprocess.run(["umount", str(folder)], check=True)


def filled(journal):
    """Append until well after the disk has refused."""
    seq = 0
    while journal.failure is None or seq < 4_000:
        journal.append("spans", spans(seq, 100))
        journal.append("faults", as_batch("faults", [{"seq": 10**6 + seq, "reason": "r"}]))
        seq += 100
    return seq


def test_a_full_disk_never_raises_and_loses_no_row(small_disk):
    folder, limit = small_disk
    with limit():
        journal = Journal(folder / "run")
        rows = filled(journal)
        store = journal.close({"name": "full"})
    assert isinstance(journal.failure, OSError)
    assert sorted(store.read("spans", ["seq"])["seq"].to_pylist()) == list(range(rows))
    assert store.rows("faults") == rows // 100
    assert store.manifest["storage_failure"] == str(journal.failure)
    assert "disk refused" in Trace(store).summary()


def test_after_a_full_disk_the_folder_still_opens_with_what_fitted(small_disk):
    folder, limit = small_disk
    with limit():
        journal = Journal(folder / "run")
        rows = filled(journal)
        journal.close({})
    found = open_store(folder / "run")
    assert found.manifest["state"] == "interrupted"
    seqs = found.read("spans", ["seq"])["seq"].to_pylist()
    assert 0 < len(seqs) < rows
    assert seqs == list(range(len(seqs)))


def test_a_trace_from_a_full_disk_can_be_saved_elsewhere(small_disk, tmp_path):
    folder, limit = small_disk
    with limit():
        journal = Journal(folder / "run")
        rows = filled(journal)
        store = journal.close({})
    assert open_store(store.save(tmp_path / "elsewhere.zip")).rows("spans") == rows


def test_closing_tries_the_disk_again(tmp_path):
    with limited_files(200_000):
        journal = Journal(tmp_path / "run")
        rows = filled(journal)
    store = journal.close({})
    assert store.rows("spans") == rows
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "faults.parquet",
        "manifest.json",
        "spans.parquet",
    ]
    assert open_store(tmp_path / "run").rows("spans") == rows


# --- opening --------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    """A closed trace in a folder."""
    make_trace(coherent_rows(), tmp_path / "run")
    return tmp_path / "run"


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


# --- zips -----------------------------------------------------------------------------------


@pytest.fixture
def zipped(saved, tmp_path):
    """A saved trace as a zip."""
    return open_trace(saved).save(tmp_path / "run.zip")


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
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
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


# --- reading --------------------------------------------------------------------------------


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


def test_a_batch_of_another_shape_is_refused():
    with pytest.raises(StorageError, match="'spans'"):
        Journal(None).append("spans", as_batch("memory", [{"seq": 1}]))


def test_bytes_written_grow_with_each_batch(tmp_path):
    for journal in (Journal(None), Journal(tmp_path / "run")):
        journal.append("spans", spans(0, 50))
        once = journal.bytes_written
        journal.append("spans", spans(50, 50))
        assert 0 < once < journal.bytes_written
        journal.release()
    assert (tmp_path / "run/journal/spans.arrows").stat().st_size == journal.bytes_written


def test_closing_leaves_parquet_and_a_manifest(saved):
    names = {path.name for path in saved.iterdir()}
    assert names == {"manifest.json", *(f"{table}.parquet" for table in coherent_rows())}
    assert json.loads((saved / "manifest.json").read_text())["state"] == "complete"
    codec = pq.ParquetFile(saved / "calls.parquet").metadata.row_group(0).column(0).compression
    assert codec == "ZSTD"


def test_events_are_stored_by_seq_though_they_end_inside_out(saved):
    seqs = open_store(saved).read("modules", ["seq"])["seq"].to_pylist()
    assert seqs == sorted(seqs)
    assert [row["seq"] for row in coherent_rows()["modules"]] != seqs
