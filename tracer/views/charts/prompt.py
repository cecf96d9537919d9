"""The prompt as the model got it: every token, coloured by who wrote it and what it stands for."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle

from tracer.views.figure import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SKY,
    YELLOW,
    Chart,
    cut,
    empty_chart,
    legend,
    names,
    note_fonts,
    quiet,
    whole_numbers,
)
from tracer.views.fonts import drawable, families, text_inches
from tracer.views.labels import share_label
from tracer.views.words import listed, many, say, then

# What a token is by its kind, else by who wrote it: colour and hatch. The colours differ in
# lightness, and what shares one, or stands beside one that is near, differs by its hatch.
_ROLES: Final[dict[str, tuple[str, str]]] = {
    "template": (FAINT, ""),
    "system": (YELLOW, "\\\\\\\\"),
    "user": (SKY, "||||"),
    "assistant": (ORANGE, "////"),
    "tool": (SKY, "////"),
    "unknown": (SKY, "...."),
    "image": (BLUE, ""),
    "video": (BLUE, "////"),
    "generated": (ORANGE, ""),
    "pad": ("white", "xxxx"),
    "cut": ("white", "----"),
}
_BY_KIND: Final = ("image", "video", "pad", "cut")
_NOT_PROMPT: Final = ("generated", "cut")
_MOST_ROWS: Final = 8
_WIDTH: Final = 8.7  # inches that the chips of a line have
_LINE: Final = 0.27
_HEAD_LINES: Final = 9
_TAIL_LINES: Final = 4
_POINTS: Final = 8
_LONGEST: Final = 28
_TINT: Final = 0.3
_LEFT_OUT: Final = "left out"


@dataclasses.dataclass(frozen=True, slots=True)
class _Chip:
    """A box of the strip: a token, or neighbours that stand for one thing."""

    text: str
    role: str
    is_special: bool
    is_attended: bool

    @property
    def inches(self) -> float:
        return text_inches(self.text, _POINTS) + 0.1


def prompt_strip(tokens: pd.DataFrame, row: int | None = None) -> Chart:
    """Every token of the sequence: what did the model really get, and who wrote it?

    Args:
        tokens: The table `tokens` of one call: row, index, text, token_id, kind, origin, image,
            attended.
        row: Row of the batch whose tokens are written out; the first one without.

    Returns:
        Above, a bar a row of the batch (at most eight) with every token in its place; below, the
        tokens of one row as boxes, placeholders and pads folded, the middle of a long one left
        out. Special tokens have a frame, what attention does not see is grey.
    """
    what = say("prompt_strip.what")
    if tokens.empty:
        return empty_chart(what, say("prompt_strip.needs"))
    tokens = tokens.sort_values(["row", "index"]).assign(role=_roles(tokens))
    shown = int(tokens["row"].min()) if row is None else row
    mine = tokens[tokens["row"] == shown]
    rows = sorted(tokens["row"].unique())[:_MOST_ROWS]
    lines = _lines(_chips(mine))
    heights = [0.18 * len(rows) + 0.1, _LINE * len(lines)]
    chart = Chart(9, sum(heights) + 1.1)
    above, below = chart.subplots(2, 1, height_ratios=heights)
    for place, one in enumerate(rows):
        _bar(above, place, tokens[tokens["row"] == one])
    above.set_xlim(0, tokens.groupby("row").size().max())
    above.set_ylim(len(rows) - 0.5, -0.5)
    rows_named = rows if len(rows) > 1 else []
    names(above.yaxis, range(len(rows_named)), [say("roles.row", row=one) for one in rows_named])
    quiet(above)
    whole_numbers(above.xaxis)
    above.set_xlabel(say("axis.token_index"), fontsize=8, color=INK)
    there = [role for role in _ROLES if role in set(tokens["role"])]
    legend(above, [_patch(role) for role in there])
    _write(below, lines)
    note_fonts(chart, *mine["text"].dropna())
    chart.tell(what, _finding(mine, shown, tokens))
    return chart


def _roles(tokens: pd.DataFrame) -> pd.Series[Any]:
    """What decides a token's look: its kind where that says most, else who wrote it."""
    origin = tokens["origin"].where(tokens["origin"].isin(_ROLES), "unknown")
    return tokens["kind"].where(tokens["kind"].isin(_BY_KIND), origin).astype(str)


def _bar(axes: Axes, place: int, tokens: pd.DataFrame) -> None:
    """A row of the batch, neighbours of one role as one piece; cut tokens have a place too."""
    run = (tokens["role"] != tokens["role"].shift()).cumsum()
    at = 0
    for _, part in tokens.groupby(run):
        role = part["role"].iloc[0]
        axes.broken_barh([(at, len(part))], (place - 0.4, 0.8), **_style(role), linewidth=0)
        at += len(part)


