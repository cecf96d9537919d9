"""The union of all event tables over their ten common columns, in order of seq, as a stream.

A table holds its rows in the order in which events ended, so a merge by the first row alone
would be wrong. The merge looks at the seqs first: a row may leave once no table can still bring
a smaller one. Memory holds seqs and the rows in flight, not the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow
import pyarrow.compute as compute

from tracer.export import TableSource
from tracer.schema import EVENT_COLUMNS

_COMMON: Final = [column.name for column in EVENT_COLUMNS]
_NOTHING_LEFT: Final = np.iinfo(np.int64).max
_BLOCK_ROWS: Final = 4_096


def merged_events(store: TableSource, tables: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of the given event tables by seq across all batches; text as dictionaries."""
    feeds = [_Feed(store, table) for table in tables]
    pending: list[pyarrow.RecordBatch] = []
    while waiting := [feed for feed in feeds if feed.smallest_left < _NOTHING_LEFT]:
        pending.append(min(waiting, key=lambda feed: feed.smallest_left).next_batch())
        bound = min(feed.smallest_left for feed in feeds)
        rows = pyarrow.Table.from_batches(pending).unify_dictionaries()
        ready = compute.less(rows["seq"], bound)
        yield from _sorted(rows if compute.all(ready).as_py() else rows.filter(ready))
        pending = rows.filter(compute.invert(ready)).to_batches()


def _sorted(rows: pyarrow.Table) -> Iterator[pyarrow.RecordBatch]:
    # Tables that were sorted when they were closed need no second sorting, which copies them.
    is_sorted = bool((np.diff(rows["seq"].to_numpy()) >= 0).all())
    yield from (rows if is_sorted else rows.sort_by("seq")).to_batches()


class _Feed:
    """One table read batch by batch, which knows a bound on the seqs that it will still bring."""

    def __init__(self, store: TableSource, table: str) -> None:
        self._batches = iter(store.batches(table, columns=_COMMON, encoded=True))
        self._name = pyarrow.array([table])
        parts = [batch.column("seq").to_numpy() for batch in store.batches(table, columns=["seq"])]
        seqs = np.concatenate(parts)
        self._rows_left = len(seqs)
        self._taken = 0
        # For each block of rows the smallest seq from its first row to the end of the table.
        smallest = np.minimum.reduceat(seqs, np.arange(0, len(seqs), _BLOCK_ROWS))
        self._smallest = np.minimum.accumulate(smallest[::-1])[::-1]

    @property
    def smallest_left(self) -> int:
        if not self._rows_left:
            return _NOTHING_LEFT
        return int(self._smallest[self._taken // _BLOCK_ROWS])

    def next_batch(self) -> pyarrow.RecordBatch:
        """Return the next rows with the name of their table in an eleventh column."""
        batch = next(self._batches)
        self._taken += batch.num_rows
        self._rows_left -= batch.num_rows
        places = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), batch.num_rows)
        names = pyarrow.DictionaryArray.from_arrays(places, self._name)
        columns = [batch.column(column) for column in _COMMON]
        return pyarrow.RecordBatch.from_arrays([*columns, names], [*_COMMON, "table"])
