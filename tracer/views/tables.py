"""Frames as tables for people: human units, few rows, bounded cells. Nothing is printed here.

`text_table` is for terminals, `styled` for notebooks, `excerpt` for a table of a trace, of which it
reads no more than it shows. Each column says whether its values were measured, derived or
estimated, and on hover what they mean: the schema knows. In another language than English a head is
words of that language, with the column's name below. Colours are variables of JupyterLab's theme,
light or dark, with the system's own colours behind them for other pages.
"""

from __future__ import annotations

import html
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from tracer import explain
from tracer.conditions import Where
from tracer.contents import IN_MEMORY, ParquetContent
from tracer.export.text import visible_text
from tracer.schema import TABLES, Column
from tracer.trace import Trace
from tracer.views.cells import bounded, cells, title
from tracer.views.labels import cut_to_width, display_width

_MOST_ROWS: Final = 200
_WIDEST_TEXT: Final = 48
_WIDEST_HTML: Final = 160  # there a long cell takes several lines
_LONG_CELL: Final = 40
_LONGEST_TOOLTIP: Final = 600
_NARROWEST_SCREEN: Final = 100
_COMPUTED: Final = "derived"  # from recorded values, by whoever made the frame

_BOX: Final = "overflow:auto;max-height:75em"  # some thirty rows, then it scrolls
_HEAD: Final = "position:sticky;top:0;background:var(--jp-layout-color0,Canvas)"
_CELL: Final = "white-space:pre-wrap;overflow-wrap:anywhere;max-width:40em"
_FAINT: Final = "font-weight:normal;color:var(--jp-ui-font-color2,GrayText)"
# Not measured: it shall be seen before the number is believed.
_ESTIMATED: Final = "font-weight:normal;font-style:italic;color:var(--jp-warn-color0,#b35900)"


