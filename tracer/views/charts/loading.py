"""Charts of a load: the reads of its tensors, and the time of each stage."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from tracer.schema import STAGES
from tracer.views.figure import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SKY,
    Chart,
    cut,
    durations,
    empty_chart,
    legend,
    names,
    quiet,
    sizes,
)
from tracer.views.labels import bytes_label, duration_label, plural, share_label

_MOST_LANES: Final = 12
_GROUPS: Final = {"loading": BLUE, "inputs": SKY, "generating": ORANGE, "the lab itself": FAINT}


def load_waterfall(tensor_loads: pd.DataFrame) -> Chart:
    """When each worker read which tensor: is the load waiting, and for what?

    Args:
        tensor_loads: The table, or its columns key, worker, size_bytes, start_ns, read_ns, cast_ns.

    Returns:
        A lane a worker, with reads and casts (bars closer than a pixel run together), and below
        the bytes read so far. Of many workers the busiest have lanes.
    """
    what = "Reads of the checkpoint's tensors over time, by worker"
    loads = tensor_loads.dropna(subset=["start_ns", "read_ns"]).fillna({"worker": "?"})
    if loads.empty:
        return empty_chart(what)
    begin = loads["start_ns"].to_numpy(dtype=float)
    begin -= begin.min()
    read = begin + loads["read_ns"].to_numpy(dtype=float)
    done = read + loads["cast_ns"].fillna(0).to_numpy(dtype=float)
    busy = loads.groupby("worker")["read_ns"].sum()
    workers = sorted(busy.nlargest(_MOST_LANES).index)
    chart = Chart(9, 1.9 + 0.34 * len(workers))
    lanes, total = chart.subplots(2, 1, sharex=True, height_ratios=[0.4 + 0.34 * len(workers), 1])
    for lane, worker in enumerate(workers):
        here = loads["worker"].eq(worker).to_numpy(dtype=bool)
        _bars(lanes, lane, begin[here], read[here], done.max(), BLUE)
        _bars(lanes, lane, read[here], done[here], done.max(), ORANGE)
    quiet(lanes)
    legend(lanes, [Patch(color=BLUE, label="read or map"), Patch(color=ORANGE, label="cast, copy")])
    names(lanes.yaxis, range(len(workers)), workers)
    lanes.set_ylim(len(workers) - 0.5, -0.5)
    _bytes_so_far(total, done, loads["size_bytes"].fillna(0).to_numpy(dtype=float))
    rest = "" if len(busy) == len(workers) else f", the {len(workers)} busiest drawn"
    slowest = loads.loc[(loads["read_ns"] + loads["cast_ns"].fillna(0)).idxmax()]
    chart.tell(
        what,
        f"{plural(len(loads), 'tensor')}, {bytes_label(loads['size_bytes'].sum())} in "
        f"{duration_label(done.max())} by {plural(len(busy), 'worker')}{rest}; slowest "
        f"{cut(slowest['key'], 40)}, {duration_label(slowest['read_ns'])} to read",
    )
    return chart


def _bars(axes: Axes, lane: int, starts: Any, ends: Any, span: float, colour: str) -> None:
    """One lane's intervals, those closer than a pixel as one; none too short to be seen."""
    pixel = span / 1500
    order = np.argsort(starts)
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.append(True, starts[1:] > ends[:-1] + pixel)
    last = np.append(first[1:], True)
    lengths = np.maximum(ends[last] - starts[first], pixel)
    bars = list(zip(starts[first], lengths, strict=True))
    axes.broken_barh(bars, (lane - 0.35, 0.7), facecolors=colour)


def _bytes_so_far(axes: Axes, done: Any, size: Any) -> None:
    order = np.argsort(done)
    times = np.append(0, done[order])
    so_far = np.append(0, size[order].cumsum())
    axes.fill_between(times, so_far, step="post", color=SKY)
    axes.step(times, so_far, where="post", color=BLUE, linewidth=1)
    axes.set_ylabel("read or\nmapped", fontsize=9, color=INK)
    axes.set_xlabel("since the first read", fontsize=9, color=INK)
    axes.set_ylim(bottom=0)
    quiet(axes)
    durations(axes.xaxis)
    sizes(axes.yaxis, ticks=3)


def stage_times(totals: pd.DataFrame) -> Chart:
    """How long each stage took: where does the time go?

    Args:
        totals: A row a stage with `stage`, `events` and `total_ns`, as `stage_totals` gives it.

    Returns:
        A bar a stage in the order given.
    """
    what = "Time of each stage"
    known = totals.dropna(subset=["total_ns"])
    if known.empty:
        return empty_chart(what)
    stages = known["stage"].tolist()
    times = known["total_ns"].to_numpy(dtype=float)
    chart = Chart(9, 0.9 + 0.22 * len(known))
    axes = chart.subplots()
    colours = [_GROUPS[_group(stage)] for stage in stages]
    bars = axes.barh(range(len(known)), times, color=colours)
    texts = [
        f"{duration_label(time)}  ({events:,} ×)"
        for time, events in zip(times, known["events"], strict=True)
    ]
    axes.bar_label(bars, texts, padding=4, fontsize=8, color=INK)
    axes.set_xlim(0, times.max() * 1.18)
    seen = dict.fromkeys(map(_group, stages))
    legend(axes, [Patch(color=_GROUPS[group], label=group) for group in seen])
    quiet(axes)
    names(axes.yaxis, range(len(known)), stages)
    axes.set_ylim(len(known) - 0.4, -0.6)
    durations(axes.xaxis)
    longest = int(times.argmax())
    chart.tell(
        what,
        f"{stages[longest]} took longest: {duration_label(times[longest])}, "
        f"{share_label(times[longest], times.sum())} of {plural(len(known), 'stage')}",
    )
    return chart


def _group(stage: str) -> str:
    """Which part of the run a stage belongs to, by its place in the schema."""
    order = list(STAGES)
    if stage not in STAGES or stage == "recorder":
        return "the lab itself"
    place = order.index(stage)
    if place <= order.index("verify"):
        return "loading"
    return "inputs" if place <= order.index("transfer") else "generating"