def _style(role: str) -> dict[str, Any]:
    colour, hatch = _ROLES[role]
    line = INK if colour == "white" else "white"
    return {"facecolor": colour, "hatch": hatch, "edgecolor": line}


def _patch(role: str) -> Patch:
    return Patch(**_style(role), label=say(f"roles.{role}"), linewidth=0)


def _chips(tokens: pd.DataFrame) -> list[_Chip]:
    """A box a token; neighbours that stand for the same image, or are padding, as one."""
    names = ["role", "kind", "image", "attended", "text", "token_id"]
    columns = [tokens[name].astype(object).where(tokens[name].notna(), None) for name in names]
    chips = []
    for (role, *_, attended), run in itertools.groupby(zip(*columns, strict=True), _who):
        same = list(run)
        is_attended = attended is not False
        if role in _BY_KIND:
            text = _text(same[0][-2], same[0][-1])
            text += f"  × {len(same):,}" if len(same) > 1 else ""
            chips.append(_Chip(text, role, False, is_attended))
        else:
            chips += [
                _Chip(_text(text, token_id), role, kind == "special", is_attended)
                for _, kind, _, _, text, token_id in same
            ]
    return chips


def _who(token: tuple[Any, ...]) -> tuple[Any, ...]:
    role, _, image, attended, _, _ = token
    return role, image, attended


def _text(text: str | None, token_id: int | None) -> str:
    if not text:
        # Half of a character, or no tokenizer seen.
        return "?" if token_id is None else f"#{token_id}"
    return cut(drawable(text), _LONGEST)


def _lines(chips: list[_Chip]) -> list[list[_Chip]]:
    lines: list[list[_Chip]] = [[]]
    left = _WIDTH
    for chip in chips:
        if chip.inches > left and lines[-1]:
            lines.append([])
            left = _WIDTH
        lines[-1].append(chip)
        left -= chip.inches
    if len(lines) <= _HEAD_LINES + _TAIL_LINES + 1:
        return lines
    hidden = lines[_HEAD_LINES:-_TAIL_LINES]
    note = say("roles.more", number=f"{sum(map(len, hidden)):,}")
    gap = [_Chip(note, _LEFT_OUT, False, True)]
    return [*lines[:_HEAD_LINES], gap, *lines[-_TAIL_LINES:]]


def _write(axes: Axes, lines: list[list[_Chip]]) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(len(lines), 0)
    for number, line in enumerate(lines):
        left = 0.0
        for chip in line:
            if chip.role != _LEFT_OUT:
                _box(axes, chip, left, number)
            axes.text(
                left + 0.05, number + 0.45, chip.text, fontsize=_POINTS, va="center_baseline",
                color=INK if chip.is_attended else "#8a939c", fontfamily=families(),
                parse_math=False,
            )  # fmt: skip
            left += chip.inches


def _box(axes: Axes, chip: _Chip, left: float, number: int) -> None:
    """A tint behind the text, which stays readable, and the role's own colour as a bar below."""
    width = chip.inches - 0.02
    tint = [1 - _TINT * (1 - part) for part in to_rgb(_ROLES[chip.role][0])]
    frame = {"edgecolor": INK, "linewidth": 0.7} if chip.is_special else {"linewidth": 0}
    axes.add_artist(Rectangle((left, number + 0.08), width, 0.84, facecolor=tint, **frame))
    bar = _style(chip.role)
    axes.add_artist(Rectangle((left, number + 0.78), width, 0.14, **bar, linewidth=0))


def _finding(mine: pd.DataFrame, row: int, tokens: pd.DataFrame) -> str:
    counts = mine["role"].value_counts()
    prompt = [role for role in _ROLES if role in counts and role not in _NOT_PROMPT]
    prompt.sort(key=lambda role: -counts[role])
    total = int(counts[prompt].sum())
    told = {
        role: say("prompt_strip.role", number=f"{counts[role]:,}", role=say(f"roles.{role}"))
        for role in [*prompt, *(role for role in _NOT_PROMPT if role in counts)]
    }
    finding = many("prompt_token", total)
    if prompt:
        roles = listed(*(told[role] for role in prompt))
        finding = say("prompt_strip.prompt", tokens=finding, roles=roles)
    if len(prompt) > 1:
        share, role = share_label(counts[prompt[0]], total), say(f"roles.{prompt[0]}")
        finding = say("prompt_strip.most", finding=finding, share=share, role=role)
    finding = then(finding, *(told[role] for role in _NOT_PROMPT if role in told))
    rows = tokens["row"].nunique()
    return (
        finding if rows == 1 else say("figure.of_row", row=row, rows=f"{rows:,}", finding=finding)
    )
