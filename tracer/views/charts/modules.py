"""Time inside the forward: layer by layer, and module inside module."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from tracer.views.figure import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SKY,
    YELLOW,
    Chart,
    cut,
    durations,
    empty_chart,
    legend,
    names,
    quiet,
)
from tracer.views.fonts import drawable, families, text_inches
from tracer.views.labels import duration_label, share_label
from tracer.views.words import listed, many, say, then

_LAYER_PARTS: Final = {
    "attention_ns": ("attention", BLUE, ""),
    "mlp_ns": ("MLP", ORANGE, ""),
    "rest_ns": ("rest", FAINT, ""),
}
_PHASES: Final = ("prefill", "decode")
_MOST_LAYERS: Final = 60
_COLOURS: Final = {
    "attention": (BLUE, "white", ""),
    "MLP": (ORANGE, "white", ""),
    "norm": (SKY, INK, ""),
    "embedding": (YELLOW, INK, "...."),
    "output head": (INK, "white", ""),
    "other": ("#e5e8eb", INK, ""),
}
"""Of each part its colour, that of its name, and its hatch: told apart in grey as well."""
_WIDTH: Final = 8.6  # inches of the flame
_NARROWEST: Final = _WIDTH / 900  # neighbours that are narrower run together
_POINTS: Final = 7
_MOST_DEPTH: Final = 14


def layer_times(times: pd.DataFrame) -> Chart:
    """What each layer takes, in prefill and in a decode step: is one of them slow?

    Args:
        times: As `analysis.modules.layer_times` gives them: stack, layer, phase, forwards,
            attention_ns, mlp_ns, rest_ns, total_ns.

    Returns:
        A panel a phase with a bar a layer, attention, MLP and the rest stacked; stacks (an image
        encoder, the decoder) stand side by side. Of more than 60 layers neighbours are averaged.
    """
    what = say("layer_times.what")
    if times.empty:
        return empty_chart(what, say("figure.needs_modules"))
    phases = [phase for phase in _PHASES if (times["phase"] == phase).any()]
    stacks = list(dict.fromkeys(times["stack"]))
    chart = Chart(9, 0.8 + 1.7 * len(phases))
    panels = chart.subplots(len(phases), 1, squeeze=False)[:, 0]
    for axes, phase in zip(panels, phases, strict=True):
        _layer_panel(axes, times[times["phase"] == phase], stacks)
        axes.set_ylabel(say(f"parts.{phase}"), fontsize=9, color=INK)
    parts = [(say(f"parts.{part}"), colour) for part, colour, _ in _LAYER_PARTS.values()]
    legend(panels[0], [Patch(color=colour, label=label) for label, colour in parts])
    chart.tell(what, _layer_finding(times, phases))
    return chart


def _layer_panel(axes: Axes, times: pd.DataFrame, stacks: list[str]) -> None:
    start, places, texts = 0, [], []
    for stack in stacks:
        mine = times[times["stack"] == stack].sort_values("layer")
        if mine.empty:
            continue
        width = -(-len(mine) // _MOST_LAYERS)
        bins = np.arange(len(mine)) // width
        means = mine.groupby(bins)[list(_LAYER_PARTS)].mean().to_numpy(dtype=float)
        at = np.arange(start, start + len(means))
        bottom = np.zeros(len(means))
        for column, (_, colour, hatch) in enumerate(_LAYER_PARTS.values()):
            height = means[:, column]
            axes.bar(at, height, 0.8, bottom, color=colour, hatch=hatch, linewidth=0)
            bottom = bottom + height
        every = max(1, len(means) // 12)
        places += at[::every].tolist()
        texts += [f"{number}" for number in mine["layer"].to_numpy(dtype=int)[:: width * every]]
        layers = many("layer", len(mine))
        axes.text(
            (at[0] + at[-1]) / 2, -0.2,
            say("layer_times.stack", stack=cut(drawable(stack), 40), layers=layers),
            transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=8, color=INK,
            fontfamily=families(), parse_math=False,
        )  # fmt: skip
        start += len(means) + 1
    names(axes.xaxis, places, texts)
    axes.set_xlim(-0.7, start - 1.3)
    quiet(axes)
    durations(axes.yaxis, ticks=4)


def _layer_finding(times: pd.DataFrame, phases: list[str]) -> str:
    parts = []
    for phase in phases:
        mine = times[times["phase"] == phase]
        # The stack that takes most: the decoder, or the encoder of a large image.
        stack = mine.groupby("stack")["total_ns"].sum().idxmax()
        layers = mine[mine["stack"] == stack]
        share = share_label(layers["attention_ns"].sum(), layers["total_ns"].sum())
        time = duration_label(layers["total_ns"].median())
        finding = say("layer_times.phase", phase=say(f"parts.{phase}"), time=time)
        if times["stack"].nunique() > 1:
            finding = say("layer_times.of_stack", finding=finding, stack=cut(str(stack), 32))
        slowest = layers.loc[layers["total_ns"].idxmax(), "layer"]
        parts.append(say("layer_times.finding", phase=finding, share=share, layer=slowest))
    return then(*parts)


def module_flame(calls: pd.DataFrame) -> Chart:
    """One forward, module inside module: which part of the model takes the time?

    Args:
        calls: As `analysis.modules.module_calls` gives them: depth, path, class_name, part,
            start_ns, duration_ns, self_ns.

    Returns:
        A row a depth, the whole model on top; a box is as wide as its call was long. Neighbours
        too narrow to be seen run together, and what lies deeper than 14 is not drawn.
    """
    what = say("module_flame.what")
    calls = calls.dropna(subset=["duration_ns"])
    if calls.empty:
        return empty_chart(what, say("figure.needs_modules"))
    deepest = min(int(calls["depth"].max()), _MOST_DEPTH - 1)
    chart = Chart(9, 1.2 + 0.26 * (deepest + 1))
    axes = chart.subplots()
    ends = calls["start_ns"] + calls["duration_ns"]
    span = float(ends.max())
    for depth in range(deepest + 1):
        _flame_row(axes, depth, calls[calls["depth"] == depth].sort_values("start_ns"), span)
    axes.set_xlim(0, span)
    axes.set_ylim(deepest + 1, 0)
    axes.set_yticks([])
    quiet(axes)
    axes.spines["left"].set_visible(False)
    durations(axes.xaxis)
    axes.set_xlabel(say("axis.since_module"), fontsize=9, color=INK)
    there = [part for part in _COLOURS if part in set(calls["part"])]
    legend(axes, [Patch(**_look(part), label=say(f"parts.{part}")) for part in there])
    chart.tell(what, _flame_finding(calls, span))
    return chart


def _look(part: str) -> dict[str, Any]:
    colour, _, hatch = _COLOURS[part]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": SKY if hatch else "white"}


def _flame_row(axes: Axes, depth: int, calls: pd.DataFrame, span: float) -> None:
    begin = calls["start_ns"].to_numpy(dtype=float)
    length = calls["duration_ns"].to_numpy(dtype=float)
    inches = length / span * _WIDTH
    for part in _COLOURS:
        mask = (calls["part"] == part).to_numpy(dtype=bool)
        # Boxes run together where both they and the gap are narrower than can be seen.
        boxes = _run_together(begin[mask], length[mask], span * _NARROWEST / _WIDTH)
        axes.broken_barh(boxes, (depth + 0.04, 0.92), linewidth=0.4, **_look(part))
    for place in np.flatnonzero(inches > 0.25):
        _flame_label(axes, depth, calls.iloc[place], begin[place], inches[place])


def _run_together(begin: Any, length: Any, narrowest: float) -> list[tuple[float, float]]:
    boxes: list[list[float]] = []
    for start, long in zip(begin.tolist(), length.tolist(), strict=True):
        is_narrow = bool(boxes) and max(long, boxes[-1][1]) < narrowest * 3
        if is_narrow and start - sum(boxes[-1]) < narrowest:
            boxes[-1][1] = start + long - boxes[-1][0]
        else:
            boxes.append([start, max(long, narrowest)])
    return [(start, long) for start, long in boxes]


def _flame_label(axes: Axes, depth: int, call: Any, begin: float, inches: float) -> None:
    """The module's own name where it fits into its box, else its number, else nothing."""
    path = drawable(str(call["path"]))
    name = path.rpartition(".")[2] or drawable(str(call["class_name"]))
    wide = f"{name}  {duration_label(call['duration_ns'])}"
    for text in (wide, name):
        if text_inches(text, _POINTS) + 0.08 < inches:
            axes.text(
                begin, depth + 0.5, f" {text}", fontsize=_POINTS, va="center_baseline",
                color=_COLOURS[call["part"]][1], fontfamily=families(), parse_math=False,
            )  # fmt: skip
            return


def _flame_finding(calls: pd.DataFrame, span: float) -> str:
    own = calls.groupby("part")["self_ns"].sum().sort_values(ascending=False)
    leaders = [
        say("module_flame.part", part=say(f"parts.{part}"), share=share_label(own[part], own.sum()))
        for part in own.index[:3]
    ]
    longest = calls.loc[calls["self_ns"].idxmax()]
    name = str(longest["path"]) or str(longest["class_name"])
    return say(
        "module_flame.finding",
        modules=many("module", len(calls)),
        time=duration_label(span),
        leaders=listed(*leaders),
        name=cut(name, 44),
        own=duration_label(longest["self_ns"]),
    )
