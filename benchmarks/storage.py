"""Writing, opening and reading large traces: time and peak memory, each phase in its own process.

    python -m benchmarks storage [--quick]

Rows look like module calls of a 30-layer model: repeated paths and shapes, rising times with
noise. A process's peak memory never falls, so a phase that shared one would inherit the peak of
the phase before; the memory of an idle process is measured too.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure, figure
from benchmarks.pairs import timed
from tracer.journal import Journal
from tracer.storage import arrow_schema
from tracer.trace import Trace, open_trace

Measured = tuple[str, Sequence[float]] | tuple[str, Sequence[float], Sequence[float]]
Figures = dict[str, Measured]

BATCH_ROWS = 10_000
FEW_ROWS, MANY_ROWS = 1_000_000, 10_000_000
BUDGETS = {"10M rows, open": 0.1, "10M rows, three columns": 2.0, "1M rows, csv": 2.0}
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


def write(folder: Path, rows: int) -> Figures:
    journal = Journal(folder)
    appending = 0.0
    for first in range(0, rows, BATCH_ROWS):
        batch = module_batch(first, min(BATCH_ROWS, rows - first))
        start = time.perf_counter()
        journal.append("modules", batch)
        appending += time.perf_counter() - start
    closing = timed(lambda: journal.close({}))
    return {
        "append": ("ns", [appending / rows * 1e9]),
        "close": ("s", [closing[0]], [closing[1]]),
        "journal": ("bytes", [journal.bytes_written / rows]),
        "parquet": ("bytes", [(folder / "modules.parquet").stat().st_size / rows]),
    }


def read(folder: Path, rows: int) -> Figures:
    trace = open_trace(folder)
    if trace.rows("modules") != rows:
        raise RuntimeError(f"{folder} has {trace.rows('modules'):,} rows of {rows:,}")
    columns = ["path", "step", "duration_ns"]
    return {
        "open": repeated(lambda: open_trace(folder)),
        "three columns": repeated(lambda: trace.read("modules", columns)),
        "hundred rows": repeated(lambda: trace.read("modules", limit=100)),
        "one step": repeated(lambda: trace.read("modules", where=[("step", "==", 5)])),
        "summary": repeated(trace.summary),
    }


def csv(folder: Path, rows: int) -> Figures:
    return {"csv": _exported(folder, rows, Trace.to_csv)}


def parquet(folder: Path, rows: int) -> Figures:
    return {"to parquet": _exported(folder, rows, Trace.to_parquet)}


def _exported(folder: Path, rows: int, export: Callable[[Trace, Path], object]) -> Measured:
    trace = open_trace(folder)
    target = folder.with_name(f"{folder.name}-export")

    def exported() -> None:
        # Into a new folder each time: what an earlier export left takes time to free.
        shutil.rmtree(target, ignore_errors=True)
        export(trace, target)

    found = repeated(exported, 1 if rows > FEW_ROWS else 5)
    shutil.rmtree(target)
    return found


def idle(_folder: Path, _rows: int) -> Figures:
    return {}


PHASES = {phase.__name__: phase for phase in (idle, write, read, csv, parquet)}


def repeated(work: Callable[[], object], times: int = 7) -> Measured:
    """Seconds of each run, by the clock and of the processor."""
    found = [timed(work) for _ in range(times)]
    return "s", [wall for wall, _ in found], [processor for _, processor in found]


def measure(quick: bool) -> list[Figure]:
    """Figures of a million and of ten million rows; a quick run stays in this process."""
    sizes = {"": 2_000} if quick else {"1M rows, ": FEW_ROWS, "10M rows, ": MANY_ROWS}
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as place:
        for size, rows in sizes.items():
            folder = Path(place) / str(rows)
            peaks = {}
            for name in PHASES:
                run = _here if quick else _apart
                peaks[name], figures = run(name, folder, rows)
                for what, measured in figures.items():
                    full = f"{size or '1M rows, '}{what}"
                    found.append(figure(full, *measured, budget=BUDGETS.get(full)))
            memory = [peaks[name] - peaks["idle"] for name in ("write", "csv")]
            for name, peak in zip(("write", "csv"), memory, strict=True):
                found.append(figure(f"{size or '1M rows, '}memory to {name}", "bytes", [peak]))
    return found


def _here(name: str, folder: Path, rows: int) -> tuple[int, Figures]:
    return _peak_bytes(), PHASES[name](folder, rows)


def _apart(name: str, folder: Path, rows: int) -> tuple[int, Figures]:
    """Run one phase in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.storage", name, str(folder), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    peak, figures = json.loads(done.stdout)
    return peak, figures


def _peak_bytes() -> int:
    """Most memory that this process ever had; Linux counts in kilobytes, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    _found = PHASES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps([_peak_bytes(), _found]))
