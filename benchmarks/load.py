"""Loading with the recorder on against off: time, processor time and trace, by size of checkpoint.

    python -m benchmarks load [--quick]

A B A B in turn, warm, beside a control that measures the plain load against itself. The whole
recording is measured too, with what opening and closing it take. A warm load only maps its files:
2 GB take no longer than 0.5 GB. So one of 2 GB is measured with a cast as well, which reads every
byte.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM

import tracer
from benchmarks.checkpoints import shaped_like_2gb, shaped_like_20k, shaped_like_135m, toy
from benchmarks.figures import Figure, figure
from benchmarks.pairs import control, paired, timed

SIZES: dict[str, Callable[[Path], Path]] = {
    "135m": shaped_like_135m,
    "2gb": shaped_like_2gb,
    "20k": shaped_like_20k,
}
BUDGETS = {"135m": 1.10, "2gb": 1.02}
CASTS = {"2gb": "float32"}
MICROSECONDS_A_TENSOR = 25
MOST_BYTES = {"20k": 20_000_000}
ROUNDS = {"135m": 9, "2gb": 3, "20k": 3}


def measure(quick: bool) -> list[Figure]:
    """Ratios of each size, and what its trace says of the load."""
    found: list[Figure] = []
    for size, make in {"135m": toy}.items() if quick else SIZES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = make(Path(scratch) / "model")
            found += _of_size(size, folder, 1 if quick else ROUNDS[size])
    return found


def _of_size(size: str, folder: Path, rounds: int) -> list[Figure]:
    def plain() -> Any:
        return AutoModelForCausalLM.from_pretrained(folder)

    plain()
    budget = BUDGETS.get(size)
    return [
        paired(f"load {size}, control", plain, control, rounds),
        paired(f"load {size}", plain, tracer.record, rounds, budget=budget),
        *_cast(size, folder, rounds),
        *_whole(size, plain, folder.with_name("trace"), rounds),
    ]


def _cast(size: str, folder: Path, rounds: int) -> list[Figure]:
    """The same where each value is read and made into another dtype."""
    if size not in CASTS:
        return []
    load = functools.partial(AutoModelForCausalLM.from_pretrained, folder, dtype=CASTS[size])
    load()
    return [
        paired(f"load {size}, cast, control", load, control, rounds),
        paired(f"load {size}, cast", load, tracer.record, rounds, budget=BUDGETS.get(size)),
    ]


def _whole(size: str, plain: Callable[[], Any], target: Path, rounds: int) -> list[Figure]:
    """Time a tensor that the recording adds to a load, and what it leaves on the disk."""
    added, processor, own = [], [], []
    tensors = 1
    for _ in range(rounds):
        alone = timed(plain)
        recorded = timed(functools.partial(_recorded, plain, target))
        trace = tracer.open_trace(target)
        tensors = max(1, trace.rows("tensor_loads"))
        told = trace.read("calls", ["recorder_ns"], [("parent", "==", -1)])["recorder_ns"].sum()
        added.append((recorded[0] - alone[0]) / tensors * 1e6)
        processor.append((recorded[1] - alone[1]) / tensors * 1e6)
        own.append(int(told) / tensors / 1e3)
    size_bytes = sum(file.stat().st_size for file in target.iterdir())
    return [
        figure(f"load {size}, a tensor, by itself", "us", own, budget=MICROSECONDS_A_TENSOR),
        figure(f"load {size}, a tensor, whole recording", "us", added, processor),
        figure(f"load {size}, trace", "bytes", [size_bytes], budget=MOST_BYTES.get(size)),
    ]


def _recorded(plain: Callable[[], Any], target: Path) -> None:
    with tracer.record(target, if_exists="replace"):
        plain()
