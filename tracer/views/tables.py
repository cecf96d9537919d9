"""Frames as tables for people: human units, few rows, bounded cells. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pandas as pd

from tracer.export.text import visible_text
from tracer.views import labels

_MOST_ROWS: Final = 200
_WIDEST_CELL: Final = 48


def text_table(frame: pd.DataFrame, most: int = _MOST_ROWS) -> str:
    """A frame as aligned text; bytes, durations and shapes in human units by their names' ends.

    Args:
        frame: Any frame with columns named as the schema does.
        most: Rows shown; a last line says how many there are when some are left out.
    """
    if frame.empty:
        return "  (no rows)"
    shown = frame.head(most)
    head = [_title(name) for name in shown.columns]
    body = [
        [_cell(name, value) for name, value in zip(shown.columns, row, strict=True)]
        for row in shown.itertuples(index=False)
    ]
    right = [place for place, name in enumerate(shown.columns) if _is_number(shown[name], name)]
    lines = labels.aligned([head, *body], right)
    left_out = len(frame) - len(shown)
    return lines if not left_out else f"{lines}\n  {len(shown):,} of {len(frame):,} rows"


def _title(name: str) -> str:
    for ending in ("_ns", "_bytes"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def _is_number(column: pd.Series[Any], name: str) -> bool:
    return name.endswith(("_ns", "_bytes")) or pd.api.types.is_numeric_dtype(column)


def _label(name: str) -> Callable[[Any], str]:
    if name.endswith("_ns"):
        return labels.duration_label
    if name.endswith("_bytes"):
        return labels.bytes_label
    if name.endswith("shape"):
        return labels.shape_label
    return _plain


def _plain(value: Any) -> str:
    if labels.is_missing(value):
        return labels.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _cell(name: str, value: Any) -> str:
    text = repr(value) if name == "text" and isinstance(value, str) else _label(name)(value)
    text = visible_text(text)
    return text if len(text) <= _WIDEST_CELL else text[: _WIDEST_CELL - 1] + "…"
