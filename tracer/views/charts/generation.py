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
from tracer.views.labels import bytes_label, duration_label, share_label
from tracer.views.words import listed, many, say, then

_TOKENS_A_LINE: Final = 24
_MOST_LINES: Final = 4
_LONGEST_TOKEN: Final = 14
_MOST_BARS: Final = 60
_CHOICE: Final[dict[str, Any]] = {"edgecolor": "white", "linewidth": 0}
_FIRST_CHOICE: Final = _CHOICE | {"facecolor": BLUE}
_ANOTHER: Final = _CHOICE | {"facecolor": ORANGE, "hatch": "///"}
_STEP_PARTS: Final = {
    "prepare_ns": (SKY, ""),
    "forward_ns": (BLUE, ""),
    "processors_ns": (ORANGE, ""),
    "select_ns": (YELLOW, ""),
    "stop_ns": (FAINT, "///"),
}


def token_probabilities(answer: pd.DataFrame) -> Chart:
    """How sure the model was of each token: where did the answer hang by a thread?

    Args:
        answer: Tokens of an answer as `answer_tokens` gives them: row, text, token_id,
            probability, raw_rank, entropy. Of several rows the first one is drawn.

    Returns:
        A bar a token with its entropy below; long answers go on in further lines, at most four.
    """
    what = say("token_probabilities.what")
    tokens = answer[answer["row"] == answer["row"].min()].dropna(subset=["probability"])
    if tokens.empty:
        return empty_chart(what, say("figure.needs_choices"))
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
    looks = {"first_choice": _FIRST_CHOICE, "another": _ANOTHER}
    words = {name: say(f"token_probabilities.{name}") for name in looks}
    legend(grid[0, 0], [Patch(**look, label=words[name]) for name, look in looks.items()])
    least = tokens.loc[tokens["probability"].idxmin()]
    firsts = int((tokens["raw_rank"] == 0).sum())
    finding = say(
        "token_probabilities.finding",
        tokens=many("token", len(tokens)),
        firsts=f"{firsts:,}",
        token=drawable(_token(least)),
        share=share_label(least["probability"], 1),
    )
    is_whole = len(shown) == len(tokens)
    drawn = "" if is_whole else say("token_probabilities.drawn", number=f"{len(shown):,}")
    chart.tell(what, then(finding, drawn))
    return chart


