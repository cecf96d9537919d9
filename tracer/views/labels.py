"""Numbers as people read them: bytes, durations, counts, shapes, and columns of aligned text.

Bytes are decimal (1 MB = 1,000,000 bytes), as model hubs and disks count them. Missing values
become a dash, never 0. This module formats; it reads no trace and knows no table.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

MISSING: Final = "-"

_BYTE_UNITS: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# A word of Latin letters or a Chinese character, with the marks that may not stand apart from it.
_UNBROKEN: Final = re.compile(
    r" *[（《“]*(?:[^\s\u2e80-\uffef]+|[\u2e80-\uffef])[，。：；、）》”！？…]*"
)
_TIME_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


def is_missing(value: Any) -> bool:
    """Whether a cell has no value: None, NaN or the missing value of pandas."""
    # NaN differs from itself; comparing pandas.NA gives NA, which has no truth value.
    return value is None or type(value).__name__ in {"NAType", "NaTType"} or value != value


def bytes_label(value: Any) -> str:
    """`999 B`, `16.6 GB`: three digits, decimal units."""
    return MISSING if is_missing(value) else _scaled(float(value), _BYTE_UNITS, "B")


def duration_label(nanoseconds: Any) -> str:
    """`850 ns`, `2.30 µs`, `61.0 ms`, `1.50 s`, `2 min 05 s`."""
    if is_missing(nanoseconds):
        return MISSING
    seconds = float(nanoseconds) / 1e9
    if abs(seconds) < 99.95:
        return _scaled(float(nanoseconds), _TIME_UNITS, "ns")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def _scaled(value: float, units: Sequence[tuple[float, str]], smallest: str) -> str:
    for size, unit in units:
        # 999.5 of the unit below would round to 1000: it belongs to this one.
        if abs(value) >= size * 0.9995:
            scaled = value / size
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:,.{digits}f} {unit}"
    return f"{value:,.0f} {smallest}"


def count_label(value: Any) -> str:
    """`8,292,166,656`."""
    return MISSING if is_missing(value) else f"{int(value):,}"


def share_label(part: Any, whole: Any) -> str:
    """`3.1 %`; a dash where there is no whole."""
    if is_missing(part) or is_missing(whole) or not whole:
        return MISSING
    return f"{100 * float(part) / float(whole):.1f} %"


def shape_label(shape: Any) -> str:
    """`1 × 3602 × 3584` from a list or its JSON text; `scalar` for no dimension."""
    if is_missing(shape) if not isinstance(shape, list | tuple) else False:
        return MISSING
    sizes = json.loads(shape) if isinstance(shape, str) else shape
    return " × ".join(str(size) for size in sizes) if sizes else "scalar"


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "  ") -> str:
    """Rows of cells as lines of text in columns.

    Args:
        rows: Cells as text; a row may be shorter than others.
        right: Columns set to the right: numbers.
        indent: Put before each line.
    """
    widths = [
        max((display_width(row[column]) for row in rows if column < len(row)), default=0)
        for column in range(max(map(len, rows), default=0))
    ]
    lines = []
    for row in rows:
        cells = []
        for column, cell in enumerate(row):
            gap = " " * (widths[column] - display_width(cell))
            cells.append(gap + cell if column in right else cell + gap)
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def folded(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns, broken between words or behind a Chinese character."""
    lines = [""]
    for piece in _UNBROKEN.findall(text):
        longer = lines[-1] + piece
        if lines[-1] and display_width(longer) > columns:
            lines.append(piece.lstrip())
        else:
            lines[-1] = longer if lines[-1] else piece.lstrip()
    return [line for line in lines if line]


def cut_to_width(text: str, columns: int) -> str:
    """At most so many columns of a terminal, the last one an ellipsis where some are left out."""
    if len(text) <= columns // 2 or display_width(text) <= columns:
        return text
    shown, used = [], 1  # for the ellipsis
    for one in text:
        used += display_width(one)
        if used > columns:
            break
        shown.append(one)
    return "".join(shown) + "…"


def display_width(text: str) -> int:
    """Columns of a terminal that a text takes: two for a Chinese character, none for an accent."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )
