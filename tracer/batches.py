"""Batches of rows: given a schema's columns, put together into groups, written as Parquet.

Knows no trace and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

ENCODED_TEXT: Final = pa.dictionary(pa.int32(), pa.string())

# Rows handed on at a time: small enough for flat memory, large enough to hide the cost of a call.
BATCH_ROWS: Final = 65_536
# A row group is held in memory while it is written or read: bounded in rows and in bytes.
_GROUP_ROWS: Final = 2 * BATCH_ROWS
_GROUP_BYTES: Final = 32 * 2**20

Target: TypeAlias = "Path | IO[bytes] | pa.NativeFile"


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of a schema; those it lacks become missing values."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        _as_type(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    return array.dictionary_encode() if kind == ENCODED_TEXT else array.cast(kind)


def encoded_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with each text column as a dictionary: distinct values, and one number a row."""
    return pa.schema(
        [
            field.with_type(ENCODED_TEXT) if pa.types.is_string(field.type) else field
            for field in schema
        ]
    )


def write_parquet(target: Target, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches as one Parquet file (zstd, dictionaries), one row group in memory at a time.

    Raises:
        OSError: The disk refused.
    """
    where = str(target) if isinstance(target, Path) else target
    with pq.ParquetWriter(where, schema, compression="zstd") as writer:
        for group in groups(batches, _GROUP_ROWS):
            writer.write_table(group, row_group_size=_GROUP_ROWS)


def groups(batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
    """Batches put together until they are many rows or bytes."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= most_rows or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)