def _line_of_tokens(above: Axes, below: Axes, tokens: pd.DataFrame, room: int) -> None:
    places = np.arange(len(tokens))
    chances = tokens["probability"].to_numpy(dtype=float)
    is_first = (tokens["raw_rank"] == 0).fillna(False).to_numpy(dtype=bool)
    for mask, style in [(is_first, _FIRST_CHOICE), (~is_first, _ANOTHER)]:
        above.bar(places[mask], chances[mask], **style)
    above.set_ylim(0, 1.12)
    above.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    above.set_ylabel(say("axis.probability"), fontsize=9, color=INK)
    below.bar(places, tokens["entropy"].to_numpy(dtype=float), color=SKY)
    below.set_ylabel(say("axis.entropy_nats"), fontsize=9, color=INK)
    for axes in (above, below):
        quiet(axes)
        axes.set_xlim(-0.6, room - 0.4)
        axes.grid(True, axis="y", color=FAINT, linewidth=0.6)
    below.set_xticks([])
    texts = [_token(token) for _, token in tokens.iterrows()]
    # Upright words where the longest fits into its bar's share of eight inches.
    fits = max(map(_inches, texts)) < 8 / room
    style = {} if fits else {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    names(above.xaxis, places.tolist(), texts, _LONGEST_TOKEN, **style)


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
    what = say("step_times.what")
    parts = steps.sort_values("step").fillna(dict.fromkeys(_STEP_PARTS, 0))
    is_first = parts["kind"].isin(["prefill", "chunk"]).fillna(False)
    prefill, decode = parts[is_first], parts[~is_first]
    if parts.empty:
        return empty_chart(what, say("figure.needs_generate"))
    chart = Chart(9, 1.4 if decode.empty else 3.6)
    rows = [1] if decode.empty else [1, 4]
    above, *below = chart.subplots(len(rows), 1, height_ratios=rows, squeeze=False)[:, 0]
    _stack(above, [0], prefill[list(_STEP_PARTS)].sum().to_frame().T, 0.6, sideways=True)
    fed = many("token", prefill["input_tokens"].sum())
    names(above.yaxis, [0], [say("step_times.prefill", tokens=fed)])
    durations(above.xaxis)
    quiet(above)
    legend(above)
    for axes in below:
        _decode_steps(axes, decode)
    spent = parts[list(_STEP_PARTS)].sum()
    known = {
        "time": duration_label(prefill[list(_STEP_PARTS)].to_numpy().sum()),
        "share": share_label(spent["forward_ns"], spent.sum()),
    }
    if decode.empty:
        finding = say("step_times.prefill_alone", **known)
    else:
        mean = duration_label(decode[list(_STEP_PARTS)].sum(axis=1).mean())
        steps = many("decode_step", len(decode))
        finding = say("step_times.finding", steps=steps, mean=mean, **known)
    chart.tell(what, finding)
    return chart


def _decode_steps(axes: Axes, decode: pd.DataFrame) -> None:
    width = max(1, -(-len(decode) // _MOST_BARS))
    bins = np.arange(len(decode)) // width
    means = decode.groupby(bins)[["step", *_STEP_PARTS]].mean()
    _stack(axes, means["step"].tolist(), means, 0.8 * width, sideways=False)
    label = "decode_step" if width == 1 else "decode_step_means"
    axes.set_xlabel(say(f"axis.{label}", width=width), fontsize=9, color=INK)
    whole_numbers(axes.xaxis)
    durations(axes.yaxis)
    quiet(axes)


def _stack(
    axes: Axes, places: list[float], parts: pd.DataFrame, width: float, *, sideways: bool
) -> None:
    base = np.zeros(len(places))
    for name, (colour, hatch) in _STEP_PARTS.items():
        label = say(f"parts.{name}")
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
    what = say("cache_growth.what")
    if cache_layers.empty:
        return empty_chart(what, say("figure.needs_cache"))
    layers = cache_layers.assign(
        band=cache_layers["class_name"].fillna("?") + ", " + cache_layers["part"].fillna("?")
    )
    bands = layers.pivot_table(
        index="step", columns="band", values="size_bytes", aggfunc="sum", fill_value=0
    )
    counts = layers.groupby("band")["layer"].nunique()
    labels = {
        name: say("cache_growth.band", layers=many("layer", counts[name]), name=name)
        for name in bands
    }
    heights = bands.to_numpy(dtype=float).T
    chart = Chart(9, 2.6)
    axes = chart.subplots()
    # A step's size is as wide as the step, around its number.
    edges = np.append(bands.index.to_numpy(dtype=float), float(bands.index.max()) + 1) - 0.5
    axes.stackplot(
        edges, np.column_stack([heights, heights[:, -1]]), step="post",
        colors=COLOURS, labels=[labels[name] for name in bands],
    )  # fmt: skip
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel(say("axis.from_prefill"), fontsize=9, color=INK)
    quiet(axes)
    whole_numbers(axes.xaxis)
    sizes(axes.yaxis)
    legend(axes)
    total = heights.sum(axis=0)
    steps = len(total) - 1
    first = bytes_label(total[0])
    finding = say("cache_growth.prefill_alone", first=first)
    if steps:
        told = {"last": bytes_label(total[-1]), "steps": many("more_step", steps)}
        growth = bytes_label((total[-1] - total[0]) / steps)
        finding = say("cache_growth.finding", first=first, **told)
        finding = listed(finding, say("cache_growth.each", size=growth))
    chart.tell(what, finding)
    return chart
