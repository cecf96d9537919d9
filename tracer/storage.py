"""A stored trace: its manifest and its tables, read lazily from wherever they lie.

A `Store` reads a folder, a zip, memory, or the journal that a killed process left behind. Data
only: JSON, Parquet and Arrow, never pickle. `Trace` puts pandas on top of it; journal.py writes.
"""

from __future__ import annotations

import contextlib
import functools
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tracer.archive import open_zip
from tracer.batches import Target, conform, encoded_schema
from tracer.conditions import Where, condition
from tracer.contents import Content, ParquetContent, TableContent, batches_of, group_of
from tracer.errors import StorageError, TraceFormatError
from tracer.explain.lookup import unknown_name
from tracer.explain.sentences import phrase
from tracer.folder import (
    JOURNAL,
    MANIFEST,
    IfExists,
    as_storage_error,
    claim_folder,
    damaged,
    manifest_bytes,
    no_trace,
    read_manifest,
    write_beside,
    write_manifest,
)
from tracer.merging import Part, RankedContent, merged
from tracer.ranks import rank_folders
from tracer.recovery import recover
from tracer.schema import EVENT_TABLES, SCHEMA_VERSION, TABLES
from tracer.shortcomings import loss

_TYPES: Final = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "json": pa.string(),
    "bytes": pa.binary(),
}


@functools.cache
def arrow_schema(table: str) -> pa.Schema:
    """Arrow types of a table's columns, in schema order.

    Raises:
        UnknownNameError: There is no such table.
    """
    if table not in TABLES:
        raise unknown_name("table", table, TABLES)
    return pa.schema([(column.name, _TYPES[column.kind]) for column in TABLES[table].columns])


