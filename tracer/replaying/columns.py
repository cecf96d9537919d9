"""Columns of a table as arrays: numbers, and texts as numbers that point into distinct ones.

Whole Arrow columns at once; what looks at texts one by one looks at distinct ones only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracer.replaying.tree import Numbers

if TYPE_CHECKING:
    from tracer.trace import Trace


LONGEST_NAME: Final = 500
"""Characters of a name that a player needs; every page carries all of them."""


class Names:
    """Distinct texts, each with its number; of a longer one only its begin."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """The texts in the order of their numbers."""
        return list(self._numbers)

    def of(self, column: pa.ChunkedArray | pa.Array) -> Numbers:
        """The number of each cell's text; a missing one counts as empty."""
        found = [self._of(part) for part in _parts(column)]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _of(self, part: pa.Array) -> Numbers:
        if not pa.types.is_dictionary(part.type):
            part = part.dictionary_encode()
        texts = pc.utf8_slice_codeunits(part.dictionary, 0, LONGEST_NAME).to_pylist()
        known = [text or "" for text in texts] + [""]
        numbers = [self._numbers.setdefault(text, len(self._numbers)) for text in known]
        places = np.asarray(pc.fill_null(part.indices, len(known) - 1).to_numpy(), np.int64)
        return np.array(numbers, np.int64)[places]


def encoded(trace: Trace, table: str, columns: list[str]) -> pa.Table:
    """Some columns of a table, each distinct text of a batch there once."""
    batches = list(trace.store.batches(table, columns, encoded=True))
    return pa.Table.from_batches(batches) if batches else trace.arrow(table, columns, limit=0)


def threads_of(rank: Numbers, thread: Numbers, threads: Names) -> Numbers:
    """The threads; of a run of ranks with the rank in front."""
    if not rank.any():
        return thread
    texts = threads.texts
    pairs, place = np.unique(np.stack([rank, thread]), axis=1, return_inverse=True)
    named = threads.of(pa.array([f"rank {at} {texts[one]}" for at, one in pairs.T]))
    return named[place.ravel()]


def looked_up(keys: Numbers, values: Numbers, asked: Numbers) -> Numbers:
    """The value of each asked key, -1 for one that isn't there; keys rise."""
    if not len(keys):
        return np.full(len(asked), -1)
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, values[at], -1)


def whole(column: pa.ChunkedArray, missing: int) -> Numbers:
    """Whole numbers, with one in place of those that are missing."""
    return np.asarray(pc.fill_null(column, missing).to_numpy(), np.int64)


def reals(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Real numbers, NaN where one is missing."""
    # A stranger's number may be too large to be exact.
    return np.array(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def place_in(column: pa.ChunkedArray, known: tuple[str, ...]) -> Numbers:
    """The number of each text in a short list; an unknown one counts as the last."""
    found = [_place_of(part, known) for part in _parts(column)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _place_of(part: pa.Array, known: tuple[str, ...]) -> Numbers:
    if not pa.types.is_dictionary(part.type):
        part = part.dictionary_encode()
    last = len(known) - 1
    numbers = [known.index(one) if one in known else last for one in part.dictionary.to_pylist()]
    places = np.asarray(pc.fill_null(part.indices, len(numbers)).to_numpy(), np.int64)
    return np.array([*numbers, last], np.int64)[places]


def _parts(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
