"""How long each token took: the first one apart, the others along the answer."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tracer.views.bins import folded
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
    whole_numbers,
)
from tracer.views.fonts import drawable, families
from tracer.views.labels import duration_label
from tracer.views.words import many, say, then

_MOST_DOTS: Final = 150
_FAR: Final = 3  # slower than so many middle gaps, a token is named
_MOST_NAMED: Final = 3
_LONGEST: Final = 16


def token_latency(times: pd.DataFrame) -> Chart:
    """The time to the first token and the gap before each other: steady, growing, or with jolts?

    Args:
        times: As `analysis.latency.token_times` gives them: step, tokens, text, at_ns,
            gap_ns.

    Returns:
        Above, the answer's whole time with the wait for the first token; below, the gap before
        each further token with their median. Many are folded: a band from the fastest to the
        slowest of neighbours, and the median as a line.
    """
    what = say("token_latency.what")
    times = times.dropna(subset=["gap_ns"])
    if times.empty:
        return empty_chart(what, say("token_latency.needs"))
    later = times.iloc[1:]
    chart = Chart(9, 3.4 if len(later) else 1.3)
    ratios = [1, 4] if len(later) else [1]
    panels = chart.subplots(len(ratios), 1, squeeze=False, height_ratios=ratios)
    _wait(panels[0, 0], times)
    if len(later):
        _gaps(panels[1, 0], later)
    chart.tell(what, _finding(times, later))
    return chart


def _wait(axes: Axes, times: pd.DataFrame) -> None:
    first, last = float(times["at_ns"].iloc[0]), float(times["at_ns"].iloc[-1])
    axes.barh([0], [first], 0.6, color=ORANGE)
    axes.barh([0], [last - first], 0.6, left=first, color=SKY)
    names(axes.yaxis, [0], [say("token_latency.call")])
    axes.set_xlim(0, last * 1.01)
    quiet(axes)
    durations(axes.xaxis, ticks=8)
    further = many("further_step", len(times) - 1)
    first_words = say("token_latency.to_first")
    handles = [Patch(color=ORANGE, label=first_words), Patch(color=SKY, label=further)]
    legend(axes, handles[: 2 if len(times) > 1 else 1])


def _gaps(axes: Axes, later: pd.DataFrame) -> None:
    step, gap = (later[name].to_numpy(dtype=float) for name in ("step", "gap_ns"))
    middle = float(np.median(gap))
    bins = folded(step, gap, _MOST_DOTS)
    axes.axhline(middle, color=INK, linewidth=1, linestyle="--", zorder=1)
    median = say("token_latency.median")
    handles: list[Artist] = [Line2D([], [], color=INK, linewidth=1, linestyle="--", label=median)]
    if bins.width == 1:
        axes.vlines(step, 0, gap, color=SKY, linewidth=1.2)
        axes.plot(step, gap, ".", color=BLUE, markersize=5)
        axes.set_xlabel(say("axis.step"), fontsize=9, color=INK)
    else:
        axes.fill_between(bins.places, bins.low, bins.high, color=SKY, linewidth=0)
        axes.plot(bins.places, bins.middle, color=BLUE, linewidth=1.2)
        axes.set_xlabel(say("axis.step_folded", width=bins.width), fontsize=9, color=INK)
        handles += [
            Line2D([], [], color=BLUE, label=say("token_latency.middle")),
            Patch(color=SKY, label=say("token_latency.spread")),
        ]
    # A jolt would flatten all the rest; it stands at the edge with its number.
    top = max(float(np.quantile(gap, 0.98)) * 1.25, middle * 2)
    axes.set_ylim(0, min(top, float(gap.max()) * 1.2))
    _name_jolts(axes, later, middle)
    axes.set_ylabel(say("axis.token_before"), fontsize=9, color=INK)
    axes.set_xlim(step[0] - 0.6, step[-1] + 0.6)
    quiet(axes)
    durations(axes.yaxis, ticks=5)
    whole_numbers(axes.xaxis)
    legend(axes, handles)


def _name_jolts(axes: Axes, later: pd.DataFrame, middle: float) -> None:
    high = axes.get_ylim()[1]
    slow = later[later["gap_ns"] > _FAR * middle].nlargest(_MOST_NAMED, "gap_ns")
    for _, token in slow.iterrows():
        text = "" if pd.isna(token["text"]) else f" {drawable(cut(str(token['text']), _LONGEST))}"
        is_off = float(token["gap_ns"]) > high
        is_right = token["step"] > later["step"].mean()
        axes.annotate(
            f"{duration_label(token['gap_ns'])}{text}{' ↑' if is_off else ''}",
            (float(token["step"]), min(float(token["gap_ns"]), high * 0.94)),
            (-5 if is_right else 5, 0), textcoords="offset points", fontsize=8, color=INK,
            ha="right" if is_right else "left", va="center", fontfamily=families(),
            parse_math=False, bbox={"facecolor": "white", "edgecolor": FAINT, "pad": 1.2},
        )  # fmt: skip


def _finding(times: pd.DataFrame, later: pd.DataFrame) -> str:
    first = duration_label(times["at_ns"].iloc[0])
    if later.empty:
        return say("token_latency.only", time=first)
    gaps = later["gap_ns"].to_numpy(dtype=float)
    # Beam search follows no choices: there only its steps can be counted.
    is_counted = bool(later["tokens"].notna().all())
    count = float(later["tokens"].sum()) if is_counted else len(later)
    speed = count / gaps.sum() * 1e9
    what = "tokens_a_second" if is_counted else "steps_a_second"
    rate = say(f"token_latency.{what}", speed=f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}")
    slowest = later.loc[later["gap_ns"].idxmax()]
    finding = say(
        "token_latency.finding",
        time=first,
        gap=duration_label(np.median(gaps)),
        rate=rate,
        slowest=duration_label(slowest["gap_ns"]),
        step=f"{slowest['step']:,}",
    )
    third = len(gaps) // 3
    if third >= 10:
        growth = np.median(gaps[-third:]) / np.median(gaps[:third])
        finding = then(finding, say("token_latency.growth", growth=f"{growth:.2f}"))
    return finding
