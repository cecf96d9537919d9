"""The positions that rotary embeddings turn by, on their three axes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tracer.views.bins import folded
from tracer.views.figure import (
    BLUE,
    FAINT,
    INK,
    SKY,
    Chart,
    empty_chart,
    legend,
    quiet,
    whole_numbers,
)
from tracer.views.words import many, say, then

_AXES: Final = ("position_t", "position_h", "position_w")
_SHADE: Final = "#f6edbf"  # a light YELLOW: images behind the lines
_PLAIN: Final[dict[str, Any]] = {"color": INK, "linewidth": 0.8, "linestyle": ":"}
_MOST_SPANS: Final = 40


def rope_positions(tokens: pd.DataFrame, row: int | None = None) -> Chart:
    """The position of each token on three axes: how do an image's tokens share positions?

    Args:
        tokens: The table `tokens` of one call: row, index, kind, image, position_t, position_h,
            position_w.
        row: Row of the batch; the first one without.

    Returns:
        An axis below the other: position against index, what plain counting would give as a thin
        line, images shaded. Generated tokens, whose positions no table holds, are left out.
    """
    what = say("rope_positions.what")
    row = int(tokens["row"].min()) if row is None and len(tokens) else row
    known = tokens[tokens["row"] == row].dropna(subset=list(_AXES)).sort_values("index")
    if known.empty:
        return empty_chart(what, say("rope_positions.needs"))
    chart = Chart(9, 4.3)
    panels = chart.subplots(len(_AXES), 1, sharex=True, sharey=True)
    for axes, name in zip(panels, _AXES, strict=True):
        _panel(axes, known, name)
        axes.set_ylabel(say(f"rope_positions.{name}"), fontsize=9, color=INK)
    reached = known[list(_AXES)].to_numpy(dtype=float)
    margin = 0.06 * max(1, reached.max() - reached.min())
    panels[0].set_ylim(reached.min() - margin, reached.max() + margin)
    plain = Line2D([], [], **_PLAIN, label=say("rope_positions.plain"))
    shade = Patch(color=_SHADE, label=say("rope_positions.image"))
    legend(panels[0], [plain, *([shade] if _spans(known) else [])])
    panels[-1].set_xlabel(say("axis.index"), fontsize=9, color=INK)
    chart.tell(what, _finding(known))
    return chart


def _panel(axes: Axes, tokens: pd.DataFrame, name: str) -> None:
    index = tokens["index"].to_numpy(dtype=float)
    for low, high in _spans(tokens)[:_MOST_SPANS]:
        axes.axvspan(low - 0.5, high + 0.5, facecolor=_SHADE, linewidth=0)
    axes.plot(index[[0, -1]], index[[0, -1]], **_PLAIN)
    bins = folded(index, tokens[name].to_numpy(dtype=float))
    if bins.width > 1:
        axes.fill_between(bins.places, bins.low, bins.high, color=SKY, linewidth=0)
        axes.plot(bins.places, bins.middle, color=BLUE, linewidth=1.2)
    else:
        axes.plot(bins.places, bins.middle, color=BLUE, linewidth=1.4, drawstyle="steps-mid")
    quiet(axes)
    axes.grid(True, axis="y", color=FAINT, linewidth=0.6)
    axes.set_xlim(index[0] - 0.5, index[-1] + 0.5)
    axes.locator_params(axis="y", nbins=4, integer=True)
    whole_numbers(axes.xaxis)


def _spans(tokens: pd.DataFrame) -> list[tuple[int, int]]:
    """First and last index of each image or video."""
    seen = tokens[tokens["kind"].isin(["image", "video"])]
    if seen.empty:
        return []
    index, image = (seen[name].fillna(-1).to_numpy(dtype=int) for name in ("index", "image"))
    starts = (np.diff(index, prepend=-2) != 1) | (np.diff(image, prepend=-2) != 0)
    spans = seen["index"].groupby(starts.cumsum()).agg(["min", "max"])
    return [(int(low), int(high)) for low, high in spans.to_numpy()]


def _finding(tokens: pd.DataFrame) -> str:
    last = tokens.iloc[-1]
    axes = list(_AXES)
    reached = int(max(last[axes]))
    behind = int(last["index"]) - reached
    spans = _spans(tokens)
    if not spans:
        is_same = tokens[axes].nunique(axis=1).eq(1).all()
        way = "same" if is_same else "different"
        count = many("prompt_token", len(tokens))
        return say(f"rope_positions.{way}", tokens=count, place=f"{reached:,}")
    low, high = spans[0]
    image = tokens[tokens["index"].between(low, high)]
    used = int((image[axes].max() - image[axes].min()).max()) + 1
    count = many(f"{image['kind'].iloc[0]}_token", high - low + 1)
    finding = say("rope_positions.take", tokens=count, positions=many("position", used))
    if len(spans) > 1:
        finding = say("rope_positions.first_of", finding=finding, number=len(spans))
    last = say("rope_positions.last", place=f"{reached:,}", behind=f"{behind:,}")
    return then(finding, last)