class Store:
    """The tables and the manifest of one trace, read lazily.

    Attributes:
        manifest: What manifest.json says; of a killed recording with `state` "interrupted".
        contents: Where the rows of each table lie.
    """

    def __init__(self, manifest: dict[str, Any], contents: Mapping[str, Content]) -> None:
        """Take the tables as they lie; nothing is read yet."""
        self.manifest = manifest
        self.contents = {name: contents[name] for name in TABLES if name in contents}

    @classmethod
    def from_tables(cls, manifest: dict[str, Any], tables: Mapping[str, pa.Table]) -> Store:
        """A store over Arrow tables in memory, cast to the schema's types."""
        cast = {name: table.cast(arrow_schema(name)) for name, table in tables.items()}
        complete = {"schema_version": SCHEMA_VERSION, **manifest}
        return cls(complete, {name: TableContent(table) for name, table in cast.items()})

    def tables(self) -> list[str]:
        """Schema tables that have rows, in schema order."""
        return [name for name, content in self.contents.items() if content.rows]

    def rows(self, table: str) -> int:
        """Number of rows of a table that are there; 0 where the trace has none."""
        arrow_schema(table)
        return self.contents[table].rows if table in self.contents else 0

    def memory_bytes(self, table: str) -> int:
        """Bytes of memory that a table takes as it lies; none where it is read from a disk."""
        return int(getattr(self.contents.get(table), "memory_bytes", 0))

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Where = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Rows in stored order; only the asked columns are read.

        Args:
            table: Name of a schema table.
            columns: Names in the order wanted; all without.
            where: `(column, operator, value)` tuples that must all hold, or an Arrow expression.
            limit: At most so many rows, from the first.

        Raises:
            UnknownNameError: There is no such table or column.
            TraceFormatError: The file is damaged.
        """
        scanner = self._scanner(table, columns, where)
        with self._naming_damage(table):
            return scanner.to_table() if limit is None else scanner.head(limit)

    def batches(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Where = None,
        *,
        encoded: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as `read`, batch by batch, with memory that does not grow.

        With `encoded` text columns are dictionaries: each distinct text of a batch is there once.
        """
        content = self._content(table)
        names = self._names(table, columns)
        with self._naming_damage(table):
            if where is None and isinstance(content, RankedContent):
                yield from content.batches(names, encoded=encoded)
            elif where is None:
                yield from batches_of(content, names, encoded=encoded)
            else:
                for batch in self._scanner(table, columns, where).to_batches():
                    if batch.num_rows:
                        yield conform(batch, encoded_schema(batch.schema)) if encoded else batch

    def group(self, table: str, row: int) -> tuple[int, pa.Table]:
        """Some rows of a table around one in stored order, and the number of the first of them.

        As few as can be read without the others; columns that they lack are missing in all of them.

        Raises:
            IndexError: There is no such row.
            TraceFormatError: The file is damaged.
        """
        with self._naming_damage(table):
            return group_of(self._content(table), arrow_schema(table).names, row)

    def _scanner(self, table: str, columns: Sequence[str] | None, where: Where) -> Any:
        schema = arrow_schema(table)
        names = self._names(table, columns)
        content = self._content(table)
        expression = condition(where, schema)
        with self._naming_damage(table):
            return content.scanner(names, expression)

    def _content(self, table: str) -> Content:
        """Where the rows lie; a table that had rows and lost all is never taken for empty."""
        content = self.contents.get(table)
        if content is not None:
            return content
        for entry in self.manifest.get("lost", []):
            if entry["table"] == table:
                raise TraceFormatError(phrase("errors.lost_table", table=table, loss=loss(entry)))
        return TableContent(arrow_schema(table).empty_table())

    def remains(self) -> Store:
        """The same trace, in which a table that is missing reads as empty."""
        manifest = {name: value for name, value in self.manifest.items() if name != "lost"}
        return Store(manifest, self.contents)

    @staticmethod
    def _names(table: str, columns: Sequence[str] | None) -> list[str]:
        known: list[str] = arrow_schema(table).names
        names = known if columns is None else list(columns)
        for name in names:
            if name not in known:
                raise unknown_name("column_of", name, known, table=table)
        return names

    @contextlib.contextmanager
    def _naming_damage(self, table: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise damaged(phrase("errors.table_of_trace", table=table), error) from error

    def save(self, path: Path | str, *, if_exists: IfExists = "error") -> Path:
        """Write the trace to a zip (where the name ends so) or to a folder.

        Raises:
            StorageError: The place exists or can't be written.
        """
        path = Path(path)
        if path.suffix.lower() != ".zip":
            folder = claim_folder(path, if_exists)
            with as_storage_error(folder):
                write_folder(self, folder)
            return folder
        if path.exists() and if_exists != "replace":
            raise StorageError(phrase("errors.zip_exists", path=path))
        with as_storage_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_zip(self, path)
        return path

    def write_table(self, table: str, target: Target) -> None:
        """Write one table as Parquet; a file that is Parquet already is copied byte by byte."""
        self.contents[table].write(target)


def write_folder(store: Store, folder: Path) -> None:
    """Write every table, then the manifest that makes the folder a trace.

    Raises:
        OSError: The disk refused.
    """
    for table in store.tables():
        write = functools.partial(store.write_table, table)
        write_beside(folder / f"{table}.parquet", write)
    write_manifest(folder, _with_counts(store))


def _with_counts(store: Store) -> dict[str, Any]:
    """The manifest with the rows of each table, so that a file that goes missing is missed."""
    return {**store.manifest, "rows": {table: store.rows(table) for table in store.tables()}}


def _write_zip(store: Store, path: Path) -> None:
    def write(temporary: Path) -> None:
        # Stored, not deflated: Parquet is compressed already and can be read where it lies.
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(MANIFEST, manifest_bytes(_with_counts(store)))
            for table in store.tables():
                with archive.open(f"{table}.parquet", "w", force_zip64=True) as member:
                    store.write_table(table, member)

    write_beside(path, write)


def open_store(path: Path | str) -> Store:
    """Open a trace: a folder, a zip, the folder of several ranks, or what a kill left.

    Raises:
        TraceFormatError: It is no trace, is damaged, or a newer version wrote it.
    """
    path = Path(path)
    if path.is_file():
        return _counted(*open_zip(path, {name: arrow_schema(name) for name in TABLES}))
    if not path.is_dir():
        raise no_trace(path, phrase("errors.nothing_there"))
    ranks = {} if (path / MANIFEST).exists() else rank_folders(path)
    return _open_ranks(path, ranks) if ranks else _open_folder(path)


def _open_ranks(path: Path, folders: Mapping[int, Path]) -> Store:
    """The recordings of all ranks of a run as one; a folder without a manifest began nothing."""
    parts = []
    for number, folder in folders.items():
        if (folder / MANIFEST).exists():
            store = _open_folder(folder)
            parts.append(Part(number, store.manifest, store.contents))
    if not parts:
        raise no_trace(path, phrase("errors.no_manifest_of_rank", manifest=MANIFEST))
    return Store(*merged(parts, {name: arrow_schema(name) for name in TABLES}))


def _open_folder(path: Path) -> Store:
    manifest = read_manifest(path)
    schemas = {name: arrow_schema(name) for name in TABLES}
    if manifest.get("state") == "recording":
        contents = recover(path / JOURNAL, schemas, EVENT_TABLES)
        return Store({**manifest, "state": "interrupted"}, contents)
    found = {name: path / f"{name}.parquet" for name in TABLES}
    return _counted(
        manifest,
        {
            name: ParquetContent.checked(
                str(file), schemas[name], functools.partial(pa.OSFile, str(file))
            )
            for name, file in found.items()
            if file.exists()
        },
    )


def _counted(manifest: dict[str, Any], contents: Mapping[str, Content]) -> Store:
    """A store whose manifest tells, as `lost`, which tables no longer have the rows written."""
    store = Store(manifest, contents)
    written = manifest.get("rows")
    if written is None:  # an older recording, which did not count
        return store
    lost = [
        {"table": table, "written": written.get(table, 0), "found": store.rows(table)}
        for table in TABLES
        if written.get(table, 0) != store.rows(table)
    ]
    if lost:
        # A copy of an incomplete trace was told before what it lacks.
        store.manifest = {**manifest, "lost": [*manifest.get("lost", []), *lost]}
    return store
