"""Paired measurement: A B A B ..., ratios of neighbours, medians with their spread.

Machines are noisy, so no figure stands alone: each is a ratio within one run, beside a control
that measures the baseline against itself.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable


def paired(
    baseline: Callable[[], object], other: Callable[[], object], rounds: int
) -> dict[str, float]:
    """Ratios of wall and processor time of `other` to `baseline`, one pair a round.

    The order within a pair alternates, so that a drift of the machine does not favour one side.
    """
    wall, processor = [], []
    for number in range(rounds):
        first, second = (baseline, other) if number % 2 == 0 else (other, baseline)
        times = [_timed(first), _timed(second)]
        if number % 2:
            times.reverse()
        wall.append(times[1][0] / times[0][0])
        processor.append(times[1][1] / times[0][1])
    return {
        "wall": round(statistics.median(wall), 3),
        "wall_low": round(min(wall), 3),
        "wall_high": round(max(wall), 3),
        "processor": round(statistics.median(processor), 3),
        "rounds": rounds,
    }


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    gc.collect()
    start, start_processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - start_processor
