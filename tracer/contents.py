"""Where the rows of one table lie, and how they are read: Parquet, or streams of a recording.

A recording writes each table as an Arrow stream of whole batches. After a kill the last batch may
be torn: it is ignored. Nothing here makes rows; storage.py decides which files make up a trace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tracer.batches import (
    BATCH_ROWS,
    ENCODED_TEXT,
    Target,
    conform,
    encoded_schema,
    groups,
    write_parquet,
)
from tracer.folder import damaged

SORTED_ROWS: Final = 250_000
_COPY_BYTES: Final = 2**20
_PARQUET: Final = ds.ParquetFileFormat(
    # Without pre-buffering a scan holds one row group, not the compressed bytes of the whole file.
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False)
)


class Content(Protocol):
    """The rows of one table, wherever they lie."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    def scanner(self, columns: Sequence[str], where: pc.Expression | None) -> ds.Scanner:
        """A lazy pass over some columns of the rows that fulfil a condition."""

    def write(self, target: Target) -> None:
        """Write all rows as one Parquet file."""


@runtime_checkable
class HasGroups(Protocol):
    """Content that can read some rows without the others."""

    def group(self, row: int) -> tuple[int, pa.Table]:
        """Some rows around one, and the number of the first of them."""


def whole_batches(
    source: Path | pa.Buffer, columns: Sequence[str] | None = None, *, is_checked: bool = True
) -> Iterator[pa.RecordBatch]:
    """Batches of a stream up to the first that is torn; asked columns that it lacks are left out.

    With `is_checked` a stream made to point outside its own bytes ends the reading; a process
    that reads what it wrote itself can do without.
    """
    # A torn or forged stream ends the reading: what came before is all that can be trusted.
    with contextlib.suppress(pa.ArrowInvalid, OSError), _open_bytes(source) as data:
        schema = pa.ipc.open_stream(data).schema
        names = [name for name in schema.names if columns is None or name in columns]
        # An empty selection would read every column: the first one then tells the row count.
        fields = [schema.get_field_index(name) for name in names] or [0]
        data.seek(0)
        # Batches are small: handing their columns to threads costs more than unpacking them.
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        for batch in pa.ipc.open_stream(data, options=options):
            if is_checked:
                batch.validate(full=True)
            yield batch


def _open_bytes(source: Path | pa.Buffer) -> pa.NativeFile:
    return pa.OSFile(str(source)) if isinstance(source, Path) else pa.BufferReader(source)


IN_MEMORY: Final = "memory"
"""What a Parquet content calls its file where it has none."""


@dataclasses.dataclass(frozen=True)
class ParquetContent:
    """A Parquet file on disk, inside a zip or in memory; opened anew by each reading."""

    file: str
    schema: pa.Schema
    opener: Callable[[], pa.NativeFile]
    rows: int

    @classmethod
    def checked(
        cls, file: str, schema: pa.Schema, opener: Callable[[], pa.NativeFile]
    ) -> ParquetContent:
        """Read the footer, so that a damaged file is met when the trace is opened."""
        try:
            rows = _PARQUET.make_fragment(opener()).metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            raise damaged(file, error) from error
        return cls(file, schema, opener, rows)

    @property
    def memory_bytes(self) -> int:
        """Bytes that it takes in memory; none for a file on disk."""
        return int(self.opener().size()) if self.file == IN_MEMORY else 0

    def batches(self, columns: Sequence[str], *, encoded: bool = False) -> Iterator[pa.RecordBatch]:
        """One batch at a time. A scanner reads ahead of a slow consumer, so memory would grow."""
        wanted = pa.schema([self.schema.field(name) for name in columns])
        texts = []
        if encoded:
            wanted = encoded_schema(wanted)
            # A trace of an older lab lacks what the schema has gained since.
            held = pq.read_schema(self.opener()).names
            texts = [one.name for one in wanted if one.type == ENCODED_TEXT and one.name in held]
        with pq.ParquetFile(self.opener(), read_dictionary=texts) as file:
            present = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(BATCH_ROWS, columns=present):
                yield conform(batch, wanted)

    def group(self, row: int) -> tuple[int, pa.Table]:
        """The row group that a row is in, and the number of its first row.

        What a look-up costs is the reading of a group: texts are dictionaries, and columns that
        are missing throughout are left out.
        """
        metadata = pq.read_metadata(self.opener())
        held = metadata.schema.to_arrow_schema()
        texts = [field.name for field in held if pa.types.is_string(field.type)]
        first = 0
        with pq.ParquetFile(self.opener(), metadata=metadata, read_dictionary=texts) as file:
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                if row < first + group.num_rows:
                    columns = [name for name in _filled(group) if name in self.schema.names]
                    return first, file.read_row_group(number, columns=columns)
                first += group.num_rows
        raise IndexError(f"there is no row {row} among {self.rows}")

    def scanner(self, columns: Sequence[str], where: pc.Expression | None) -> ds.Scanner:
        """Only the asked columns are read, and only row groups that can fulfil the condition."""
        return _PARQUET.make_fragment(self.opener()).scanner(
            schema=self.schema,
            columns=list(columns),
            filter=where,
            batch_size=BATCH_ROWS,
            batch_readahead=2,
            fragment_readahead=1,
        )

    def write(self, target: Target) -> None:
        """Copy the file byte by byte."""
        source = self.opener()
        with (
            pa.OSFile(source) if isinstance(source, str) else source as opened,
            target.open("wb")
            if isinstance(target, Path)
            else contextlib.nullcontext(target) as sink,
        ):
            shutil.copyfileobj(opened, sink, _COPY_BYTES)


