"""Frames as tables for people: human units, few rows, bounded cells. Nothing is printed here.

`text_table` is for terminals, `styled` for notebooks. A column's unit is the end of its name, as
the schema has it; what the schema says of a column becomes the tooltip of its head.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Final

import pandas as pd

from tracer.export.text import visible_text
from tracer.schema import TABLES, Column
from tracer.views import labels

_MOST_ROWS: Final = 200
_WIDEST_TEXT: Final = 48
_WIDEST_HTML: Final = 160  # there a long cell takes several lines
_LONGEST_TOOLTIP: Final = 600
# Whole numbers that count something large; the others are ids, indices and positions.
_AMOUNTS: Final = frozenset({"parameters", "values", "patches", "rows", "events"})
_NO_ROWS: Final = "(no rows)"
_BOX: Final = "overflow:auto;max-height:75em"  # some thirty rows, then it scrolls


class StyledTable:
    """A frame as a notebook shows it; `frame` is the frame itself, for computing.

    Attributes:
        frame: What was given, whole and unchanged.
    """

    def __init__(self, frame: pd.DataFrame, most: int = _MOST_ROWS) -> None:
        self.frame = frame
        self._most = most

    def _repr_html_(self) -> str:
        return _html(self.frame, self._most)

    def __repr__(self) -> str:
        return text_table(self.frame, self._most)


def styled(frame: pd.DataFrame, most: int = _MOST_ROWS) -> StyledTable:
    """A frame as a table for a notebook: units, few rows, bounded and escaped cells.

    Args:
        frame: Any frame with columns named as the schema does.
        most: Rows shown; a last line says how many there are when some are left out.

    Returns:
        What a notebook shows as HTML and anything else as text. A column's head tells on hover
        what it means and whether it was measured, derived or estimated.
    """
    return StyledTable(frame, most)


def text_table(frame: pd.DataFrame, most: int = _MOST_ROWS) -> str:
    """A frame as aligned text; bytes, durations and shapes in human units by their names' ends.

    Args:
        frame: Any frame with columns named as the schema does.
        most: Rows shown; a last line says how many there are when some are left out.
    """
    if frame.empty:
        return f"  {_NO_ROWS}"
    rows = [[_title(name) for name in frame.columns], *_cells(frame.head(most), _WIDEST_TEXT)]
    lines = _aligned(rows, [_is_number(frame, place) for place in range(frame.shape[1])])
    return "\n".join([*lines, *_left_out(frame, most)])


def _html(frame: pd.DataFrame, most: int) -> str:
    if frame.empty:
        return f"<p>{_NO_ROWS}</p>"
    sides = ["right" if _is_number(frame, place) else "left" for place in range(frame.shape[1])]
    head = "".join(
        f'<th style="text-align:{side}" title="{_tooltip(frame, name)}">'
        f"{html.escape(_title(name))}</th>"
        for name, side in zip(frame.columns, sides, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(map(_html_cell, row, sides))}</tr>"
        for row in _cells(frame.head(most), _WIDEST_HTML)
    )
    after = "".join(f"<p>{line.strip()}</p>" for line in _left_out(frame, most))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="{_BOX}">{table}{after}</div>'


def _html_cell(text: str, side: str) -> str:
    # Colours and padding are the theme's; a notebook would set all cells to the right.
    return f'<td style="text-align:{side}">{html.escape(text)}</td>'


def _tooltip(frame: pd.DataFrame, name: object) -> str:
    """What the schema says of a column; of a name in many tables, the table most like the frame."""
    shown = set(frame.columns)
    likely = sorted(TABLES.values(), key=lambda table: -len(shown & set(table.column_names)))
    meant = [column for table in likely for column in table.columns if column.name == name]
    if not meant:
        return html.escape(f"{name}: computed for this table"[:_LONGEST_TOOLTIP])
    return html.escape(_sentence(meant[0]))


def _sentence(column: Column) -> str:
    unit = f", in {column.unit}" if column.unit else ""
    return f"{column.name}: {column.meaning} ({column.provenance}{unit})"


def _cells(frame: pd.DataFrame, widest: int) -> list[list[str]]:
    columns = [
        [_bounded(_cell(str(name), value), widest) for value in frame.iloc[:, place]]
        for place, name in enumerate(frame.columns)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _left_out(frame: pd.DataFrame, most: int) -> list[str]:
    shown = min(most, len(frame))
    return [] if shown == len(frame) else [f"  {shown:,} of {len(frame):,} rows"]


def _title(name: object) -> str:
    title = str(name)
    for ending in ("_ns", "_bytes"):
        title = title.removesuffix(ending)
    return _bounded(visible_text(title.replace("_", " ")), _WIDEST_TEXT)


def _is_number(frame: pd.DataFrame, place: int) -> bool:
    column = frame.iloc[:, place]
    is_plain = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return is_plain or str(frame.columns[place]).endswith(("_ns", "_bytes"))


def _cell(name: str, value: Any) -> str:
    # A token's spaces and line feeds are part of it: quotes show where it begins and ends.
    is_text = name in {"text", "vocab"} and isinstance(value, str)
    text = repr(value) if is_text else _label(name)(value)
    # One row is one line; what would move the cursor is written out.
    return visible_text(text).replace("\n", "\\n").replace("\t", "\\t")


def _label(name: str) -> Callable[[Any], str]:
    if name.endswith("_ns"):
        return labels.duration_label
    if name.endswith("_bytes"):
        return labels.bytes_label
    if name.endswith("shape"):
        return labels.shape_label
    return _amount if name in _AMOUNTS else _plain


def _amount(value: Any) -> str:
    return labels.count_label(value) if pd.api.types.is_integer(value) else _plain(value)


def _plain(value: Any) -> str:
    if labels.is_missing(value):
        return labels.MISSING
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if pd.api.types.is_integer(value):
        return str(value)
    return f"{value:.4g}" if pd.api.types.is_float(value) else str(value)


def _bounded(text: str, widest: int) -> str:
    return text if len(text) <= widest else text[: widest - 1] + "…"


def _aligned(rows: Sequence[Sequence[str]], is_right: Sequence[bool]) -> list[str]:
    """Rows in columns, by the width that a terminal gives each character."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for text, width, right in zip(row, widths, is_right, strict=True):
            gap = " " * (width - _width(text))
            cells.append(gap + text if right else text + gap)
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines


def _width(text: str) -> int:
    # A Chinese character is two columns wide, an accent that joins the one before none.
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )
