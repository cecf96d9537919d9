"""Writing, opening and reading large traces: time and peak memory, each phase in its own process.

    python benchmarks/storage.py [--rows 10000000] [--folder DIR]

Prints a table and one line of JSON. What is done several times has the quickest and the median
time, and each phase the processor's time beside the clock's and the load of the machine: on a
busy machine the clock counts the others' work too. CSV is written of the smaller trace only.

Rows look like module calls of a 30-layer model: repeated paths and shapes, rising times with
noise. A process's peak memory never falls, so a phase that shared one would inherit the peak of
the phase before; the memory of an idle process is a line too.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from tracer.journal import Journal
from tracer.storage import arrow_schema, open_store
from tracer.trace import open_trace
from tracer.views.labels import aligned

BATCH_ROWS = 10_000
CSV_ROWS = 1_000_000
LAYERS = 30
PARTS = ("", ".self_attn", ".mlp", ".input_layernorm", ".self_attn.q_proj", ".mlp.down_proj")
PATHS = [f"model.layers.{layer}{part}" for layer in range(LAYERS) for part in PARTS]
TEXTS = {
    "stage": ["decode"],
    "thread": ["MainThread"],
    "status": ["ok"],
    "model": ["m1"],
    "name": PATHS,
    "path": PATHS,
    "class_name": ["DecoderLayer", "Attention", "MLP", "RMSNorm", "Linear", "Linear"] * LAYERS,
    "input_shape": ["[1, 1, 576]"],
    "output_shape": ["[1, 1, 576]"],
    "dtype": ["bfloat16"],
    "device": ["cuda:0"],
    "source": ["transformers/models/llama/modeling_llama.py:300"],
    "stack": [f"k{number}" for number in range(len(PARTS))] * LAYERS,
}


def module_batch(first: int, rows: int) -> pa.RecordBatch:
    """Rows of `modules` as a recording would hand them over."""
    noise = np.random.default_rng(first)
    seq = np.arange(first, first + rows)
    numbers = {
        "seq": seq,
        "parent": seq - seq % 7,
        "call": np.zeros(rows, dtype=np.int64),
        "start_ns": seq * 12_000 + noise.integers(0, 5_000, rows),
        "duration_ns": noise.integers(5_000, 200_000, rows),
        "rank": np.zeros(rows, dtype=np.int64),
        "step": seq // len(PATHS),
    }
    columns = []
    for field in arrow_schema("modules"):
        if field.name in numbers:
            columns.append(pa.array(numbers[field.name], field.type))
        elif field.name in TEXTS:
            values = pa.array(TEXTS[field.name])
            columns.append(values.take(pa.array(seq % len(values))))
        else:
            columns.append(pa.nulls(rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema("modules"))


def timed(work: Callable[[], object]) -> float:
    """Seconds that a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def repeated(name: str, work: Callable[[], object], times: int = 7) -> dict[str, float]:
    """Seconds of the quickest and of the median run, and of a processor in the quickest."""
    seconds, processor = [], []
    for _ in range(times):
        before = time.process_time()
        seconds.append(timed(work))
        processor.append(time.process_time() - before)
    return {
        f"{name}_s": min(seconds),
        f"{name}_median_s": statistics.median(seconds),
        f"{name}_processor_s": min(processor),
    }


def write(folder: Path, rows: int) -> dict[str, float]:
    journal = Journal(folder)
    appending = 0.0
    for first in range(0, rows, BATCH_ROWS):
        batch = module_batch(first, min(BATCH_ROWS, rows - first))
        start = time.perf_counter()
        journal.append("modules", batch)
        appending += time.perf_counter() - start
    figures = {
        "append_ns_a_row": appending / rows * 1e9,
        "journal_bytes_a_row": journal.bytes_written / rows,
        "close_s": timed(lambda: journal.close({})),
    }
    figures["parquet_bytes_a_row"] = (folder / "modules.parquet").stat().st_size / rows
    return figures


def keep(_: Path, rows: int) -> dict[str, float]:
    journal = Journal(None)
    for first in range(0, rows, BATCH_ROWS):
        journal.append("modules", module_batch(first, min(BATCH_ROWS, rows - first)))
    return {"memory_bytes_a_row": journal.bytes_written / rows}


def read(folder: Path, rows: int) -> dict[str, float]:
    opening = timed(lambda: open_store(folder).rows("modules") == rows or sys.exit("rows lost"))
    trace = open_trace(folder)
    columns = ["path", "step", "duration_ns"]
    return {
        "first_open_s": opening,
        **repeated("open", lambda: open_trace(folder)),
        **repeated("three_columns_arrow", lambda: trace.arrow("modules", columns)),
        **repeated("three_columns_frame", lambda: trace.read("modules", columns)),
        **repeated("hundred_rows", lambda: trace.read("modules", limit=100)),
        **repeated("one_step", lambda: trace.read("modules", where=[("step", "==", 5)])),
        **repeated("summary", trace.summary),
    }


def csv(folder: Path, rows: int) -> dict[str, float]:
    if rows > CSV_ROWS:
        return {}
    trace = open_trace(folder)
    target = folder.with_name(f"{folder.name}-csv")

    def written() -> None:
        # Into a new folder each time: what an earlier export left takes time to free.
        shutil.rmtree(target, ignore_errors=True)
        trace.to_csv(target)

    return repeated("csv", written)


def batches(folder: Path, rows: int) -> dict[str, float]:
    found = 0

    def walk() -> None:
        nonlocal found
        found = sum(batch.num_rows for batch in open_store(folder).batches("modules"))

    seconds = timed(walk)
    assert found == rows
    return {"all_batches_s": seconds}


def idle(_folder: Path, _rows: int) -> dict[str, float]:
    return {}


PHASES = {phase.__name__: phase for phase in (idle, write, read, csv, batches, keep)}


def run_phase(name: str, folder: Path, rows: int) -> dict[str, float]:
    """Run one phase in a process of its own; its peak memory is one of the figures."""
    command = [sys.executable, __file__, "--phase", name, "--folder", str(folder)]
    done = subprocess.run([*command, "--rows", str(rows)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        figures = PHASES[options.phase](options.folder, options.rows)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000  # kilobytes on Linux
        load = os.getloadavg()[0]
        print(json.dumps({**figures, "peak_rss_mb": peak, "load_of_the_machine": load}))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        results = {}
        for rows in (1_000_000, options.rows):
            folder = Path(place) / str(rows)
            results[rows] = {name: run_phase(name, folder, rows) for name in PHASES}
    lines = [["phase", "figure", *(f"{rows:,} rows" for rows in results)]]
    for name in PHASES:
        for figure in next(iter(results.values()))[name]:
            cells = (r[name].get(figure) for r in results.values())
            lines.append([name, figure, *("" if x is None else f"{x:.3f}" for x in cells)])
    print(aligned(lines, right=(2, 3), indent=""))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
