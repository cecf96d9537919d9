"""Paired measurement: A B A B ..., ratios of neighbours, medians with their quartiles.

Machines are noisy, so no figure stands alone: each is a ratio within one run, beside a control
that measures the baseline against itself.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from benchmarks.figures import Figure, figure

Around = Callable[[], AbstractContextManager[object]]
Times = tuple[float, float]  # seconds by the clock, and of the processor


def paired(
    name: str,
    work: Callable[[], object],
    around: Around,
    rounds: int,
    *,
    budget: float | None = None,
    note: str = "",
) -> Figure:
    """Ratio of work inside a context to the same work alone.

    Entering and leaving the context is not timed: the ratio is that of the user's own call.
    """

    def alone() -> Times:
        return timed(work)

    def inside() -> Times:
        return timed(work, around)

    return ratio(name, alone, inside, rounds, budget=budget, note=note)


def ratio(
    name: str,
    alone: Callable[[], Times],
    changed: Callable[[], Times],
    rounds: int,
    *,
    budget: float | None = None,
    note: str = "",
) -> Figure:
    """Ratio of two pieces of work that time themselves.

    The order within a pair alternates, so that a drift of the machine does not favour one side.
    """
    wall, processor = [], []
    for number in range(rounds):
        order = (alone, changed) if number % 2 == 0 else (changed, alone)
        times = {piece: piece() for piece in order}
        wall.append(times[changed][0] / times[alone][0])
        processor.append(times[changed][1] / times[alone][1])
    return figure(name, "x", wall, processor, budget=budget, note=note)


def control() -> AbstractContextManager[object]:
    """A context that does nothing: the baseline against itself."""
    return nullcontext()


def timed(work: Callable[[], object], around: Around = nullcontext) -> Times:
    """Seconds that work takes inside a context, by the clock and of the processor."""
    gc.collect()
    with around():
        start, start_processor = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - start, time.process_time() - start_processor
