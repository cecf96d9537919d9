"""Arrow tables and batches as pandas frames, with nullable types that keep missing apart.

A large table goes into its frame batch by batch: an Arrow table of it beside the frame would
double the memory, and touching memory is what reading millions of rows takes most time for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from tracer.errors import TraceFormatError
from tracer.explain.sentences import phrase

_PANDAS_TYPES: Final = {
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype("pyarrow"),
    # The one pandas type for reals that tells NaN from missing.
    pa.float64(): pd.ArrowDtype(pa.float64()),
    pa.binary(): pd.ArrowDtype(pa.binary()),
}


def to_frame(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a frame: Int64, boolean and string with missing values, Arrow's double."""
    return table.to_pandas(types_mapper=_PANDAS_TYPES.get)


def frame_of_batches(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int
) -> pd.DataFrame:
    """The same frame out of batches that have so many rows in all.

    Raises:
        TraceFormatError: They have more or fewer.
    """
    columns = [_Integers(rows) if field.type == pa.int64() else _Chunks(field) for field in schema]
    start = 0
    for batch in batches:
        end = start + batch.num_rows
        if end <= rows:
            for column, values in zip(columns, batch.columns, strict=True):
                column.add(start, values)
        start = end
    if start != rows:
        raise TraceFormatError(phrase("errors.lost_rows", rows=f"{rows:,}"))
    arrays = {field.name: column.finished() for field, column in zip(schema, columns, strict=True)}
    return pd.DataFrame(arrays, copy=False)


class _Integers:
    """A column of integers, written where the frame will have them."""

    def __init__(self, rows: int) -> None:
        self._values = np.empty(rows, dtype=np.int64)
        self._is_missing = np.zeros(rows, dtype=bool)

    def add(self, start: int, values: pa.Array) -> None:
        place = slice(start, start + len(values))
        if values.null_count:
            self._is_missing[place] = values.is_null().to_numpy(zero_copy_only=False)
            values = values.fill_null(0)
        self._values[place] = values.to_numpy()

    def finished(self) -> Any:
        return pd.arrays.IntegerArray(self._values, self._is_missing)


class _Chunks:
    """A column of another type, which pandas keeps as Arrow chunks or converts at once."""

    def __init__(self, field: pa.Field) -> None:
        self._dtype = _PANDAS_TYPES[field.type]
        # pandas holds text with long offsets; converting each batch frees the short ones.
        self._type = pa.large_string() if field.type == pa.string() else field.type
        self._chunks: list[pa.Array] = []

    def add(self, start: int, values: pa.Array) -> None:
        self._chunks.append(values.cast(self._type))

    def finished(self) -> Any:
        return self._dtype.__from_arrow__(pa.chunked_array(self._chunks, self._type))
