"""A journal takes its place or refuses at once, and loses no row to a disk that is full."""

import contextlib
import errno
import json
import os
import resource
import subprocess

import pyarrow.parquet as pq
import pytest
from synthetic import as_batch, coherent_rows, left_behind, make_trace, spans

from tracer.errors import StorageError
from tracer.journal import Journal
from tracer.storage import open_store
from tracer.trace import Trace, open_trace


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
    assert left == {"manifest.json", "notes.txt", "journal", "reserve"}
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
    while journal.failure is None or seq < 2_000:
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


def test_a_folder_on_a_full_disk_says_that_the_disk_was_full_and_not_that_it_was_killed(small_disk):
    folder, limit = small_disk
    with limit():
        journal = Journal(folder / "run")
        journal.describe({"versions": {"torch": "2"}})
        filled(journal)
        journal.close({"ended": "completed"})
    trace = open_trace(folder / "run")
    words = "was full" if journal.failure.errno == errno.ENOSPC else "refused rows"
    first, second, *_ = trace.summary().splitlines()
    assert first == (
        f"Trace interrupted: the disk {words} while recording ({journal.failure}); 0 open spans."
    )
    assert second == "How the run ended: completed"
    assert trace.manifest["storage_failure"] == str(journal.failure)


def test_a_kill_after_the_disk_was_full_leaves_the_reason(small_disk):
    folder, limit = small_disk
    with limit():
        journal = Journal(folder / "run")
        journal.describe({"versions": {"torch": "2"}})
        filled(journal)
        journal.release()
    trace = open_trace(folder / "run")
    assert str(journal.failure) in trace.summary().splitlines()[0]
    assert trace.manifest["versions"] == {"torch": "2"}


def test_a_disk_that_is_full_when_closing_is_told_too(tmp_path):
    """Every batch was written; only the finished tables find no room."""
    journal = Journal(tmp_path / "run")
    journal.append("spans", spans(0, 50))
    with limited_files(5_000):
        journal.close({"ended": "completed"})
    trace = open_trace(tmp_path / "run")
    assert "the disk refused rows" in trace.summary()
    assert len(trace["spans"]) == 50


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


@pytest.fixture
def saved(tmp_path):
    """A closed trace in a folder."""
    make_trace(coherent_rows(), tmp_path / "run")
    return tmp_path / "run"


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
