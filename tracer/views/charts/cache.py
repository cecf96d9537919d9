"""The KV cache by layer and step."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tracer.views.figure import (
    INK,
    RAMP,
    Chart,
    empty_chart,
    names,
    quiet,
    sizes,
    whole_numbers,
)
from tracer.views.labels import bytes_label
from tracer.views.words import listed, many, say, then

_MOST_STEPS: Final = 400
_MOST_NAMES: Final = 24


def cache_by_layer(cache_layers: pd.DataFrame) -> Chart:
    """The bytes of each layer's cache after each step: which layers grow, which stop?

    Args:
        cache_layers: The table of one call: step, layer, part, class_name, size_bytes.

    Returns:
        A line of fields a layer, the darker the more bytes; parts (self, cross) below each other.
        Of more than 400 steps neighbours share a field, which shows the largest.
    """
    what = say("cache_by_layer.what")
    known = cache_layers.dropna(subset=["step", "layer", "size_bytes"])
    if known.empty:
        return empty_chart(what, say("figure.needs_cache"))
    known = known.assign(part=known["part"].fillna("self"))
    field = known.pivot_table(
        index=["part", "layer"], columns="step", values="size_bytes", aggfunc="sum"
    ).sort_index(key=_self_first)
    width = -(-field.shape[1] // _MOST_STEPS)
    steps = field.columns.to_numpy(dtype=float)
    cells = field.to_numpy(dtype=float)
    folded = np.stack(
        [cells[:, at : at + width].max(axis=1) for at in range(0, cells.shape[1], width)], axis=1
    )
    chart = Chart(9, min(6.5, 1.5 + 0.16 * len(field)))
    axes = chart.subplots()
    shown = axes.imshow(
        folded, cmap=RAMP, vmin=0, aspect="auto", interpolation="nearest",
        extent=(steps[0] - 0.5, steps[-1] + 0.5, len(field) - 0.5, -0.5),
    )  # fmt: skip
    _layer_names(axes, list(field.index))
    quiet(axes)
    step = "from_prefill_folded" if width > 1 else "from_prefill"
    axes.set_xlabel(say(f"axis.{step}", width=width), fontsize=9, color=INK)
    whole_numbers(axes.xaxis)
    bar = chart.colorbar(shown, ax=axes, pad=0.01, fraction=0.03)
    sizes(bar.ax.yaxis, ticks=5)
    bar.ax.grid(False)
    bar.ax.tick_params(labelsize=8, colors=INK)
    bar.ax.spines[:].set_visible(False)
    chart.tell(what, _finding(known, field))
    return chart


def _self_first(index: pd.Index[Any]) -> pd.Index[Any]:
    """Sort key: the decoder's own cache before that of what it attends to."""
    return index.map("self".__ne__) if index.name == "part" else index


def _layer_names(axes: Axes, index: list[tuple[str, int]]) -> None:
    is_one = len({part for part, _ in index}) == 1
    every = -(-len(index) // _MOST_NAMES)
    places = range(0, len(index), every)
    texts = [str(layer) if is_one else f"{part} {layer}" for part, layer in index]
    names(axes.yaxis, places, [texts[place] for place in places])
    axes.set_ylabel(say("axis.layer"), fontsize=9, color=INK)


def _finding(known: pd.DataFrame, field: pd.DataFrame) -> str:
    last = field.iloc[:, -1].astype(float)
    steps = field.shape[1]
    total, layers = bytes_label(last.sum()), many("layer", len(field))
    step = f"{known['step'].max():,}"
    finding = say("cache_by_layer.finding", size=total, layers=layers, step=step)
    if steps > 1:
        # Still over the last quarter: a window that is full, or an encoder's keys and values.
        before = field.iloc[:, -1 - max(1, steps // 4)].astype(float)
        finding = then(finding, _growth(known, last, (last - before) > 0, steps))
    size = bytes_label(last.max())
    if last.nunique() == 1:
        return then(finding, say("cache_by_layer.each", size=size))
    part, layer = last.idxmax()
    return then(finding, say("cache_by_layer.largest", size=size, layer=layer, part=part))


def _growth(
    known: pd.DataFrame, last: pd.Series[Any], is_growing: pd.Series[Any], steps: int
) -> str:
    if is_growing.all():
        first = known.loc[known["step"] == known["step"].min(), "size_bytes"].sum()
        each = bytes_label((last.sum() - first) / (steps - 1))
        return say("cache_by_layer.all_grow", size=each)
    if not is_growing.any():
        return say("cache_by_layer.none_grow")
    kinds = known.drop_duplicates(["part", "layer"]).set_index(["part", "layer"])["class_name"]
    still = kinds[~is_growing.reindex(kinds.index)]
    moving = kinds[is_growing.reindex(kinds.index)]
    # What tells them apart: the class of the layer's cache, or the part.
    apart = set(still).isdisjoint(moving)
    words = sorted(set(still if apart else still.index.get_level_values("part")))
    which = listed(*map(str, words))
    return say("cache_by_layer.some_stopped", number=len(still), which=which)
