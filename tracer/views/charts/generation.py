"""Charts of a generate(): how sure each token was, what each step cost, how the cache grew."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from tracer.views.figure import (
    BLUE,
    COLOURS,
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
    sizes,
    whole_numbers,
)
from tracer.views.fonts import drawable
from tracer.views.labels import bytes_label, duration_label, plural, share_label

_TOKENS_A_LINE: Final = 24
_MOST_LINES: Final = 4
_LONGEST_TOKEN: Final = 14
_MOST_BARS: Final = 60
_CHOICE: Final[dict[str, Any]] = {"edgecolor": "white", "linewidth": 0}
_FIRST_CHOICE: Final = _CHOICE | {"facecolor": BLUE, "label": "the model's first choice"}
_ANOTHER: Final = _CHOICE | {"facecolor": ORANGE, "hatch": "///", "label": "another token"}
_STEP_PARTS: Final = {
    "prepare_ns": ("prepare", SKY, ""),
    "forward_ns": ("forward", BLUE, ""),
    "processors_ns": ("processors", ORANGE, ""),
    "select_ns": ("select", YELLOW, ""),
    "stop_ns": ("stop test", FAINT, "///"),
}


def token_probabilities(answer: pd.DataFrame) -> Chart:
    """How sure the model was of each token: where did the answer hang by a thread?

    Args:
        answer: Tokens of an answer as `answer_tokens` gives them: row, text, token_id,
            probability, raw_rank, entropy. Of several rows the first one is drawn.

    Returns:
        A bar a token with its entropy below; long answers go on in further lines, at most four.
    """
    what = "Probability and entropy of each token of the answer"
    tokens = answer[answer["row"] == answer["row"].min()].dropna(subset=["probability"])
    if tokens.empty:
        return empty_chart(what, "chosen tokens with probabilities")
    shown = tokens.head(_TOKENS_A_LINE * _MOST_LINES)
    lines = -(-len(shown) // _TOKENS_A_LINE)
    chart = Chart(9, 0.5 + 2.6 * lines)
    grid = chart.subplots(2 * lines, 1, squeeze=False, height_ratios=[3, 1] * lines)
    for line in range(lines):
        part = shown.iloc[line * _TOKENS_A_LINE : (line + 1) * _TOKENS_A_LINE]
        room = max(len(shown), 8) if lines == 1 else _TOKENS_A_LINE
        _line_of_tokens(grid[2 * line, 0], grid[2 * line + 1, 0], part, room)
        if lines == 1:
            _percentages(grid[0, 0], part["probability"])
        grid[2 * line + 1, 0].set_ylim(0, max(shown["entropy"].max(), 0.1) * 1.1)
    legend(grid[0, 0], [Patch(**_FIRST_CHOICE), Patch(**_ANOTHER)])
    least = tokens.loc[tokens["probability"].idxmin()]
    firsts = int((tokens["raw_rank"] == 0).sum())
    rest = "" if len(shown) == len(tokens) else f"; the first {len(shown):,} are drawn"
    chart.tell(
        what,
        f"{plural(len(tokens), 'token')}, {firsts:,} of them the model's first choice; least "
        f"sure of {drawable(_token(least))} ({share_label(least['probability'], 1)}){rest}",
    )
    return chart


def _line_of_tokens(above: Axes, below: Axes, tokens: pd.DataFrame, room: int) -> None:
    places = np.arange(len(tokens))
    chances = tokens["probability"].to_numpy(dtype=float)
    is_first = (tokens["raw_rank"] == 0).fillna(False).to_numpy(dtype=bool)
    for mask, style in [(is_first, _FIRST_CHOICE), (~is_first, _ANOTHER)]:
        above.bar(places[mask], chances[mask], **style)
    above.set_ylim(0, 1.12)
    above.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    above.set_ylabel("probability", fontsize=9, color=INK)
    below.bar(places, tokens["entropy"].to_numpy(dtype=float), color=SKY)
    below.set_ylabel("entropy\n(nats)", fontsize=9, color=INK)
    for axes in (above, below):
        quiet(axes)
        axes.set_xlim(-0.6, room - 0.4)
        axes.grid(True, axis="y", color=FAINT, linewidth=0.6)
    below.set_xticks([])
    texts = [_token(token) for _, token in tokens.iterrows()]
    # Upright words where the longest fits into its bar's share of eight inches.
    fits = max(map(_inches, texts)) < 8 / room
    style = {} if fits else {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    names(above.xaxis, places.tolist(), texts, **style)


def _percentages(axes: Axes, chances: pd.Series[Any]) -> None:
    for place, chance in enumerate(chances):
        axes.annotate(
            f"{100 * chance:.0f} %", (place, chance), (0, 3), textcoords="offset points",
            ha="center", fontsize=7, color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
        )  # fmt: skip


def _inches(text: str) -> float:
    """About how wide a label is; characters from the CJK radicals on are square."""
    return sum(0.14 if one >= "\u2e80" else 0.08 for one in text)


def _token(token: pd.Series[Any]) -> str:
    text = token["text"]
    if pd.isna(text) or text == "":
        return f"#{token['token_id']}"
    return cut(str(text), _LONGEST_TOKEN)


def step_times(steps: pd.DataFrame) -> Chart:
    """What each forward's time is made of: is it the model, or what surrounds it?

    Args:
        steps: The table `steps` of one call: step, kind, input_tokens, prepare_ns, forward_ns,
            processors_ns, select_ns, stop_ns.

    Returns:
        Prefill as one bar above, decode steps as bars below; many of them in bins, each the mean
        of its steps.
    """
    what = "Time of prefill and of each decode step, by what it was spent on"
    parts = steps.sort_values("step").fillna(dict.fromkeys(_STEP_PARTS, 0))
    is_first = parts["kind"].isin(["prefill", "chunk"]).fillna(False)
    prefill, decode = parts[is_first], parts[~is_first]
    if parts.empty:
        return empty_chart(what, "a generate call with steps")
    chart = Chart(9, 3.6)
    above, below = chart.subplots(2, 1, height_ratios=[1, 4])
    _stack(above, [0], prefill[list(_STEP_PARTS)].sum().to_frame().T, 0.6, sideways=True)
    names(above.yaxis, [0], [f"prefill, {plural(int(prefill['input_tokens'].sum()), 'token')}"])
    durations(above.xaxis)
    quiet(above)
    legend(above)
    width = max(1, -(-len(decode) // _MOST_BARS))
    bins = np.arange(len(decode)) // width
    means = decode.groupby(bins)[["step", *_STEP_PARTS]].mean()
    _stack(below, means["step"].tolist(), means, 0.8 * width, sideways=False)
    label = "decode step" if width == 1 else f"decode step, means of {width}"
    below.set_xlabel(label, fontsize=9, color=INK)
    whole_numbers(below.xaxis)
    durations(below.yaxis)
    quiet(below)
    spent = parts[list(_STEP_PARTS)].sum()
    chart.tell(
        what,
        f"prefill {duration_label(prefill[list(_STEP_PARTS)].to_numpy().sum())}, then "
        f"{plural(len(decode), 'decode step')} of "
        f"{duration_label(decode[list(_STEP_PARTS)].sum(axis=1).mean())} on average; "
        f"{share_label(spent['forward_ns'], spent.sum())} of it in the forward",
    )
    return chart


def _stack(
    axes: Axes, places: list[float], parts: pd.DataFrame, width: float, *, sideways: bool
) -> None:
    base = np.zeros(len(places))
    for name, (label, colour, hatch) in _STEP_PARTS.items():
        length = parts[name].to_numpy(dtype=float)
        draw = axes.barh if sideways else axes.bar
        offset: dict[str, Any] = {"left" if sideways else "bottom": base}
        draw(places, length, width, color=colour, hatch=hatch, label=label, **offset)
        base = base + length


def cache_growth(cache_layers: pd.DataFrame) -> Chart:
    """How the KV cache grows: what does a token cost, and does any layer stop growing?

    Args:
        cache_layers: The table of one call: step, layer, part, class_name, size_bytes.

    Returns:
        Bytes after each step, layers of one class and part stacked as one band.
    """
    what = "Bytes of the KV cache after each step"
    if cache_layers.empty:
        return empty_chart(what, "a generate call with a cache")
    layers = cache_layers.assign(
        band=cache_layers["class_name"].fillna("?") + ", " + cache_layers["part"].fillna("?")
    )
    bands = layers.pivot_table(
        index="step", columns="band", values="size_bytes", aggfunc="sum", fill_value=0
    )
    counts = layers.groupby("band")["layer"].nunique()
    heights = bands.to_numpy(dtype=float).T
    chart = Chart(9, 2.6)
    axes = chart.subplots()
    # A step's size is as wide as the step, around its number.
    edges = np.append(bands.index.to_numpy(dtype=float), float(bands.index.max()) + 1) - 0.5
    axes.stackplot(
        edges, np.column_stack([heights, heights[:, -1]]), step="post",
        colors=COLOURS, labels=[f"{plural(counts[name], 'layer')} {name}" for name in bands],
    )  # fmt: skip
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel("step (0 is prefill)", fontsize=9, color=INK)
    quiet(axes)
    whole_numbers(axes.xaxis)
    sizes(axes.yaxis)
    legend(axes)
    total = heights.sum(axis=0)
    steps = len(total) - 1
    each = f", {bytes_label((total[-1] - total[0]) / steps)} a step" if steps else ""
    chart.tell(
        what,
        f"{bytes_label(total[0])} after prefill, {bytes_label(total[-1])} after "
        f"{plural(steps, 'more step')}{each}",
    )
    return chart
