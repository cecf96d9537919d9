"""Columns of Arrow values into columns of finished CSV cells, for machines and for people.

Works on one batch at a time: text columns are dictionary-encoded, so a value that stands in a
million rows is escaped once a batch. A missing value stays missing; whoever joins the cells to
lines writes it as nothing. It knows no file.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

import pyarrow
import pyarrow.compute as compute

from tracer.export.text import json_literal, visible_text
from tracer.schema import Kind

CELL_LIMIT: Final = 32_767
"""Characters that a spreadsheet cell holds; longer text would spill over the rows below it."""

# RE2 writes code points beyond two digits in braces; Arrow strings hold no surrogates.
_NOT_PLAIN: Final = r'["\\\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}\x{feff}]'
_NOT_VISIBLE: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{2028}\x{2029}\x{feff}]"
# Apostrophes before the formula sign count, so that taking one away always undoes the guard.
_FORMULA: Final = r"^'*[=+\-@\t\r\n＝＋－＠]"
_NONFINITE: Final = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

CellWriter = Callable[[pyarrow.Array, Kind], pyarrow.Array]


def machine_cells(values: pyarrow.Array, kind: Kind) -> pyarrow.Array:
    """Write cells that read back exactly: text as a JSON literal in a quoted field."""
    if kind in ("text", "json"):
        return _by_distinct(values, _literals)
    if kind == "bytes":
        return _quoted(_base64(values))
    return _numbers(values)


def people_cells(values: pyarrow.Array, kind: Kind) -> pyarrow.Array:
    """Write cells that a spreadsheet shows as they are: plain text, no formula, not too long."""
    if kind in ("text", "json"):
        return _by_distinct(values, _plain)
    if kind == "bytes":
        return _each(values, lambda value: f'"({len(value)} bytes)"')
    return _numbers(values)


def _by_distinct(
    values: pyarrow.Array, write: Callable[[pyarrow.Array], pyarrow.Array]
) -> pyarrow.Array:
    if not pyarrow.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    return write(values.dictionary.cast(pyarrow.string())).take(values.indices)


def _literals(texts: pyarrow.Array) -> pyarrow.Array:
    literals = _wrapped(texts, '"')
    odd = compute.match_substring_regex(texts, _NOT_PLAIN)
    if compute.any(odd).as_py():
        literals = compute.replace_with_mask(literals, odd, _each(texts.filter(odd), json_literal))
    return _quoted(literals)


def _plain(texts: pyarrow.Array) -> pyarrow.Array:
    odd = compute.or_(
        compute.match_substring_regex(texts, _NOT_VISIBLE),
        compute.greater(compute.utf8_length(texts), CELL_LIMIT),
    )
    # The guard looks at the text before control characters become escapes: a leading CR counts.
    formula = compute.match_substring_regex(texts, _FORMULA)
    if compute.any(odd).as_py():
        texts = compute.replace_with_mask(texts, odd, _each(texts.filter(odd), _shown))
    return _quoted(compute.if_else(formula, _joined("'", texts), texts))


def _shown(text: str) -> str:
    shown = visible_text(text)
    if len(shown) < CELL_LIMIT:
        return shown
    kept = CELL_LIMIT - 67
    return f"{shown[:kept]} ... ({len(text)} characters; the plain CSV export holds them)"


def _quoted(texts: pyarrow.Array) -> pyarrow.Array:
    return _wrapped(compute.replace_substring(texts, '"', '""'), '"')


def _wrapped(texts: pyarrow.Array, mark: str) -> pyarrow.Array:
    return _joined(mark, texts, mark)


def _joined(*parts: str | pyarrow.Array) -> pyarrow.Array:
    scalars = [pyarrow.scalar(part) if isinstance(part, str) else part for part in parts]
    return compute.binary_join_element_wise(*scalars, pyarrow.scalar(""))


def _base64(values: pyarrow.Array) -> pyarrow.Array:
    return _each(values, lambda value: base64.b64encode(value).decode("ascii"))


def _each(values: pyarrow.Array, write: Callable[..., str]) -> pyarrow.Array:
    written = [None if value is None else write(value) for value in values.to_pylist()]
    return pyarrow.array(written, pyarrow.string())


def _numbers(values: pyarrow.Array) -> pyarrow.Array:
    cells = values.cast(pyarrow.string())  # shortest text that reads back as the same number
    if pyarrow.types.is_floating(values.type):
        finite = compute.is_finite(values)
        if not compute.all(finite).as_py():
            for written, wanted in _NONFINITE.items():
                cells = compute.if_else(compute.equal(cells, written), wanted, cells)
    return cells