def _filled(group: pq.RowGroupMetaData) -> list[str]:
    """Columns of a row group that have a value, as far as its statistics tell."""
    columns = [group.column(number) for number in range(group.num_columns)]
    missing = [
        one.is_stats_set and one.statistics.has_null_count and one.statistics.null_count
        for one in columns
    ]
    return [
        one.path_in_schema
        for one, count in zip(columns, missing, strict=True)
        if count is False or count < group.num_rows
    ]


@dataclasses.dataclass(frozen=True)
class StreamContent:
    """Streams of a recording, read one after another, then rows that were never written."""

    schema: pa.Schema
    parts: tuple[Path | pa.Buffer, ...]
    rows: int
    extra: pa.Table | None = None
    is_own: bool = False

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The asked columns of every whole batch."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for part in self.parts:
            for batch in whole_batches(part, columns, is_checked=not self.is_own):
                yield conform(batch, schema)
        if self.extra is not None:
            yield from self.extra.select(list(columns)).to_batches()

    def scanner(self, columns: Sequence[str], where: pc.Expression | None) -> ds.Scanner:
        """Every batch is read; a condition may name any column, so it costs reading all."""
        names = list(columns) if where is None else self.schema.names
        schema = pa.schema([self.schema.field(name) for name in names])
        # A scanner's cost is by the batch, and a recording writes many small ones.
        joined = (
            batch
            for group in groups(self.batches(names), BATCH_ROWS)
            for batch in group.combine_chunks().to_batches()
        )
        return ds.Scanner.from_batches(joined, schema=schema, columns=list(columns), filter=where)

    def write(self, target: Target) -> None:
        """Write the rows, sorted by seq where they are events and few enough to hold.

        Spans are recorded when they end, so a call comes after what it encloses; only a table too
        large to sort in memory keeps that order in its file.
        """
        batches = self.batches(self.schema.names)
        if "seq" in self.schema.names and self.rows <= SORTED_ROWS:
            table = pa.Table.from_batches(batches, schema=self.schema)
            batches = iter(table.sort_by("seq").to_batches())
        write_parquet(target, self.schema, batches)


@dataclasses.dataclass(frozen=True)
class TableContent:
    """Rows held in memory as they are."""

    table: pa.Table

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def memory_bytes(self) -> int:
        """Bytes that they take in memory."""
        return int(self.table.nbytes)

    def group(self, row: int) -> tuple[int, pa.Table]:
        """All rows: they are there already."""
        return 0, self.table

    def scanner(self, columns: Sequence[str], where: pc.Expression | None) -> ds.Scanner:
        """A pass over the rows in memory."""
        return ds.dataset(self.table).scanner(
            columns=list(columns), filter=where, batch_size=BATCH_ROWS
        )

    def write(self, target: Target) -> None:
        """Write the rows as they are."""
        write_parquet(target, self.table.schema, self.table.to_batches())


def batches_of(
    content: Content, columns: Sequence[str], *, encoded: bool = False
) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows, batch by batch, with memory that does not grow.

    With `encoded` text columns are dictionaries: each distinct text of a batch is there once.
    """
    if isinstance(content, ParquetContent):
        yield from content.batches(columns, encoded=encoded)
        return
    for batch in content.scanner(columns, None).to_batches():
        if batch.num_rows:
            yield conform(batch, encoded_schema(batch.schema)) if encoded else batch


def group_of(content: Content, columns: Sequence[str], row: int) -> tuple[int, pa.Table]:
    """Some rows around one, and the number of the first of them: what a look-up has to read.

    A row group of a Parquet file, texts as dictionaries; of what has no groups all rows.
    """
    if isinstance(content, HasGroups):
        return content.group(row)
    return 0, pa.Table.from_batches(batches_of(content, columns, encoded=True))
