"""What a killed recording left behind: no whole batch is lost, open spans come back."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from synthetic import left_behind, spans

import tracer
from tracer.storage import open_store
from tracer.trace import open_trace

KILLS = 50

WRITER = """
import os, sys
import pyarrow as pa
from tracer.journal import Journal
from tracer.recovery import START_SCHEMA
from tracer.storage import arrow_schema

SPAN = {"parent": -1, "call": -1, "stage": "decode"}
START = pa.RecordBatch.from_pylist([{**SPAN, "table": "spans"}], schema=START_SCHEMA)
END = pa.RecordBatch.from_pylist(
    [{**SPAN, "status": "ok", "duration_ns": 7}], schema=arrow_schema("spans"))
MODULES = pa.RecordBatch.from_pylist(
    [{"path": f"layer.{n}"} for n in range(50)], schema=arrow_schema("modules"))

def numbered(batch, first):
    seqs = pa.array(range(first, first + batch.num_rows), pa.int64())
    return pa.RecordBatch.from_arrays([seqs, *batch.columns[1:]], schema=batch.schema)

def write(folder):
    journal = Journal(folder)
    seq = 0
    for number in range(1_000_000):
        journal.append_starts(numbered(START, seq))
        batch = numbered(MODULES.slice(0, 1 + number % 50), seq + 1)
        journal.append("modules", batch)
        os.write(1, b"batch %d %d\\n" % (number, seq))
        if number % 3 == 0:
            journal.append("spans", numbered(END, seq))
            os.write(1, b"ended %d\\n" % seq)
        seq += 1 + batch.num_rows

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
