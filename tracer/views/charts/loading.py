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
from tracer.views.fonts import FIRST_IDEOGRAPH, drawable
from tracer.views.labels import bytes_label, duration_label, share_label
from tracer.views.words import listed, many, say, stage_name, then

_MOST_LANES: Final = 12
_SHORTEST_NAME: Final = 4  # characters; a name cut shorter says nothing
_MOST_BARS: Final = 400  # reads in a lane; more are folded into shares of time
_GROUPS: Final = {"loading": BLUE, "inputs": SKY, "generating": ORANGE, "lab": FAINT}


def load_waterfall(tensor_loads: pd.DataFrame, stages: pd.DataFrame | None = None) -> Chart:
    """When each worker read which tensor: is the load waiting, and for what?

    Args:
        tensor_loads: The table, or its columns key, worker, size_bytes, start_ns, read_ns, cast_ns.
        stages: Columns stage, start_ns, duration_ns, as `loads.load_stages` gives them: what the
            loading thread was doing, as a lane of its own over the whole load.

    Returns:
        A lane a worker, with reads and casts, and below the bytes read so far. Of more than 400
        reads in a lane neighbours are folded: its height is the share of time that they took. Of
        many workers the busiest have lanes.
    """
    what = say("load_waterfall.what")
    # Of a tensor that came whole only the cast is seen.
    loads = tensor_loads.dropna(subset=["start_ns"]).fillna({"worker": "?"})
    loads = loads[loads["read_ns"].notna() | loads["cast_ns"].notna()]
    if loads.empty:
        return empty_chart(what)
    first = loads["start_ns"].min()
    has_stages = stages is not None and not stages.empty
    origin = min(first, stages["start_ns"].min()) if stages is not None and has_stages else first
    begin = loads["start_ns"].to_numpy(dtype=float) - origin
    read = begin + loads["read_ns"].fillna(0).to_numpy(dtype=float)
    done = read + loads["cast_ns"].fillna(0).to_numpy(dtype=float)
    busy = loads.assign(busy=done - begin).groupby("worker")["busy"].sum()
    workers = sorted(busy.nlargest(_MOST_LANES).index)
    rows = len(workers) + has_stages
    chart = Chart(9, 1.9 + 0.34 * rows)
    lanes, total = chart.subplots(2, 1, sharex=True, height_ratios=[0.4 + 0.34 * rows, 1])
    end = done.max()
    if stages is not None and has_stages:
        end = max(end, _stage_lane(lanes, -1, stages, origin))
    is_folded = False
    for lane, worker in enumerate(workers):
        here = loads["worker"].eq(worker).to_numpy(dtype=bool)
        if here.sum() > _MOST_BARS:
            is_folded = True
            _shares(lanes, lane, begin[here], read[here], done[here], end)
            continue
        parts = [(begin[here], read[here], BLUE), (read[here], done[here], ORANGE)]
        # None is drawn too short to be seen, so what takes longer in all comes last, on top.
        for starts, ends, colour in sorted(parts, key=lambda part: (part[1] - part[0]).sum()):
            _bars(lanes, lane, starts, ends, end, colour)
    quiet(lanes)
    shades = {"read": BLUE, "cast": ORANGE}
    legend(
        lanes, [Patch(color=shade, label=say(f"parts.{name}")) for name, shade in shades.items()]
    )
    texts = [say("parts.stages"), *workers] if has_stages else workers
    names(lanes.yaxis, range(-has_stages, len(workers)), texts)
    lanes.set_ylim(len(workers) - 0.5, -0.5 - has_stages)
    _bytes_so_far(total, done, loads["size_bytes"].fillna(0).to_numpy(dtype=float))
    total.set_xlim(0, end * 1.01)
    if has_stages:
        total.set_xlabel(say("axis.since_load"), fontsize=9, color=INK)
    finding = say(
        "load_waterfall.finding",
        tensors=many("tensor", len(loads)),
        size=bytes_label(loads["size_bytes"].sum()),
        time=duration_label(done.max() - begin.min()),
        workers=many("worker", len(busy)),
    )
    is_whole = len(busy) == len(workers)
    drawn = "" if is_whole else say("load_waterfall.drawn", number=len(workers))
    folded = say("load_waterfall.folded") if is_folded else ""
    chart.tell(what, then(listed(finding, drawn), _slowest(loads, done - begin), folded))
    return chart


