"""A stored trace: its manifest and its tables, read lazily from wherever they lie.

A `Store` reads a folder, a zip, memory, or the journal that a killed process left behind. Data
only: JSON, Parquet and Arrow, never pickle. `Trace` puts pandas on top of it; journal.py writes.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracer.errors import StorageError, TracerError, UnknownNameError
from tracer.folder import (
    JOURNAL,
    MANIFEST,
    MANIFEST_LIMIT_BYTES,
    IfExists,
    as_storage_error,
    claim_folder,
    damaged,
    manifest_bytes,
    no_trace,
    parse_manifest,
    read_manifest,
    write_beside,
    write_manifest,
)
from tracer.recovery import Content, ParquetContent, TableContent, Target, recover
from tracer.schema import EVENT_TABLES, SCHEMA_VERSION, TABLES

Where: TypeAlias = "pc.Expression | Sequence[tuple[str, str, Any]] | None"

_TYPES: Final = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "json": pa.string(),
    "bytes": pa.binary(),
}


def arrow_schema(table: str) -> pa.Schema:
    """Arrow types of a table's columns, in schema order.

    Raises:
        UnknownNameError: There is no such table.
    """
    if table not in TABLES:
        raise unknown_name("table", table, TABLES)
    return pa.schema([(column.name, _TYPES[column.kind]) for column in TABLES[table].columns])


def unknown_name(what: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """An error that names the close matches, or all names where nothing is close."""
    close = difflib.get_close_matches(str(name), list(known)) or sorted(known)
    return UnknownNameError(
        f"There is no {what} {name!r}; did you mean one of: {', '.join(close)}?"
    )


class Store:
    """The tables and the manifest of one trace, read lazily.

    Attributes:
        manifest: What manifest.json says; of a killed recording with `state` "interrupted".
    """

    def __init__(self, manifest: dict[str, Any], contents: Mapping[str, Content]) -> None:
        """Take the tables as they lie; nothing is read yet."""
        self.manifest = manifest
        self._contents = {name: contents[name] for name in TABLES if name in contents}

    @classmethod
    def from_tables(cls, manifest: dict[str, Any], tables: Mapping[str, pa.Table]) -> Store:
        """A store over Arrow tables in memory, cast to the schema's types."""
        cast = {name: table.cast(arrow_schema(name)) for name, table in tables.items()}
        complete = {"schema_version": SCHEMA_VERSION, **manifest}
        return cls(complete, {name: TableContent(table) for name, table in cast.items()})

    def tables(self) -> list[str]:
        """Schema tables that have rows, in schema order."""
        return [name for name, content in self._contents.items() if content.rows]

    def rows(self, table: str) -> int:
        """Number of rows of a table; 0 where the trace has none."""
        arrow_schema(table)
        return self._contents[table].rows if table in self._contents else 0

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
        self, table: str, columns: Sequence[str] | None = None, where: Where = None
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as `read`, batch by batch, with memory that does not grow."""
        content = self._contents.get(table)
        with self._naming_damage(table):
            if where is None and isinstance(content, ParquetContent):
                yield from content.batches(self._names(table, columns))
                return
            for batch in self._scanner(table, columns, where).to_batches():
                if batch.num_rows:
                    yield batch

    def _scanner(self, table: str, columns: Sequence[str] | None, where: Where) -> Any:
        schema = arrow_schema(table)
        names = self._names(table, columns)
        content = self._contents.get(table, TableContent(schema.empty_table()))
        expression = condition(where, schema)
        with self._naming_damage(table):
            return content.scanner(names, expression)

    @staticmethod
    def _names(table: str, columns: Sequence[str] | None) -> list[str]:
        known: list[str] = arrow_schema(table).names
        names = known if columns is None else list(columns)
        for name in names:
            if name not in known:
                raise unknown_name(f"column of {table!r} called", name, known)
        return names

    @contextlib.contextmanager
    def _naming_damage(self, table: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise damaged(f"Table {table!r} of the trace", error) from error

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
            raise StorageError(f"{path} exists; choose another name or pass if_exists='replace'.")
        with as_storage_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_zip(self, path)
        return path

    def write_table(self, table: str, target: Target) -> None:
        """Write one table as Parquet; a file that is Parquet already is copied byte by byte."""
        self._contents[table].write(target)


def condition(where: Where, schema: pa.Schema) -> pc.Expression | None:
    """The Arrow expression of a condition, checked against a schema before anything is read.

    Raises:
        UnknownNameError: A tuple names a column that is not there.
        TracerError: An operator or a type that does not fit.
    """
    if where is None or isinstance(where, pc.Expression):
        expression = where
    else:
        for name, *_ in where:
            if name not in schema.names:
                raise unknown_name("column called", name, schema.names)
        try:
            expression = pq.filters_to_expression(list(where)) if where else None
        except ValueError as error:
            raise TracerError(f"The condition {where!r} can't be read: {error}") from error
    if expression is not None:
        try:
            schema.empty_table().filter(expression)
        except (pa.ArrowException, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise TracerError(f"The condition {where!r} does not fit: {reason}.") from error
    return expression


def write_folder(store: Store, folder: Path) -> None:
    """Write every table, then the manifest that makes the folder a trace.

    Raises:
        OSError: The disk refused.
    """
    for table in store.tables():
        write = functools.partial(store.write_table, table)
        write_beside(folder / f"{table}.parquet", write)
    write_manifest(folder, store.manifest)


def _write_zip(store: Store, path: Path) -> None:
    def write(temporary: Path) -> None:
        # Stored, not deflated: Parquet is compressed already and can be read where it lies.
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(MANIFEST, manifest_bytes(store.manifest))
            for table in store.tables():
                with archive.open(f"{table}.parquet", "w", force_zip64=True) as member:
                    store.write_table(table, member)

    write_beside(path, write)


def open_store(path: Path | str) -> Store:
    """Open a trace: a folder, a zip, or what a killed recording left.

    Raises:
        TraceFormatError: It is no trace, is damaged, or a newer version wrote it.
    """
    path = Path(path)
    if path.is_file():
        return _open_zip(path)
    if not path.is_dir():
        raise no_trace(path, "nothing is there")
    manifest = read_manifest(path)
    schemas = {name: arrow_schema(name) for name in TABLES}
    if manifest.get("state") == "recording":
        contents = recover(path / JOURNAL, schemas, EVENT_TABLES)
        return Store({**manifest, "state": "interrupted"}, contents)
    found = {name: path / f"{name}.parquet" for name in TABLES}
    return Store(
        manifest,
        {
            name: ParquetContent.checked(
                str(file), schemas[name], functools.partial(pa.OSFile, str(file))
            )
            for name, file in found.items()
            if file.exists()
        },
    )


def _open_zip(path: Path) -> Store:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if MANIFEST not in members:
                raise no_trace(path, f"the zip has no {MANIFEST} at its top")
            with archive.open(members[MANIFEST]) as opened:
                manifest = parse_manifest(opened.read(MANIFEST_LIMIT_BYTES + 1), path)
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError) as error:
        raise damaged(str(path), error) from error
    contents = {}
    for name in TABLES:
        member = members.get(f"{name}.parquet")
        if member is not None:
            where = f"{path}/{member.filename}"
            start = _member_start(path, member)
            opener = functools.partial(_map_member, path, start, member.file_size)
            contents[name] = ParquetContent.checked(where, arrow_schema(name), opener)
    return Store(manifest, contents)


def _member_start(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin; nothing outside the zip is ever addressed."""
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise no_trace(path, f"{member.filename} in it is packed again; unpack it to a folder")
    with path.open("rb") as opened:
        opened.seek(member.header_offset)
        header = opened.read(30)
        if header[:4] != b"PK\x03\x04" or len(header) < 30:
            raise damaged(f"{path}/{member.filename}", ValueError("no local header"))
        start = member.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
        if start + member.file_size > opened.seek(0, os.SEEK_END):
            raise damaged(f"{path}/{member.filename}", ValueError("it ends outside the zip"))
    return int(start)


def _map_member(path: Path, start: int, size: int) -> pa.NativeFile:
    mapped = pa.memory_map(str(path))
    mapped.seek(start)
    return pa.BufferReader(mapped.read_buffer(size))
