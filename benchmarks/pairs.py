"""Paired measurement: A B A B ..., ratios of neighbours, medians with their spread.

Machines are noisy, so no figure stands alone: each is a ratio within one run, beside a control
that measures the baseline against itself.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext


def paired(
    work: Callable[[], object], around: Callable[[], AbstractContextManager[object]], rounds: int
) -> dict[str, float]:
    """Ratios of wall and processor time of work inside a context to the same work alone.

    Entering and leaving the context is not timed: the ratio is that of the user's own call.

    The order within a pair alternates, so that a drift of the machine does not favour one side.
    """
    wall, processor = [], []
    for number in range(rounds):
        order = (nullcontext, around) if number % 2 == 0 else (around, nullcontext)
        times = {context: _timed(work, context) for context in order}
        wall.append(times[around][0] / times[nullcontext][0])
        processor.append(times[around][1] / times[nullcontext][1])
    return {
        "wall": round(statistics.median(wall), 3),
        "wall_low": round(min(wall), 3),
        "wall_high": round(max(wall), 3),
        "processor": round(statistics.median(processor), 3),
        "rounds": rounds,
    }


def control() -> AbstractContextManager[object]:
    """A context that does nothing: the baseline against itself."""
    return nullcontext()


def _timed(
    work: Callable[[], object], around: Callable[[], AbstractContextManager[object]]
) -> tuple[float, float]:
    gc.collect()
    with around():
        start, start_processor = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - start, time.process_time() - start_processor
