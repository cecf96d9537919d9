"""Chart of the weight files: what lies where in them, and in which order it was read."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.patches import Patch

from tracer.views.figure import (
    COLOURS,
    FAINT,
    INK,
    Chart,
    cut,
    durations,
    empty_chart,
    legend,
    names,
    quiet,
    sizes,
)
from tracer.views.fonts import drawable
from tracer.views.labels import bytes_label, share_label
from tracer.views.words import listed, many, say, then

_MOST_LANES: Final = 12
_CELLS: Final = 1100  # across a lane: narrower tensors share one
_LABELLED: Final = 0.09  # of the longest lane
_OTHERS: Final = ""  # no dtype is called so
_UNREAD: Final = np.array([1.0, 1.0, 1.0])


def shard_map(tensors: pd.DataFrame, by: str = "dtype") -> Chart:
    """Where each tensor lies in its file: what fills the shards, and were they read in order?

    Args:
        tensors: Columns file, key, dtype, offset_bytes, size_bytes, read_at_ns, as
            `load_files.shard_map` gives them.
        by: `dtype`, or `time` for the moment of the read: dark first, light last, white never.

    Returns:
        A lane a file: its header, dotted, and its tensors, the largest with their names. Tensors
        narrower than a dot share it; of many files the largest have lanes.

    Raises:
        ValueError: `by` is something else.
    """
    if by not in {"dtype", "time"}:
        raise ValueError(f"by={by!r}: a shard map is coloured by 'dtype' or by 'time'")
    what = say(f"shard_map.by_{by}")
    known = tensors.dropna(subset=["file", "offset_bytes", "size_bytes"])
    if known.empty:
        return empty_chart(what)
    totals = known.groupby("file")["size_bytes"].sum()
    files = sorted(totals.nlargest(_MOST_LANES).index)
    longest = (known["offset_bytes"] + known["size_bytes"]).max()
    chart = Chart(9, 1.2 + 0.42 * len(files))
    axes = chart.subplots()
    colour = _by_dtype(known) if by == "dtype" else _by_time(known)
    for lane, file in enumerate(files):
        _lane(axes, lane, known[known["file"] == file], int(longest), colour)
    quiet(axes)
    names(axes.yaxis, range(len(files)), files)
    axes.set(xlim=(0, longest), ylim=(len(files) - 0.5, -0.5))
    axes.set_xlabel(say("axis.offset"), fontsize=9, color=INK)
    sizes(axes.xaxis)
    if by == "dtype":
        shades = _shades(known)
        legend(axes, [Patch(color=shade, label=_dtype(name)) for name, shade in shades.items()])
    else:
        _time_scale(chart, axes, known)
    start = say(
        "shard_map.start",
        tensors=many("tensor", len(known)),
        size=bytes_label(totals.sum()),
        files=many("file", len(totals)),
    )
    is_whole = len(files) == len(totals)
    drawn = "" if is_whole else say("shard_map.drawn", number=len(files))
    rest = _of_dtypes(known) if by == "dtype" else _of_order(known)
    chart.tell(what, then(listed(start, drawn), rest))
    return chart


def _lane(axes: Axes, lane: int, own: pd.DataFrame, longest: int, colour: Any) -> None:
    """One file as a row of dots: each shows the tensor that has most of its bytes there."""
    own = own.sort_values("offset_bytes")
    begins = own["offset_bytes"].to_numpy("int64")
    ends = begins + own["size_bytes"].to_numpy("int64")
    middles = (np.arange(_CELLS) + 0.5) * longest / _CELLS
    place = np.searchsorted(begins, middles, side="right") - 1
    inside = (place >= 0) & (middles < ends[place])
    picture = np.ones((1, _CELLS, 4))
    picture[0, :, 3] = inside
    picture[0, :, :3] = colour(own)[np.maximum(place, 0)]
    axes.imshow(
        picture, extent=(0, longest, lane + 0.36, lane - 0.36), aspect="auto", zorder=2,
        interpolation="nearest",
    )  # fmt: skip
    # Before the tensors: the header, as long as their names make it.
    axes.broken_barh(
        [(0, begins[0])], (lane - 0.36, 0.72), facecolors="white", hatch="....", edgecolor=FAINT,
        linewidth=0,
    )  # fmt: skip
    wide = ends - begins >= longest * 0.012
    axes.vlines(begins[wide], lane - 0.36, lane + 0.36, color="white", linewidth=0.8, zorder=3)
    axes.plot([0, ends.max(), ends.max(), 0, 0], lane + np.array([-1, -1, 1, 1, -1]) * 0.36,
              color=INK, linewidth=0.5, zorder=3)  # fmt: skip
    for number in np.flatnonzero(ends - begins >= longest * _LABELLED):
        room = int((ends[number] - begins[number]) / longest * 100)
        shade = picture[0, min(_CELLS - 1, int(begins[number] / longest * _CELLS) + 2), :3]
        text = cut(drawable(own["key"].iloc[number]), max(4, room))
        axes.text(
            (begins[number] + ends[number]) / 2, lane, text, ha="center", va="center",
            fontsize=7, color="white" if shade @ [0.3, 0.6, 0.1] < 0.55 else INK, zorder=4,
            parse_math=False,
        )  # fmt: skip


def _shades(known: pd.DataFrame) -> dict[str, str]:
    """A colour for the dtypes with most bytes; the others share one."""
    order = known.fillna({"dtype": "?"}).groupby("dtype")["size_bytes"].sum().sort_values()
    kinds = [str(name) for name in order.index[::-1]]
    shown = dict(zip(kinds, COLOURS, strict=False))
    return shown | ({_OTHERS: FAINT} if len(kinds) > len(COLOURS) else {})


def _dtype(name: str) -> str:
    return say("figure.others") if name == _OTHERS else cut(drawable(name))


def _by_dtype(known: pd.DataFrame) -> Any:
    shades = _shades(known)

    def colour(own: pd.DataFrame) -> Any:
        return np.array([to_rgb(shades.get(name, FAINT)) for name in own["dtype"].fillna("?")])

    return colour


def _by_time(known: pd.DataFrame) -> Any:
    last = max(1, known["read_at_ns"].max()) if known["read_at_ns"].notna().any() else 1

    def colour(own: pd.DataFrame) -> Any:
        times = own["read_at_ns"].astype("Float64")
        shade = colormaps["cividis"](times.fillna(0).to_numpy("float64") / last)[:, :3]
        shade[times.isna().to_numpy(bool)] = _UNREAD
        return shade

    return colour


def _time_scale(chart: Chart, axes: Axes, known: pd.DataFrame) -> None:
    last = max(1, known["read_at_ns"].max()) if known["read_at_ns"].notna().any() else 1
    scale = ScalarMappable(Normalize(0, float(last)), colormaps["cividis"])
    bar = chart.colorbar(scale, ax=axes, pad=0.01, fraction=0.03)
    bar.set_label(say("axis.read_at"), fontsize=9, color=INK)
    bar.ax.tick_params(colors=INK, labelsize=8)
    bar.outline.set_visible(False)
    durations(bar.ax.yaxis, ticks=4)


def _of_dtypes(known: pd.DataFrame) -> str:
    shares = known.fillna({"dtype": "?"}).groupby("dtype")["size_bytes"].sum()
    first = shares.idxmax()
    share = share_label(shares.max(), shares.sum())
    largest = known.loc[known["size_bytes"].idxmax()]
    way = "all_dtype" if len(shares) == 1 else "most_dtype"
    kind = say(f"shard_map.{way}", dtype=first, share=share)
    key, size = cut(str(largest["key"]), 40), bytes_label(largest["size_bytes"])
    return then(kind, say("shard_map.largest", key=key, size=size))


def _of_order(known: pd.DataFrame) -> str:
    read = known.dropna(subset=["read_at_ns"]).sort_values("read_at_ns")
    unread = len(known) - len(read)
    never = say("shard_map.never", tensors=many("tensor", unread)) if unread else ""
    if len(read) < 2:
        return listed(say("shard_map.read", tensors=many("tensor", len(read))), never)
    same = read["file"].to_numpy()[1:] == read["file"].to_numpy()[:-1]
    onward = np.diff(read["offset_bytes"].to_numpy("int64")) > 0
    share = share_label((same & onward).sum(), len(same))
    return listed(say("shard_map.forward", share=share), never)
