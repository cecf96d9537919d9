"""What a benchmark found: one figure a row, with its spread, its budget and the work behind it.

A figure that misses its budget says so. Ratios are judged by the processor's time where it was
measured: on a shared machine the clock counts the others' work too.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import statistics
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "pyarrow", "pandas")


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        name: What was measured; `words.py` says it in English and Chinese.
        unit: `x` (a ratio to the same work unrecorded), `ns`, `us`, `ms`, `s`, `bytes`, `share`.
        value: The median, of the clock where time was measured; None where the note says why not.
        low: Lower quartile.
        high: Upper quartile.
        processor: The median of the processor's time; None where it was not measured.
        processor_low: Its lower quartile.
        processor_high: Its upper quartile.
        rounds: How often it was measured; of ratios, pairs.
        budget: The most that it may be; None where there is none.
        note: What a reader must know to read the number.
    """

    name: str
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None
    processor: float | None = None
    processor_low: float | None = None
    processor_high: float | None = None
    rounds: int = 1
    budget: float | None = None
    note: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the figure misses its budget."""
        judged = self.value if self.processor is None else self.processor
        return self.budget is not None and judged is not None and judged > self.budget


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile; of one value itself three times."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def figure(
    name: str,
    unit: str,
    values: Sequence[float],
    processor: Sequence[float] = (),
    *,
    budget: float | None = None,
    note: str = "",
) -> Figure:
    """The figure that repeated measurements make."""
    low, value, high = quartiles(values)
    spread = quartiles(processor) if processor else (None, None, None)
    numbers = [None if one is None else float(f"{one:.4g}") for one in (low, value, high, *spread)]
    return Figure(
        name, unit, numbers[1], numbers[0], numbers[2], numbers[4], numbers[3], numbers[5],
        len(values), budget, note,
    )  # fmt: skip


def machine() -> dict[str, Any]:
    """When and on what was measured, in general terms: no name of a machine or a user."""
    import torch

    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        # Who else was running: what the clock's spread is to be read beside.
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    lines = told.read_text("utf-8").splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
