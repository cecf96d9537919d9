"""Rows of a trace by number or by key, and their cells as text: what details are made of.

Small tables are read once; of a large one only the row that is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracer.replaying.tree import Numbers
from tracer.schema import TABLES
from tracer.views.cells import cell

if TYPE_CHECKING:
    from tracer.trace import Trace

LONGEST_CELL: Final = 2_000
"""Characters of a cell that a player shows."""
_MOST_KEPT: Final = 250_000
_PLACE: Final = ("event", "call", "rank", "row", "step", "offset")

Row = dict[str, Any]


class Rows:
    """Rows of one trace.

    Args:
        trace: Where they are.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @functools.cache  # noqa: B019 - lives as long as the player that asks
    def table(self, name: str) -> pa.Table:
        """A whole table in stored order."""
        return self.trace.arrow(name).combine_chunks()

    @functools.cache  # noqa: B019
    def lookup(self, table: str, *keys: str) -> Lookup:
        """A table by some of its whole-number columns."""
        return Lookup(self.table(table), keys)

    def row(self, table: str, number: int, seq: int) -> Row:
        """The cells of a row that are not missing; an event is named by its seq too."""
        if seq >= 0 and self.trace.rows(table) > _MOST_KEPT:
            found = self.trace.arrow(table, None, [("seq", "==", seq)], 1).to_pylist()
        else:
            found = self.table(table).slice(number, 1).to_pylist()
        return {name: value for name, value in found[0].items() if value is not None}


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


def cells(row: Row) -> list[list[str]]:
    """Every cell as text with human units: column and text."""
    return [[name, cell(name, value, LONGEST_CELL)] for name, value in row.items()]


def small_table(table: str, rows: Sequence[Row], total: int) -> dict[str, Any]:
    """Rows as a table of texts, without the columns that place them and without empty ones."""
    names = [
        name
        for name in TABLES[table].column_names
        if name not in _PLACE and any(row.get(name) is not None for row in rows)
    ]
    texts = [[cell(name, row.get(name), LONGEST_CELL) for name in names] for row in rows]
    return {"table": table, "columns": names, "rows": texts, "more": total - len(rows)}


def provenance_of(table: str, column: str) -> str:
    """How a recorded number came to be: measured, derived or estimated."""
    known = {one.name: one.provenance for one in TABLES[table].columns}
    return known.get(column, "derived")
