"""Opening a large trace in the player, and telling about one of its stops.

    python -m benchmarks.player [--rows 1000000] [--stops 50]

The trace looks like a long generation of a 30-layer model: a call, its forwards, in each the layers
with their parts, and a chosen token. Measured: from the trace on disk to what the page is sent
(`open`); the details of stops all over the trace, the slowest and the median (`detail`); moves need
no Python, and are measured in the browser by its tests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tracer.journal import Journal
from tracer.replaying.buffers import as_json
from tracer.replaying.replay import Replay
from tracer.storage import arrow_schema
from tracer.trace import open_trace

OPEN_SECONDS = 2.0
STEP_SECONDS = 0.05
LAYERS = 30
PARTS = (".input_layernorm", ".self_attn", ".post_attention_layernorm", ".mlp")
BATCH_STEPS = 100
SOURCE = "transformers/models/llama/modeling_llama.py:300"


def measure(rows: int = 1_000_000, stops: int = 50) -> dict[str, float]:
    """Seconds of opening a trace with so many module calls, and of details in it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "trace"
        write(folder, rows)
        start = time.perf_counter()
        replay = Replay(open_trace(folder))
        header = as_json(replay.header)
        opened = time.perf_counter() - start
        asked = np.linspace(0, len(replay.stops) - 1, stops).astype(int).tolist()
        took = [_timed(replay, stop) for stop in asked]
        return {
            "stops": len(replay.stops),
            "open_s": opened,
            "header_bytes": len(header),
            "columns_bytes": len(replay.columns),
            "first_detail_s": took[0],
            "detail_median_s": statistics.median(took),
            "detail_most_s": max(took[1:]),
        }


def _timed(replay: Replay, stop: int) -> float:
    start = time.perf_counter()
    as_json(replay.detail(stop))
    return time.perf_counter() - start


def write(folder: Path, rows: int) -> None:
    """A trace of one generate() with so many module calls."""
    inside = LAYERS * (1 + len(PARTS))
    steps = max(1, rows // inside)
    journal = Journal(folder)
    for first in range(0, steps, BATCH_STEPS):
        numbers = np.arange(first, min(first + BATCH_STEPS, steps))
        journal.append("modules", _modules(numbers, inside))
        journal.append("steps", _steps(numbers, inside))
        journal.append("choices", _choices(numbers))
    whole = {"seq": [0], "parent": [-1], "call": [0], "rank": [0], "start_ns": [0]}
    whole |= {"duration_ns": [steps * (inside + 1) * 1000], "name": ["generate"]}
    whole |= {"stage": ["setup"], "kind": ["generate"], "status": ["ok"]}
    journal.append("calls", _batch("calls", 1, whole))
    journal.append("sources", _batch("sources", 1, {"source": [SOURCE], "text": ["def f():\n"]}))
    journal.close({"versions": {"transformers": "5.24.0"}})


def _modules(steps: np.ndarray, inside: int) -> pa.RecordBatch:
    first = 1 + steps * (inside + 1)
    layer = np.repeat(np.arange(LAYERS), 1 + len(PARTS))
    part = np.tile(np.arange(1 + len(PARTS)), LAYERS)
    place = np.arange(inside)
    above = np.where(part == 0, 0, 1 + place - part)
    seq = (first[:, None] + 1 + place).ravel()
    paths = [f"model.layers.{at}{name}" for at in range(LAYERS) for name in ("", *PARTS)]
    names = pa.array(paths).take(pa.array(np.tile(layer * (1 + len(PARTS)) + part, len(steps))))
    count = len(seq)
    own = {
        **_numbers(seq, (first[:, None] + above).ravel()),
        "step": np.repeat(steps, inside),
        "name": names,
        "path": names,
        "stage": pa.array(["decode"] * count),
        "class_name": pa.array(["LlamaDecoderLayer"] * count),
        "input_shape": pa.array(["[1, 1, 576]"] * count),
        "output_shape": pa.array(["[1, 1, 576]"] * count),
        "source": pa.array([SOURCE] * count),
    }
    return _batch("modules", count, own)


def _steps(steps: np.ndarray, inside: int) -> pa.RecordBatch:
    seq = 1 + steps * (inside + 1)
    names = pa.array([f"decode {step}" for step in steps])
    own = {**_numbers(seq, np.zeros_like(seq)), "step": steps, "name": names}
    return _batch("steps", len(steps), own | {"stage": pa.array(["decode"] * len(steps))})


def _choices(steps: np.ndarray) -> pa.RecordBatch:
    noise = np.random.default_rng(int(steps[0]))
    zeros = np.zeros_like(steps)
    own = {"event": zeros, "call": zeros, "rank": zeros, "row": zeros, "offset": zeros}
    own |= {"step": steps, "token_id": steps % 500, "entropy": noise.random(len(steps))}
    texts = pa.array([f" word{step % 500}" for step in steps])
    return _batch("choices", len(steps), {**own, "text": texts})


def _numbers(seq: np.ndarray, parent: np.ndarray) -> dict[str, Any]:
    noise = np.random.default_rng(int(seq[0]))
    return {
        "seq": seq,
        "parent": parent,
        "call": np.zeros_like(seq),
        "rank": np.zeros_like(seq),
        "start_ns": seq * 1000 + noise.integers(0, 500, len(seq)),
        "duration_ns": noise.integers(100, 900, len(seq)),
        "thread": pa.array(["MainThread"] * len(seq)),
        "status": pa.array(["ok"] * len(seq)),
    }


def _batch(table: str, count: int, columns: dict[str, Any]) -> pa.RecordBatch:
    schema = arrow_schema(table)
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def main() -> None:
    """Measure, compare with the budget, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--stops", type=int, default=50)
    options = parser.parse_args()
    found = measure(options.rows, options.stops)
    print(json.dumps(found, indent=2))
    print(f"open {found['open_s']:.2f} s of {OPEN_SECONDS} s")
    print(f"detail {found['detail_most_s'] * 1e3:.0f} ms of {STEP_SECONDS * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