class StyledTable:
    """A frame as a notebook shows it; `frame` is the frame itself, for computing.

    Attributes:
        frame: What was given, whole and unchanged.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        most: int = _MOST_ROWS,
        source: Path | str | None = None,
        total: int | None = None,
    ) -> None:
        self.frame = frame
        self._most = most
        self._source = source
        self._total = len(frame) if total is None else total

    def _repr_html_(self) -> str:
        return _html(self.frame, self._most, self._source, self._total)

    def __repr__(self) -> str:
        width = max(_NARROWEST_SCREEN, shutil.get_terminal_size().columns)
        return _text(self.frame, self._most, self._source, self._total, width, provenance=True)


def styled(
    frame: pd.DataFrame, most: int = _MOST_ROWS, source: Path | str | None = None
) -> StyledTable:
    """A frame as a table for a notebook: units, few rows, bounded and escaped cells.

    Args:
        frame: Any frame with columns named as the schema does.
        most: Rows shown; a last line says how many there are when some are left out.
        source: Where all of them are, a file or an expression, for that line.

    Returns:
        What a notebook shows as HTML and anything else as text. Below a column's head stands
        whether it was measured, derived or estimated; on hover it tells what it means.
    """
    return StyledTable(frame, most, source)


def excerpt(
    trace: Trace,
    table: str,
    columns: Sequence[str] | None = None,
    where: Where = None,
    most: int = _MOST_ROWS,
) -> StyledTable:
    """The first rows of a table of a trace, of which no others are read: millions cost nothing.

    Args:
        trace: The trace.
        table: Name of a schema table.
        columns: Names in the order wanted; all without.
        where: `(column, operator, value)` tuples that must all hold, or an Arrow expression.
        most: Rows shown; a last line says how many there are and in which file.

    Raises:
        UnknownNameError: There is no such table or column.
    """
    frame = trace.read(table, columns, where, most)
    if where is None:
        total = trace.rows(table)
    else:
        total = trace.arrow(table, [TABLES[table].columns[0].name], where).num_rows
    return StyledTable(frame, most, _place(trace, table), total)


def _place(trace: Trace, table: str) -> str:
    """The file of a table; of a trace in memory the expression that gives it."""
    content = trace.store.contents.get(table)
    if isinstance(content, ParquetContent) and content.file != IN_MEMORY:
        return content.file
    return f'trace["{table}"]'


def text_table(
    frame: pd.DataFrame,
    most: int = _MOST_ROWS,
    source: Path | str | None = None,
    *,
    provenance: bool = False,
) -> str:
    """A frame as aligned text; bytes, durations and shapes in human units by their names' ends.

    Args:
        frame: Any frame with columns named as the schema does.
        most: Rows shown; a last line says how many there are when some are left out.
        source: Where all of them are, for that line.
        provenance: Whether a last line says which columns were not measured.
    """
    return _text(frame, most, source, len(frame), None, provenance=provenance)


def _text(
    frame: pd.DataFrame,
    most: int,
    source: Path | str | None,
    total: int,
    width: int | None,
    *,
    provenance: bool,
) -> str:
    if frame.empty:
        return f"  {_say('no_rows')}"
    heads = [[title(name, _WIDEST_TEXT) for name in frame.columns]]
    if explain.language() != "en":
        heads.append([bounded(visible_text(str(name)), _WIDEST_TEXT) for name in frame.columns])
    rows = [*heads, *cells(frame.head(most), _WIDEST_TEXT)]
    rows = [[cut_to_width(cell, _WIDEST_TEXT) for cell in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    fitting = _fitting(widths, width)
    is_right = [_is_number(frame, place) for place in range(fitting)]
    lines = [_line(row, widths, is_right) for row in rows]
    if fitting < len(widths):
        columns = explain.count("column", len(widths))
        lines.append(f"  {_say('of_columns', shown=fitting, columns=columns)}")
    if provenance:
        lines += _provenance_line(frame.iloc[:, :fitting])
    return "\n".join(
        [*lines, *(f"  {line}" for line in _left_out(min(most, len(frame)), total, source))]
    )


def _fitting(widths: Sequence[int], width: int | None) -> int:
    """How many columns from the left a screen has room for; at least one."""
    if width is None:
        return len(widths)
    used, count = 2, 0
    for one in widths:
        used += one + 2
        if used > width + 2:
            break
        count += 1
    return max(1, count)


def _line(row: Sequence[str], widths: Sequence[int], is_right: Sequence[bool]) -> str:
    """Cells in columns, by the width that a terminal gives each character."""
    texts = []
    for text, width, right in zip(row, widths, is_right, strict=False):
        gap = " " * (width - display_width(text))
        texts.append(gap + text if right else text + gap)
    return f"  {'  '.join(texts)}".rstrip()


def _provenance_line(frame: pd.DataFrame) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for name in frame.columns:
        kinds.setdefault(_provenance(frame, name), []).append(title(name, _WIDEST_TEXT))
    comma, semicolon = _say("comma"), _say("semicolon")
    named = [
        _say("of_kind", kind=_say(kind), names=comma.join(kinds[kind]))
        for kind in ("derived", "estimated")
        if kind in kinds
    ]
    if "measured" in kinds:
        named.append(_say("others_measured" if named else "all_measured"))
    return [f"  {semicolon.join(named)}"]


def _html(frame: pd.DataFrame, most: int, source: Path | str | None, total: int) -> str:
    if frame.empty:
        return f"<p>{_say('no_rows')}</p>"
    sides = ["right" if _is_number(frame, place) else "left" for place in range(frame.shape[1])]
    head = "".join(map(lambda name, side: _html_head(frame, name, side), frame.columns, sides))
    body = "".join(
        f"<tr>{''.join(map(_html_cell, row, sides))}</tr>"
        for row in cells(frame.head(most), _WIDEST_HTML)
    )
    left_out = _left_out(min(most, len(frame)), total, source)
    after = "".join(f"<p>{html.escape(line)}</p>" for line in left_out)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="{_BOX}">{table}</div>{after}'


def _html_head(frame: pd.DataFrame, name: object, side: str) -> str:
    kind = _provenance(frame, name)
    style = _ESTIMATED if kind == "estimated" else _FAINT
    told = _say(kind)
    if explain.language() != "en":
        told = f"{bounded(visible_text(str(name)), _WIDEST_TEXT)} · {told}"
    return (
        f'<th style="text-align:{side};{_HEAD}" title="{_tooltip(frame, name)}">'
        f"{html.escape(title(name, _WIDEST_TEXT))}"
        f'<br><small style="{style}">{html.escape(told)}</small></th>'
    )


def _html_cell(text: str, side: str) -> str:
    # Colours and padding are the theme's; a notebook would set all cells to the right. What only
    # few cells need stands in these alone: notebooks keep every byte of every table.
    needs = f";{_CELL}" if len(text) > _LONG_CELL or "  " in text else ""
    return f'<td style="text-align:{side}{needs}">{html.escape(text)}</td>'


def _column(frame: pd.DataFrame, name: object) -> tuple[str, Column] | None:
    """What the schema says of a column; of a name in many tables, the table most like the frame."""
    shown = set(frame.columns)
    likely = sorted(TABLES.values(), key=lambda table: -len(shown & set(table.column_names)))
    found = ((table.name, one) for table in likely for one in table.columns if one.name == name)
    return next(found, None)


def _provenance(frame: pd.DataFrame, name: object) -> str:
    found = _column(frame, name)
    return _COMPUTED if found is None else found[1].provenance


def _tooltip(frame: pd.DataFrame, name: object) -> str:
    found = _column(frame, name)
    if found is None:
        return html.escape(bounded(_say("computed", name=name), _LONGEST_TOOLTIP))
    table, column = found
    meaning = column.meaning
    if explain.language() != "en":
        meaning = explain.column(table, column.name).text.removesuffix("。")
    known = {"name": column.name, "meaning": meaning, "provenance": _say(column.provenance)}
    phrase = "tooltip_with_unit" if column.unit else "tooltip"
    return html.escape(_say(phrase, **known, unit=column.unit))


def _left_out(shown: int, total: int, source: Path | str | None) -> list[str]:
    if shown == total:
        return []
    phrase = "of_rows" if source is None else "of_rows_in"
    return [_say(phrase, shown=f"{shown:,}", total=f"{total:,}", place=source)]


def _say(phrase: str, **values: Any) -> str:
    return explain.text(f"tables.{phrase}", **values)


def _is_number(frame: pd.DataFrame, place: int) -> bool:
    column = frame.iloc[:, place]
    is_plain = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return is_plain or str(frame.columns[place]).endswith(("_ns", "_bytes"))
