"""Two answers side by side, token by token, with the first difference marked; escaped HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tracer.explain import text

if TYPE_CHECKING:
    from tracer.widgets.runs import Mark, Run

MOST_ROWS: Final = 400
"""Tokens shown; a last line says how many there are when some are left out."""


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first token that differs; None for equal answers.

    Where one answer is the beginning of the other, it is where the shorter one ends.
    """
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return None if len(left) == len(right) else min(len(left), len(right))


def compared(left: Run, right: Run) -> str:
    """A table of two answers: a row a token, each with its probability."""
    place = first_difference(left.answer.ids, right.answer.ids)
    verdict = (
        text("explorer.all_equal") if place is None else text("explorer.differ_at", place=place)
    )
    longest = max(len(left.marks), len(right.marks))
    rows = [
        _row(number, left.marks, right.marks, place) for number in range(min(longest, MOST_ROWS))
    ]
    more = longest - MOST_ROWS
    after = f"<p>{html.escape(text('explorer.more_tokens', count=more))}</p>" if more > 0 else ""
    return (
        f'<p class="explorer-verdict">{html.escape(verdict)}</p>'
        f'<div class="explorer-scroll"><table class="explorer-compare"><thead><tr><th></th>'
        f'<th colspan="2">{html.escape(left.name)}</th>'
        f'<th colspan="2">{html.escape(right.name)}</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{after}"
    )


def _row(number: int, left: Sequence[Mark], right: Sequence[Mark], first: int | None) -> str:
    kind = ""
    if first is not None and number >= first:
        kind = "explorer-first" if number == first else "explorer-after"
    mark = " ◀" if number == first else ""
    return (
        f'<tr class="{kind}"><td>{number}{mark}</td>{_cells(number, left)}{_cells(number, right)}'
        "</tr>"
    )


def _cells(number: int, marks: Sequence[Mark]) -> str:
    if number >= len(marks):
        return "<td></td><td></td>"
    mark = marks[number]
    chance = "" if mark.probability is None else f"{100 * mark.probability:.1f} %"
    return f"<td><code>{html.escape(repr(mark.text)[1:-1])}</code></td><td>{chance}</td>"
