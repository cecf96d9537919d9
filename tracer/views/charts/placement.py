"""Chart of where a model's tensors lie: on which device, or offloaded to what."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tracer.views.figure import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    Chart,
    cut,
    empty_chart,
    names,
    quiet,
    sizes,
)
from tracer.views.fonts import drawable
from tracer.views.labels import bytes_label, share_label
from tracer.views.words import listed, many, place_name, say

_MOST_LANES: Final = 12
_PIXELS: Final = 1100
_LABELLED: Final = 0.07
_MOST_TOLD: Final = 4


def placement_by_device(placed: pd.DataFrame) -> Chart:
    """On which device does which part of the model lie, and how much is offloaded?

    Args:
        placed: Columns param, kind, place, size_bytes in the order of the model, as
            `placement.placed_tensors` gives them.

    Returns:
        A lane a place, the model from left to right by its bytes; the largest blocks have names,
        each lane its sum. Of many places the fullest have lanes.
    """
    what = say("placement_by_device.what")
    known = placed.dropna(subset=["place"]).fillna({"size_bytes": 0})
    if known.empty:
        return empty_chart(what)
    totals = known.groupby("place", sort=False)["size_bytes"].agg(["sum", "size"])
    shown = totals["sum"].nlargest(_MOST_LANES).index
    places = [place for place in totals.index if place in set(shown)]
    ends = known["size_bytes"].to_numpy("float64").cumsum()
    begins = ends - known["size_bytes"].to_numpy("float64")
    span = max(1.0, ends[-1])
    chart = Chart(9, 1.0 + 0.44 * len(places))
    axes = chart.subplots()
    for lane, place in enumerate(places):
        own = known["place"].eq(place).to_numpy(bool)
        is_elsewhere = "," in place  # offloaded, or without values
        _blocks(axes, lane, begins[own], ends[own], span, is_elsewhere)
        _part_names(axes, lane, known.loc[own, "param"].to_numpy(), begins[own], ends[own], span)
        total = totals.loc[place]
        count = many("tensor", total["size"])
        text = say("placement_by_device.lane", size=bytes_label(total["sum"]), tensors=count)
        axes.text(1.005, lane, text, transform=axes.get_yaxis_transform(), fontsize=8, color=INK,
                  va="center")  # fmt: skip
    quiet(axes)
    names(axes.yaxis, range(len(places)), [place_name(place) for place in places])
    axes.set(xlim=(0, span), ylim=(len(places) - 0.5, -0.5))
    axes.set_xlabel(say("axis.model_bytes"), fontsize=9, color=INK)
    sizes(axes.xaxis)
    chart.tell(what, _finding(totals, places))
    return chart


def _blocks(axes: Axes, lane: int, begins: Any, ends: Any, span: float, elsewhere: bool) -> None:
    """A lane's tensors; neighbours closer than a pixel are one block, none too thin to be seen."""
    axes.axhline(lane, color=FAINT, linewidth=0.8, zorder=0)
    pixel = span / _PIXELS
    first = np.append(True, begins[1:] > ends[:-1] + pixel)
    last = np.append(first[1:], True)
    widths = np.maximum(ends[last] - begins[first], pixel)
    axes.broken_barh(
        list(zip(begins[first], widths, strict=True)), (lane - 0.36, 0.72),
        facecolors=ORANGE if elsewhere else BLUE, hatch="///" if elsewhere else None,
        edgecolor="white", linewidth=0.4,
    )  # fmt: skip


def _part_names(axes: Axes, lane: int, params: Any, begins: Any, ends: Any, span: float) -> None:
    """Names of the largest parts of the model in a lane, where there is room for them."""
    layers = [_part(name) for name in params]
    start = 0
    for number in range(1, len(layers) + 1):
        is_end = number == len(layers) or layers[number] != layers[start]
        is_end = is_end or begins[number] > ends[number - 1] + span / _PIXELS
        if not is_end:
            continue
        width = (ends[number - 1] - begins[start]) / span
        if width >= _LABELLED:
            axes.text(
                (begins[start] + ends[number - 1]) / 2, lane,
                drawable(cut(layers[start], max(4, int(width * 95)))), fontsize=7,
                color=INK, ha="center", va="center", parse_math=False,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
            )  # fmt: skip
        start = number


def _part(name: str) -> str:
    """A list of layers is one part; anything else goes by the module that holds it."""
    parts = name.split(".")
    number = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    return ".".join(parts[:number]) if number else ".".join(parts[:-1]) or name


def _finding(totals: pd.DataFrame, places: list[str]) -> str:
    total = totals["sum"].sum()
    sums = totals["sum"]
    told = []
    for place in sorted(places, key=lambda place: -sums[place])[:_MOST_TOLD]:
        size, share = bytes_label(sums[place]), share_label(sums[place], total)
        told.append(
            say("placement_by_device.place", place=place_name(place), size=size, share=share)
        )
    known = {"size": bytes_label(total), "places": many("place", len(totals))}
    finding = say("placement_by_device.finding", **known, told=listed(*told))
    more = len(totals) - _MOST_TOLD
    return say("placement_by_device.more", finding=finding, number=more) if more > 0 else finding
