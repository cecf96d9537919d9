"""An image on its way in: its patches, the cells that become one token each, and their places."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap

from tracer.views.figure import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    RAMP,
    Chart,
    empty_chart,
    names,
    quiet,
    whole_numbers,
)
from tracer.views.words import many, say

_MOST_NUMBERS: Final = 80  # cells with their number in them
_MOST_LINES: Final = 120  # across; finer lines would be a grey area
_TALLEST: Final = 3.6


def image_grid(images: pd.DataFrame, index: int = 0, picture: Any = None, total: int = 0) -> Chart:
    """An image's patches and merge cells beside its placeholders: which token sees what?

    Args:
        images: The table `images` of one call: kind, processor_w, processor_h, grid_t, grid_h,
            grid_w, expected_tokens, found_tokens, first_position, and the sizes before.
        index: Which row of it.
        picture: The image itself, as an array (height, width, channel) or what numpy makes one
            of; a trace keeps none, so without it the cells are shaded by their row.
        total: Tokens of the whole sequence; without it the span is drawn alone.

    Returns:
        Left, the image with thin lines round patches and thick ones round the cells that are
        merged into one token, numbered in the order of the tokens; right, the span of
        placeholders, each in the shade of its row of cells.
    """
    what = say("image_grid.what")
    sizes = images.iloc[index : index + 1].dropna(subset=["grid_h", "grid_w"])
    if sizes.empty:
        return empty_chart(what, say("image_grid.needs"))
    image = sizes.iloc[0]
    merge = _merge(image)
    down, across = int(image["grid_h"]) // merge, int(image["grid_w"]) // merge
    width = min(6.0, _TALLEST * across / down)
    height = max(1.8, width * down / across)
    chart = Chart(9, height + 1.0)
    # What the image does not need stays empty on the right: the two belong together.
    left, right, rest = chart.subplots(1, 3, width_ratios=[width, 2, max(0.01, 6 - width)])
    rest.set_axis_off()
    _draw_cells(left, down, across, merge, picture)
    _draw_span(right, image, down, across, total)
    chart.tell(what, _finding(image, merge, down, across))
    return chart


def _merge(image: pd.Series[Any]) -> int:
    """Patches to a side of the square that becomes one token."""
    tokens = image["expected_tokens"]
    cells = int(image["grid_t"]) * int(image["grid_h"]) * int(image["grid_w"])
    return 1 if pd.isna(tokens) or not tokens else max(1, math.isqrt(cells // int(tokens)))


def _draw_cells(axes: Axes, down: int, across: int, merge: int, picture: Any) -> None:
    extent = (0, across, down, 0)
    if picture is None:
        shades = np.linspace(0, 1, down)[:, None].repeat(across, axis=1)
        axes.imshow(shades, cmap=_rows(), extent=extent, aspect="auto", vmin=0, vmax=1)
    else:
        axes.imshow(np.asarray(picture), extent=extent, aspect="auto")
    axes.set_aspect("equal")
    if merge > 1 and max(down, across) * merge <= _MOST_LINES:
        _grid(axes, down, across, 1 / merge, FAINT if picture is None else "white", 0.6)
    if max(down, across) <= _MOST_LINES:
        _grid(axes, down, across, 1, INK, 1.2 if down * across <= _MOST_NUMBERS * 4 else 0.4)
    if down * across <= _MOST_NUMBERS:
        _number(axes, down, across, is_on_picture=picture is not None)
    axes.set_xlabel(say("image_grid.across", cells=many("cell", across)), fontsize=9, color=INK)
    axes.set_ylabel(say("image_grid.down", cells=many("cell", down)), fontsize=9, color=INK)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(INK)


def _rows() -> ListedColormap:
    """The lighter part of the ramp: numbers stay readable on it."""
    return ListedColormap(RAMP(np.linspace(0, 0.45, 64)))


def _grid(axes: Axes, down: int, across: int, step: float, colour: str, width: float) -> None:
    upright = [[(x, 0), (x, down)] for x in np.arange(0, across + step / 2, step)]
    level = [[(0, y), (across, y)] for y in np.arange(0, down + step / 2, step)]
    axes.add_collection(LineCollection([*upright, *level], colors=colour, linewidths=width))


def _number(axes: Axes, down: int, across: int, *, is_on_picture: bool) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
    for number in range(down * across):
        axes.text(
            number % across + 0.5, number // across + 0.5, str(number), ha="center", va="center",
            fontsize=7, color=INK, bbox=box if is_on_picture else None,
        )  # fmt: skip


def _draw_span(axes: Axes, image: pd.Series[Any], down: int, across: int, total: int) -> None:
    frames = int(image["grid_t"])
    tokens = down * across * frames
    first = 0 if pd.isna(image["first_position"]) else int(image["first_position"])
    shades = np.tile(np.linspace(0, 1, down).repeat(across), frames)[:, None]
    axes.imshow(
        shades, cmap=_rows(), extent=(0, 1, first + tokens, first), aspect="auto", vmin=0, vmax=1
    )
    axes.set_ylim(max(total, first + tokens), 0 if total else first)
    for edge in range(1, down * frames):
        if down * frames <= _MOST_LINES:
            axes.axhline(first + edge * across, color=INK, linewidth=0.4)
    beside = [(0, first, "before"), (first + tokens, total, "after")]
    for low, high, word in beside:
        if total and high > low:
            axes.axhspan(low, high, facecolor="#f3f4f6")
        if high - low > total / 12:
            axes.text(
                0.5, (low + high) / 2, say(f"image_grid.{word}"), ha="center", va="center",
                fontsize=8, color=INK,
            )  # fmt: skip
    axes.set_xlim(0, 1)
    quiet(axes)
    axes.set_xticks([])
    whole_numbers(axes.yaxis)
    names(axes.yaxis, [first, first + tokens - 1], [f"{first:,}", f"{first + tokens - 1:,}"])
    axes.set_ylabel(say("axis.index"), fontsize=9, color=INK)
    found = image["found_tokens"]
    is_short = not pd.isna(found) and int(found) != tokens
    label = many("placeholder", tokens)
    if is_short:
        label = say("image_grid.found", placeholders=label, number=f"{int(found):,}")
    axes.set_xlabel(label, fontsize=9, color=ORANGE if is_short else BLUE)


def _finding(image: pd.Series[Any], merge: int, down: int, across: int) -> str:
    frames = int(image["grid_t"])
    size = say("image_grid.size", across=image["grid_w"], down=image["grid_h"])
    sizes = [
        f"{int(image[f'{stage}_w']):,} × {int(image[f'{stage}_h']):,}"
        for stage in ("original", "helper", "processor")
        if not pd.isna(image.get(f"{stage}_w", pd.NA))
    ]
    pixels = " → ".join(dict.fromkeys(sizes))
    count = many("token", down * across * frames)
    tokens = say("image_grid.tokens", across=across, down=down, tokens=count)
    if frames > 1:
        tokens = say("image_grid.frames", frames=frames, tokens=tokens)
    way = "merged" if merge > 1 else "unmerged"
    return say(f"image_grid.{way}", pixels=pixels or "?", size=size, merge=merge, tokens=tokens)
