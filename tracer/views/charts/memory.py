"""Chart of a process's memory over time, with the stages of a load behind it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tracer.views.charts.loading import stage_runs
from tracer.views.figure import (
    BLUE,
    INK,
    ORANGE,
    SKY,
    Chart,
    durations,
    empty_chart,
    legend,
    quiet,
    sizes,
)
from tracer.views.fonts import drawable, text_inches
from tracer.views.labels import bytes_label, duration_label
from tracer.views.words import listed, many, say, stage_name

_MOST_POINTS: Final = 600
_BAND: Final = "#eef1f4"
_NAME_POINTS: Final = 8
_INCHES: Final = 2.1  # that the axes are high, about
_MOST_ROOM: Final = 0.6  # of them, for names
_STAGE_WIDTH: Final = 0.022  # of the time shown; narrower stages have no name
_LINES: Final = (
    ("anonymous_bytes", BLUE, "-"),
    ("file_bytes", ORANGE, "--"),
    ("device_allocated_bytes", SKY, "-."),
)


def memory_over_time(memory: pd.DataFrame, stages: pd.DataFrame | None = None) -> Chart:
    """How memory grew: what needs its own, what is mapped from files, what is on accelerators?

    Args:
        memory: The table `memory`, or its columns start_ns, anonymous_bytes, file_bytes,
            device_allocated_bytes, and name for a band behind first forwards.
        stages: Columns stage, start_ns, duration_ns, as `loads.load_stages` gives them: bands
            behind the lines.

    Returns:
        A line a kind of memory with its samples; of very many the highest of each bin is drawn. A
        kind that the system does not tell has no line.
    """
    what = say("memory_over_time.what")
    samples = memory.dropna(subset=["start_ns"]).sort_values("start_ns")
    lines = [line for line in _LINES if line[0] in samples and samples[line[0]].notna().any()]
    if not lines:
        return empty_chart(what)
    origin = int(samples["start_ns"].iloc[0])
    if stages is not None and not stages.empty:
        origin = min(origin, int(stages["start_ns"].min()))
    chart = Chart(9, 3.2)
    axes = chart.subplots()
    for column, colour, style in lines:
        times, values = _binned(samples.dropna(subset=[column]), column, origin)
        mark = "o" if len(times) <= 80 else None
        axes.plot(times, values, color=colour, linestyle=style, linewidth=1.8,
                  label=say(f"parts.{column}"), marker=mark, markersize=3.5, zorder=3)  # fmt: skip
    quiet(axes)
    axes.margins(x=0.01)
    names = _bands(axes, _with_forwards(samples, stages), origin)
    _make_room(axes, names)
    legend(axes)
    axes.set_xlabel(say("axis.since_start"), fontsize=9, color=INK)
    durations(axes.xaxis)
    sizes(axes.yaxis, ticks=5)
    chart.tell(what, _finding(samples, lines, origin))
    return chart


def _with_forwards(samples: pd.DataFrame, stages: pd.DataFrame | None) -> pd.DataFrame:
    """The stages, and the first forward of each model, which has a sample before and after."""
    known = [] if stages is None else [stages[["stage", "start_ns", "duration_ns"]]]
    if "name" in samples:
        before = samples.loc[samples["name"] == "before the first forward", "start_ns"]
        after = samples.loc[samples["name"] == "after the first forward", "start_ns"].to_numpy()
        for start in before:
            end = min((one for one in after if one >= start), default=start)
            row = {
                "stage": say("parts.first_forward"),
                "start_ns": start,
                "duration_ns": end - start,
            }
            known.append(pd.DataFrame([row]))
    columns = ["stage", "start_ns", "duration_ns"]
    return pd.concat(known, ignore_index=True) if known else pd.DataFrame(columns=columns)


def _binned(samples: pd.DataFrame, column: str, origin: int) -> tuple[Any, Any]:
    times = samples["start_ns"].to_numpy("float64") - origin
    values = samples[column].to_numpy("float64")
    if len(times) <= _MOST_POINTS:
        return times, values
    bins = np.array_split(np.arange(len(times)), _MOST_POINTS)
    highest = [part[values[part].argmax()] for part in bins]
    return times[highest], values[highest]


def _make_room(axes: Axes, names: list[str]) -> None:
    """Begin the bytes at 0 and end them so that the stages' names stand above all lines."""
    longest = max((text_inches(name, _NAME_POINTS) for name in names), default=0.0)
    room = min((longest + 0.12) / _INCHES, _MOST_ROOM)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] / (1 - room))


def _bands(axes: Axes, stages: pd.DataFrame, origin: int) -> list[str]:
    """Every other stage shaded, the wide ones named: no colour has to be told apart."""
    runs, names = stage_runs(stages, origin), []
    span = max(axes.get_xlim()[1], max((end for _, _, end in runs), default=0))
    begin = min(axes.get_xlim()[0], min((start for _, start, _ in runs), default=0) - span * 0.01)
    axes.set_xlim(begin, max(axes.get_xlim()[1], span * 1.005))
    narrowest, last = span * _STAGE_WIDTH, -span
    for number, (stage, start, end) in enumerate(runs):
        if number % 2 == 0:
            axes.axvspan(start, end, color=_BAND, zorder=0, linewidth=0)
        if end - start >= narrowest and (start + end) / 2 - last >= narrowest:
            last = (start + end) / 2
            names.append(drawable(stage_name(stage, "figure.block")))
            axes.text(
                (start + end) / 2, 0.98, names[-1], transform=axes.get_xaxis_transform(),
                rotation=90, fontsize=_NAME_POINTS, color=INK, ha="center", va="top", zorder=1,
            )  # fmt: skip
    return names


def _finding(samples: pd.DataFrame, lines: list[Any], origin: int) -> str:
    told = []
    for column, _, _ in lines:
        values = samples[column].dropna()
        most, grown = bytes_label(values.max()), bytes_label(values.max() - values.iloc[0])
        kind = say(f"parts.{column}")
        told.append(say("memory_over_time.peak", kind=kind, most=most, grown=grown))
    span = duration_label(int(samples["start_ns"].iloc[-1]) - origin)
    seen = many("sample", len(samples))
    return say("memory_over_time.finding", peaks=listed(*told), samples=seen, time=span)