def _slowest(loads: pd.DataFrame, times: Any) -> str:
    place = int(times.argmax())
    key, time = cut(loads["key"].iloc[place], 40), duration_label(times[place])
    return say("load_waterfall.slowest", key=key, time=time)


def stage_runs(stages: pd.DataFrame, origin: int) -> list[tuple[str, float, float]]:
    """Stages as name, start and end in nanoseconds since `origin`; equal neighbours are one."""
    known = stages.dropna(subset=["start_ns", "duration_ns"]).sort_values("start_ns")
    ends = known["start_ns"] + known["duration_ns"]
    runs: list[tuple[str, float, float]] = []
    for stage, start, end in zip(known["stage"], known["start_ns"], ends, strict=True):
        if runs and runs[-1][0] == stage:
            runs[-1] = (stage, runs[-1][1], float(end - origin))
        else:
            runs.append((str(stage), float(start - origin), float(end - origin)))
    return runs


def _stage_lane(axes: Axes, lane: int, stages: pd.DataFrame, origin: int) -> float:
    """Stages as blocks in two shades by turns, the wide ones named; gives where the last ends."""
    runs = stage_runs(stages, origin)
    last = runs[-1][2]
    for number, (stage, start, end) in enumerate(runs):
        shade = FAINT if number % 2 else SKY
        axes.broken_barh([(start, end - start)], (lane - 0.35, 0.7), facecolors=shade)
        name = drawable(stage_name(stage, "figure.block"))
        room = int((end - start) / last * 105) // _widest(name)
        if room >= min(_SHORTEST_NAME, len(name)):
            axes.text((start + end) / 2, lane, cut(name, room), ha="center",
                      va="center", fontsize=8, color=INK, clip_on=True)  # fmt: skip
    return last


def _widest(text: str) -> int:
    """Characters of Latin that one of a text takes the room of."""
    return 2 if any(one >= FIRST_IDEOGRAPH for one in text) else 1


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


def _shares(axes: Axes, lane: int, begin: Any, read: Any, done: Any, span: float) -> None:
    """One lane's reads, casts above them, as shares of the time of each of many bins."""
    edges = np.linspace(0, span, _MOST_BARS + 1)
    level = np.full(_MOST_BARS, lane + 0.35)
    for starts, ends, colour in ((begin, read, BLUE), (read, done, ORANGE)):
        busy = np.diff(_busy_until(edges, starts, ends)) / np.diff(edges)
        upper = np.maximum(level - 0.7 * busy, lane - 0.35)
        axes.fill_between(
            edges, np.append(level, level[-1]), np.append(upper, upper[-1]), step="post",
            color=colour, linewidth=0,
        )  # fmt: skip
        level = upper


def _busy_until(times: Any, starts: Any, ends: Any) -> Any:
    """How much of intervals lay before each of some times, added up."""
    total = 0.0
    for edges, sign in ((starts, 1), (ends, -1)):
        edges = np.sort(edges)
        before = np.searchsorted(edges, times)
        total = total + sign * (before * times - np.append(0, edges.cumsum())[before])
    return total


def _bytes_so_far(axes: Axes, done: Any, size: Any) -> None:
    order = np.argsort(done)
    times = np.append(0, done[order])
    so_far = np.append(0, size[order].cumsum())
    axes.fill_between(times, so_far, step="post", color=SKY)
    axes.step(times, so_far, where="post", color=BLUE, linewidth=1)
    axes.set_ylabel(say("axis.read_so_far"), fontsize=9, color=INK)
    axes.set_xlabel(say("axis.since_read"), fontsize=9, color=INK)
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
    what = say("stage_times.what")
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
    legend(axes, [Patch(color=_GROUPS[group], label=say(f"parts.{group}")) for group in seen])
    quiet(axes)
    names(axes.yaxis, range(len(known)), [stage_name(stage) for stage in stages])
    axes.set_ylim(len(known) - 0.4, -0.6)
    durations(axes.xaxis)
    longest = int(times.argmax())
    finding = say(
        "stage_times.finding",
        stage=stage_name(stages[longest]),
        time=duration_label(times[longest]),
        share=share_label(times[longest], times.sum()),
        stages=many("seen_stage", len(known)),
    )
    chart.tell(what, finding)
    return chart


def _group(stage: str) -> str:
    """Which part of the run a stage belongs to, by its place in the schema."""
    order = list(STAGES)
    if stage not in STAGES or stage == "recorder":
        return "lab"
    place = order.index(stage)
    if place <= order.index("verify"):
        return "loading"
    return "inputs" if place <= order.index("transfer") else "generating"
