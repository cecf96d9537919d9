"""Rows of a trace by number or by key, and their cells as text: what details are made of.

Small tables are read once; of a large one only the rows around the one that is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracer.explain import LANGUAGES
from tracer.replaying.tree import Numbers
from tracer.schema import TABLES
from tracer.views.cells import RECORDED, cell, told

if TYPE_CHECKING:
    from tracer.trace import Trace

LONGEST_CELL: Final = 2_000
"""Characters of a cell that a player shows."""
_MOST_KEPT: Final = 250_000
_BLOCK: Final = 128
"""Rows that become Python values together: one who steps asks for the next one soon."""
_GROUPS: Final = 3
"""Parts of large tables that are held: who looks at a layer looks at its neighbours too."""
_PLACE: Final = ("event", "call", "rank", "row", "step", "offset")

Row = dict[str, Any]


class Rows:
    """Rows of one trace.

    Args:
        trace: Where they are.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        # Kept by this object, so that they go with it: a cache on a method would outlive it.
        self._tables: dict[str, pa.Table] = {}
        self._lookups: dict[tuple[str, ...], Lookup] = {}
        self._block = functools.lru_cache(64)(self._read_block)
        self._groups: list[tuple[str, int, pa.Table]] = []

    def table(self, name: str) -> pa.Table:
        """A whole table in stored order."""
        if name not in self._tables:
            self._tables[name] = self.trace.arrow(name).combine_chunks()
        return self._tables[name]

    def lookup(self, table: str, *keys: str) -> Lookup:
        """A table by some of its whole-number columns."""
        asked = (table, *keys)
        if asked not in self._lookups:
            self._lookups[asked] = Lookup(self.table(table), keys)
        return self._lookups[asked]

    def row(self, table: str, number: int) -> Row:
        """The cells of a row that are not missing, by its number in stored order."""
        if self._is_small(table):
            found = self._block(table, number // _BLOCK)[number % _BLOCK]
        else:
            first, rows = self._group(table, number)
            (found,) = rows.slice(number - first, 1).to_pylist()
        return {name: value for name, value in found.items() if value is not None}

    def _is_small(self, table: str) -> bool:
        return table in self._tables or self.trace.rows(table) <= _MOST_KEPT

    def _group(self, table: str, number: int) -> tuple[int, pa.Table]:
        """Rows of a large table around one: reading one costs as much as reading its neighbours."""
        for name, first, rows in self._groups:
            if name == table and first <= number < first + rows.num_rows:
                return first, rows
        first, rows = self.trace.store.group(table, number)
        self._groups = [(table, first, rows), *self._groups[: _GROUPS - 1]]
        return first, rows

    def _read_block(self, table: str, block: int) -> list[Row]:
        found: list[Row] = self.table(table).slice(block * _BLOCK, _BLOCK).to_pylist()
        return found


class Lookup:
    """A table sorted by columns of whole numbers, for the rows of one key."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        columns = [np.asarray(pc.fill_null(rows[key], -1).to_numpy(), np.int64) for key in keys]
        self._order = np.lexsort(columns[::-1])
        self._columns = [column[self._order] for column in columns]
        self._rows = rows

    def numbers(self, *key: int) -> Numbers:
        """Numbers of the rows with this key, in stored order; a shorter key takes more of them."""
        low, high = 0, len(self._order)
        for column, value in zip(self._columns, key, strict=False):
            part = column[low:high]
            left, right = np.searchsorted(part, [value, value + 1])
            low, high = low + int(left), low + int(right)
        return np.sort(self._order[low:high])

    def rows(self, *key: int, most: int | None = None) -> list[Row]:
        """The rows with this key, at most so many."""
        found: list[Row] = self._rows.take(pa.array(self.numbers(*key)[:most])).to_pylist()
        return found


def cells(row: Row) -> list[list[Any]]:
    """Every cell as a player shows it: column, and what `shown` gives."""
    return [[name, shown(name, value)] for name, value in row.items()]


def shown(name: str, value: Any) -> str | bool | dict[str, str]:
    """A cell as text with its unit.

    A page speaks two languages: a boolean stays one, and words that are recorded in English are
    given in each.
    """
    if isinstance(value, bool):
        return value
    if name in RECORDED and isinstance(value, str):
        return {code: _text(name, told(name, value, code)) for code in LANGUAGES}
    return _text(name, value)


# 1 and 1.0 are equal and shown differently.
@functools.lru_cache(maxsize=1 << 12, typed=True)
def _text(name: str, value: Any) -> str:
    return cell(name, value, LONGEST_CELL)


def small_table(table: str, rows: Sequence[Row], total: int) -> dict[str, Any]:
    """Rows as a table of what `shown` gives, without empty columns and those that place a row."""
    names = [
        name
        for name in TABLES[table].column_names
        if name not in _PLACE and any(row.get(name) is not None for row in rows)
    ]
    texts = [[shown(name, row.get(name)) for name in names] for row in rows]
    return {"table": table, "columns": names, "rows": texts, "more": total - len(rows)}


def provenance_of(table: str, column: str) -> str:
    """How a recorded number came to be: measured, derived or estimated."""
    return _PROVENANCE.get((table, column), "derived")


_PROVENANCE: Final = {
    (name, column.name): str(column.provenance)
    for name, table in TABLES.items()
    for column in table.columns
}
