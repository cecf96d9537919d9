"""One cell of a table as text for people: human units by the column's name, bounded, one line.

Knows no table and no markup; what it gives still has to be escaped for HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pandas as pd

from tracer import explain
from tracer.export.text import visible_text
from tracer.views import labels

# Whole numbers that count something large; the others are ids, indices and positions.
_AMOUNTS: Final = frozenset({"parameters", "values", "patches", "rows", "events"})
# Marks that turn the direction of what follows: a token could reverse the rest of its line.
_TURNING: Final = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TEXTS: Final = frozenset({"text", "vocab"})
_WORDED: Final = frozenset({"check", "verdict"})  # keys to code, words to people
_REASONS: Final = (
    *("because", "cache_why", "cause", "dtype_why", "from", "limit", "mask_origin", "mode"),
    *("origin", "reason", "rule", "template_origin", "verified_because", "why", "why_not"),
)
RECORDED: Final[dict[str, Callable[[str, str | None], str]]] = {
    "verified": explain.audit_word,
    **dict.fromkeys(_REASONS, explain.said_again),
}
"""Cells whose words are English on disk, by the name of a column, of a number in a summary or of a
value in a finding, and how to say them in another language; keys that are no sentence stay."""


def cells(frame: pd.DataFrame, widest: int) -> list[list[str]]:
    """Every cell of a frame, row by row, in at most so many characters each."""
    columns = [
        [cell(str(name), told(str(name), value), widest) for value in frame.iloc[:, place]]
        for place, name in enumerate(frame.columns)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def told(name: str, value: Any, code: str | None = None) -> Any:
    """A recorded value in a language, where its words are recorded in English; else as it is."""
    said = RECORDED.get(name) if isinstance(value, str) else None
    return value if said is None else said(value, code)


def cell(name: str, value: Any, widest: int) -> str:
    """A value as people read it; a column's unit is the end of its name, as the schema has it."""
    if isinstance(value, bytes):
        return explain.text("tables.of_bytes", size=labels.bytes_label(len(value)))
    if isinstance(value, str):
        # A cell may hold megabytes, and each step below would walk through all of them.
        value = value[: 2 * widest]
    # A token's spaces and line feeds are part of it: quotes show where it begins and ends.
    is_text = name in _TEXTS and isinstance(value, str)
    text = repr(value) if is_text else _label(name)(value)
    if name in _WORDED:
        text = explain.audit_word(text)
    # One row is one line; what would move the cursor is written out.
    text = visible_text(text).replace("\n", "\\n").replace("\t", "\\t")
    return bounded(_TURNING.sub(lambda match: f"\\u{ord(match[0]):04x}", text), widest)


def title(name: object, widest: int) -> str:
    """A column's name as a head: words, without the unit that stands behind each value.

    English shows the name itself, which code asks for; other languages say what it means.
    """
    text = str(name)
    if explain.language() != "en":
        return bounded(visible_text(explain.label(text)), widest)
    for ending in ("_ns", "_bytes"):
        text = text.removesuffix(ending)
    return bounded(visible_text(text.replace("_", " ")), widest)


def bounded(text: str, widest: int) -> str:
    """At most so many characters, the last one an ellipsis where some are left out."""
    return text if len(text) <= widest else text[: widest - 1] + "…"


def _label(name: str) -> Callable[[Any], str]:
    if name.endswith("_ns"):
        return labels.duration_label
    if name.endswith("_bytes"):
        return labels.bytes_label
    if name.endswith("shape"):
        return _shape
    if name == "share" or name.endswith("_share"):
        return _share
    return _amount if name in _AMOUNTS or name.endswith("_pixels") else _plain


def _shape(value: Any) -> str:
    # A column of that name need not hold shapes, and a long one was cut.
    try:
        return labels.shape_label(value)
    except (TypeError, ValueError):
        return _plain(value)


def _share(value: Any) -> str:
    return labels.share_label(value, 1) if pd.api.types.is_number(value) else _plain(value)


def _amount(value: Any) -> str:
    return labels.count_label(value) if pd.api.types.is_integer(value) else _plain(value)


def _plain(value: Any) -> str:
    if labels.is_missing(value):
        return labels.MISSING
    if pd.api.types.is_bool(value):
        return explain.text("tables.yes" if value else "tables.no")
    if pd.api.types.is_integer(value):
        return str(value)
    return f"{value:.4g}" if pd.api.types.is_float(value) else str(value)
