"""Turns of a conversation beside each other: time to the first token, and memory."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tracer.analysis.turns import FEWEST_POINTS, turn_fit
from tracer.views.figure import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    Chart,
    cut,
    durations,
    empty_chart,
    quiet,
    sizes,
    whole_numbers,
)
from tracer.views.fonts import drawable, families
from tracer.views.labels import duration_label, share_label
from tracer.views.words import listed, say, then

# Colour, mark and stroke: three ways to tell conversations apart.
_SERIES: Final[tuple[tuple[str, str, Any], ...]] = (
    (BLUE, "o", "-"),
    (ORANGE, "s", "--"),
    ("#4d7a3a", "^", "-."),
    (INK, "D", ":"),
)
_APART: Final = (0.03, 0.09)  # of an axis: closer numbers would overlap
_LONGEST: Final = 30
_GOOD_FIT: Final = 0.95


def turn_comparison(turns: pd.DataFrame) -> Chart:
    """What each turn cost: does the time to the first token grow with the history, and how?

    Args:
        turns: As `analysis.turns.turns` gives them: turn, prompt_tokens, fed_tokens,
            first_token_ns, cache_bytes; with a column `conversation`, up to four beside each other.

    Returns:
        Time to the first token against the length of the prompt, with the fit a + b n + c n^2 from
        four turns on; right, the tokens that went through the model, and the cache, by turn.
    """
    what = say("turn_comparison.what")
    known = turns.dropna(subset=["prompt_tokens", "first_token_ns"])
    if known.empty:
        return empty_chart(what, say("turn_comparison.needs"))
    if "conversation" not in known:
        known = known.assign(conversation=say("turn_comparison.this"))
    groups = list(known.groupby("conversation", sort=False))[: len(_SERIES)]
    known = known[known["conversation"].isin([name for name, _ in groups])]
    fits = turn_fit(known).set_index("conversation")
    chart = Chart(9, 3.9)
    grid = chart.add_gridspec(2, 2, width_ratios=[3, 2])
    time = chart.add_subplot(grid[:, 0])
    fed, memory = chart.add_subplot(grid[0, 1]), chart.add_subplot(grid[1, 1])
    handles: list[Line2D] = []
    marked: list[tuple[float, float]] = []
    for (name, group), (colour, mark, stroke) in zip(groups, _SERIES, strict=False):
        style: dict[str, Any] = {"color": colour, "marker": mark, "markersize": 5}
        _times(time, group, fits.loc[name], style, stroke)
        _numbers(time, group, known, marked)
        turn = group["turn"].to_numpy(dtype=float)
        for axes, column in ((fed, "fed_tokens"), (memory, "cache_bytes")):
            axes.plot(turn, group[column].to_numpy(dtype=float), linestyle=stroke, **style)
        own = {"name": cut(drawable(str(name)), _LONGEST), "formula": _formula(fits.loc[name])}
        label = say("turn_comparison.series", **own)
        handles.append(Line2D([], [], linestyle=stroke, label=label, **style))
    _axes(time, fed, memory, known)
    chart.legend(
        handles=handles, loc="outside lower left", frameon=False, fontsize=9, labelcolor=INK,
        prop={"family": families(), "size": 9},
    )  # fmt: skip
    chart.tell(what, _finding(groups, fits))
    return chart


def _times(
    axes: Axes, group: pd.DataFrame, fit: pd.Series[Any], style: dict[str, Any], stroke: Any
) -> None:
    n = group["prompt_tokens"].to_numpy(dtype=float)
    time = group["first_token_ns"].to_numpy(dtype=float)
    axes.plot(n, time, linestyle="none", **style)
    if not np.isnan(fit["c"]):
        curve = np.linspace(n.min(), n.max(), 100)
        fitted = fit["a"] + fit["b"] * curve + fit["c"] * curve**2
        axes.plot(curve, fitted, color=style["color"], linestyle=stroke, linewidth=1.2)


def _numbers(
    axes: Axes, group: pd.DataFrame, known: pd.DataFrame, marked: list[tuple[float, float]]
) -> None:
    """The turn over each mark, but not where a number stands already: it could not be read."""
    across, up = known["prompt_tokens"].max() or 1, known["first_token_ns"].max() or 1
    columns = ("turn", "prompt_tokens", "first_token_ns")
    for turn, x, y in zip(*(group[column] for column in columns), strict=True):
        place = x / across, y / up
        if all(abs(place[0] - a) > _APART[0] or abs(place[1] - b) > _APART[1] for a, b in marked):
            marked.append(place)
            axes.annotate(
                str(turn), (x, y), (0, 6), textcoords="offset points", ha="center", fontsize=7,
                color=INK,
            )  # fmt: skip


def _axes(time: Axes, fed: Axes, memory: Axes, known: pd.DataFrame) -> None:
    for axes in (time, fed, memory):
        quiet(axes)
        axes.set_ylim(bottom=0)
        whole_numbers(axes.xaxis)
    for axes in (fed, memory):
        axes.set_xlim(known["turn"].min() - 0.5, known["turn"].max() + 0.5)
    time.set_ylim(0, float(known["first_token_ns"].max()) * 1.15)
    durations(time.yaxis)
    time.set_ylabel(say("axis.first_token"), fontsize=9, color=INK)
    time.set_xlabel(say("axis.prompt_length"), fontsize=9, color=INK)
    fed.set_ylim(0, float(known["fed_tokens"].max()) * 1.15)
    fed.set_ylabel(say("axis.fed"), fontsize=9, color=INK)
    fed.grid(True, axis="y", color=FAINT, linewidth=0.6)
    most = known["cache_bytes"].max()
    memory.set_ylim(0, 1 if pd.isna(most) else float(most) * 1.15)
    sizes(memory.yaxis, ticks=4)
    memory.set_ylabel(say("axis.cache"), fontsize=9, color=INK)
    memory.set_xlabel(say("axis.turn"), fontsize=9, color=INK)


def _finding(groups: list[tuple[Any, pd.DataFrame]], fits: pd.DataFrame) -> str:
    parts = []
    for name, group in groups:
        part = _turn("first", group.iloc[0])
        if len(group) > 1:
            part = listed(part, _turn("last", group.iloc[-1]))
        fit = fits.loc[name]
        # A share of a curve that does not fit, or that falls before it rises, says nothing.
        is_telling = fit["r_squared"] > _GOOD_FIT and 0 <= fit["quadratic_share"] <= 1
        if is_telling and len(groups) == 1:
            share = share_label(fit["quadratic_share"], 1)
            part = listed(part, say("turn_comparison.quadratic", share=share))
        if len(groups) > 1:
            shown = cut(drawable(str(name)), _LONGEST)
            part = say("turn_comparison.series", name=shown, formula=part)
        parts.append(part)
    return then(*parts)


def _turn(which: str, turn: pd.Series[Any]) -> str:
    time = duration_label(turn["first_token_ns"])
    return say(f"turn_comparison.{which}", time=time, turn=turn["turn"])


def _formula(fit: pd.Series[Any]) -> str:
    """`1.20 ms + 340 µs n − 2.00 ns n²`, and how much of the variance that explains."""
    if np.isnan(fit["c"]):
        return say("turn_comparison.no_fit", number=FEWEST_POINTS)
    text = duration_label(fit["a"]).replace("-", "−")
    for value, unit in [(fit["b"], "n"), (fit["c"], "n²")]:
        text += f" {'−' if value < 0 else '+'} {_small(abs(value))} {unit}"
    return text if np.isnan(fit["r_squared"]) else f"{text}  (R² {fit['r_squared']:.3f})"


def _small(nanoseconds: float) -> str:
    # A quadratic part may be less than a nanosecond and matter: n² is large.
    return duration_label(nanoseconds) if nanoseconds >= 1 else f"{nanoseconds:.2g} ns"
