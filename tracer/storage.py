"""Traces on disk and in memory: the journal of a recording, and the store that reads a trace.

A recording appends batches to a `Journal`; closing it turns each stream into a Parquet file. A
`Store` reads a folder, a zip, memory, or the journal that a killed process left behind. Data only:
JSON, Parquet and Arrow, never pickle. `Trace` puts pandas on top of it.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import io
import json
import os
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracer.errors import StorageError, TraceFormatError, TracerError
from tracer.recovery import (
    END_OF_STREAM,
    START_SCHEMA,
    Content,
    ParquetContent,
    StreamContent,
    TableContent,
    Target,
    damaged,
    encode,
    recover,
)
from tracer.schema import EVENT_TABLES, SCHEMA_VERSION, TABLES

__all__ = [
    "START_SCHEMA",
    "IfExists",
    "Journal",
    "Store",
    "UnknownNameError",
    "Where",
    "arrow_schema",
    "condition",
    "open_store",
    "unknown_name",
]

IfExists = Literal["error", "replace", "number"]
Where: TypeAlias = "pc.Expression | Sequence[tuple[str, str, Any]] | None"

_MANIFEST: Final = "manifest.json"
_JOURNAL: Final = "journal"
_STARTS: Final = "starts"
# A manifest is some kilobytes; whatever is larger than this was made to exhaust memory.
_MANIFEST_LIMIT_BYTES: Final = 64 * 2**20
_TYPES: Final = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "json": pa.string(),
    "bytes": pa.binary(),
}


class UnknownNameError(TracerError, KeyError):
    """A table or column that the schema does not have."""

    def __str__(self) -> str:
        """The message as it is; KeyError would put it in quotes."""
        return str(self.args[0])


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
        scanner = self._scanner(table, columns, where)
        with self._naming_damage(table):
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch

    def _scanner(self, table: str, columns: Sequence[str] | None, where: Where) -> Any:
        schema = arrow_schema(table)
        names = schema.names if columns is None else list(columns)
        for name in names:
            if name not in schema.names:
                raise unknown_name(f"column of {table!r} called", name, schema.names)
        content = self._contents.get(table, TableContent(schema.empty_table()))
        expression = condition(where, schema)
        with self._naming_damage(table):
            return content.scanner(names, expression)

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
            with _as_storage_error(folder):
                _write_folder(self, folder)
            return folder
        if path.exists() and if_exists != "replace":
            raise StorageError(f"{path} exists; choose another name or pass if_exists='replace'.")
        with _as_storage_error(path):
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


@contextlib.contextmanager
def _as_storage_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"{path} can't be written ({reason}); choose a place with permission and space."
        ) from error


def claim_folder(folder: Path, if_exists: IfExists) -> Path:
    """Make the folder for a trace, or empty it of an old one; a stranger's files are never touched.

    Raises:
        StorageError: It exists, is a file, or can't be made.
    """
    count = 1
    candidate = folder
    while True:
        with _as_storage_error(candidate):
            occupied = _occupant(candidate)
            if occupied is None:
                candidate.mkdir(parents=True, exist_ok=True)
                return candidate
        if occupied == "a trace" and if_exists == "replace":
            with _as_storage_error(candidate):
                remove_trace(candidate)
            return candidate
        if if_exists == "number" and (occupied != "a file" or count > 1):
            count += 1
            candidate = folder.with_name(f"{folder.name}-{count}")
            continue
        advice = "choose another place"
        if occupied == "a trace":
            advice = "pass if_exists='replace' or 'number', or choose another place"
        raise StorageError(f"{candidate} is already {occupied}; {advice}.")


def _occupant(folder: Path) -> str | None:
    if not os.path.lexists(folder):
        return None
    if not folder.is_dir():
        return "a file"
    if not any(folder.iterdir()):
        return None
    try:
        read_manifest(folder)
    except TraceFormatError:
        return "a folder with files that are no trace"
    return "a trace"


def remove_trace(folder: Path) -> None:
    """Delete the files of a trace by name; whatever else lies in the folder stays."""
    (folder / _MANIFEST).unlink(missing_ok=True)
    _remove_tables(folder)
    _remove_journal(folder)


def _remove_tables(folder: Path) -> None:
    for name in TABLES:
        (folder / f"{name}.parquet").unlink(missing_ok=True)


def _remove_journal(folder: Path) -> None:
    journal = folder / _JOURNAL
    for name in (*TABLES, _STARTS):
        (journal / f"{name}.arrows").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # A stranger's file inside keeps the folder.
        journal.rmdir()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a trace folder.

    Raises:
        TraceFormatError: There is none, it is damaged, or a newer version wrote it.
    """
    file = folder / _MANIFEST
    try:
        with file.open("rb") as opened:
            text = opened.read(_MANIFEST_LIMIT_BYTES + 1)
    except OSError as error:
        raise _no_trace(folder, f"it has no readable {_MANIFEST}") from error
    return _parse_manifest(text, file)


def _no_trace(path: Path, why: str) -> TraceFormatError:
    return TraceFormatError(
        f"{path} is no trace: {why}; open a folder or zip that tracer.record or save wrote."
    )


def _parse_manifest(text: bytes, file: Path) -> dict[str, Any]:
    manifest: dict[str, Any]
    try:
        if len(text) > _MANIFEST_LIMIT_BYTES:
            raise ValueError("larger than any manifest")
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(str(file), error) from error
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(version, int):
        raise _no_trace(file, "its manifest names no schema_version")
    if version > SCHEMA_VERSION:
        raise TraceFormatError(
            f"{file} was written with schema version {version} and this tracer reads up to "
            f"{SCHEMA_VERSION}; update tracer to open it."
        )
    return manifest


def _manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    # Paths, dtypes and the like become text: a manifest must never fail at the end of a run.
    return json.dumps(manifest, indent=1, default=str).encode()


def _write_beside(target: Path, write: Callable[[Path], object]) -> None:
    """Write under a temporary name, then rename: a reader never meets half a file."""
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        write(temporary)
        os.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    data = _manifest_bytes(manifest)
    _write_beside(folder / _MANIFEST, lambda temporary: temporary.write_bytes(data))


def _write_folder(store: Store, folder: Path) -> None:
    for table in store.tables():
        write = functools.partial(store.write_table, table)
        _write_beside(folder / f"{table}.parquet", write)
    _write_manifest(folder, store.manifest)


def _write_zip(store: Store, path: Path) -> None:
    def write(temporary: Path) -> None:
        # Stored, not deflated: Parquet is compressed already and can be read where it lies.
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_MANIFEST, _manifest_bytes(store.manifest))
            for table in store.tables():
                with archive.open(f"{table}.parquet", "w", force_zip64=True) as member:
                    store.write_table(table, member)

    _write_beside(path, write)


def open_store(path: Path | str) -> Store:
    """Open a trace: a folder, a zip, or what a killed recording left.

    Raises:
        TraceFormatError: It is no trace, is damaged, or a newer version wrote it.
    """
    path = Path(path)
    if path.is_file():
        return _open_zip(path)
    if not path.is_dir():
        raise _no_trace(path, "nothing is there")
    manifest = read_manifest(path)
    schemas = {name: arrow_schema(name) for name in TABLES}
    if manifest.get("state") == "recording":
        contents = recover(path / _JOURNAL, schemas, EVENT_TABLES)
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
            if _MANIFEST not in members:
                raise _no_trace(path, f"the zip has no {_MANIFEST} at its top")
            with archive.open(members[_MANIFEST]) as opened:
                manifest = _parse_manifest(opened.read(_MANIFEST_LIMIT_BYTES + 1), path)
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
        raise _no_trace(path, f"{member.filename} in it is packed again; unpack it to a folder")
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


class _Stream:
    """One table of a journal: whole batches in a file, in memory, or first one then the other."""

    def __init__(self, path: Path | None, schema: pa.Schema) -> None:
        self._schema = schema
        self._path = path
        self._file: io.FileIO | None = None
        self._length = 0  # bytes of whole batches in the file, its schema among them
        self._kept: list[pa.Buffer] = []
        self.rows = 0

    def write(self, batch: pa.RecordBatch, to_disk: bool) -> int:
        """Append a batch and give its size in bytes.

        Raises:
            OSError: The disk refused; the file then still ends with the last whole batch.
        """
        message = encode(batch)
        if self._path is None or not to_disk:
            self._kept.append(message)
            self.rows += batch.num_rows
            return int(message.size)
        if self._file is None:
            self._file = self._path.open("r+b" if self._length else "wb", buffering=0)
        data = message.to_pybytes()
        if not self._length:
            data = self._schema.serialize().to_pybytes() + data
        # What an exception between two writes (Ctrl-C) left behind is written over here.
        self._file.seek(self._length)
        written = 0
        while written < len(data):
            written += self._file.write(data[written:])
        self._length += written
        self.rows += batch.num_rows
        return written

    def release(self) -> None:
        """Close the file and cut off what an unfinished write left behind the last batch."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(self._length)
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def content(self) -> StreamContent:
        """The batches so far, to be read after `release`."""
        parts: list[Path | pa.Buffer] = []
        if self._path is not None and self._length:
            parts.append(self._path)
        if self._kept:
            head = self._schema.serialize().to_pybytes()
            parts.append(pa.py_buffer(b"".join((head, *self._kept, END_OF_STREAM))))
        return StreamContent(self._schema, tuple(parts), self.rows, is_own=True)


class Journal:
    """Where rows go while a recording is on.

    With a folder each batch is handed to the operating system at once, so that a kill loses none
    that was appended. When the disk refuses, later batches stay in memory. Safe to call from any
    thread.

    Attributes:
        folder: The folder in use, which `if_exists="number"` may have renamed; None in memory.
        failure: The first refusal of the disk; None while all is well.
        bytes_written: Bytes of all batches so far, compressed.
    """

    def __init__(self, folder: Path | str | None = None, *, if_exists: IfExists = "error") -> None:
        """Claim the folder and write a manifest that says a recording is on.

        Raises:
            StorageError: The folder exists, is a file, or can't be written.
        """
        self.folder: Path | None = None
        self.failure: OSError | None = None
        self.bytes_written = 0
        self._streams: dict[str, _Stream] = {}
        self._lock = threading.Lock()
        if folder is not None:
            self.folder = claim_folder(Path(folder), if_exists)
            with _as_storage_error(self.folder):
                (self.folder / _JOURNAL).mkdir(exist_ok=True)
                _write_manifest(self.folder, self._provisional({}))

    @staticmethod
    def _provisional(manifest: Mapping[str, Any]) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **manifest, "state": "recording"}

    def describe(self, manifest: Mapping[str, Any]) -> None:
        """Replace the provisional manifest, which is what remains after a kill."""
        if self.folder is None:
            return
        try:
            _write_manifest(self.folder, self._provisional(manifest))
        except OSError as error:
            self.failure = self.failure or error

    def append(self, table: str, batch: pa.RecordBatch) -> None:
        """Add rows of a table; never raises for the disk's sake.

        Raises:
            StorageError: The batch does not have the table's columns and types.
        """
        self._append(table, arrow_schema(table), batch)

    def append_starts(self, batch: pa.RecordBatch) -> None:
        """Add start records: spans that come back as interrupted should their row never come."""
        self._append(_STARTS, START_SCHEMA, batch)

    def _append(self, name: str, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(schema):
            raise StorageError(
                f"A batch for {name!r} has other columns or types than its schema "
                f"({batch.schema.names}); build it with arrow_schema({name!r})."
            )
        if not batch.num_rows:
            return
        with self._lock:
            if name not in self._streams:
                path = self.folder / _JOURNAL / f"{name}.arrows" if self.folder else None
                self._streams[name] = _Stream(path, schema)
            stream = self._streams[name]
            try:
                self.bytes_written += stream.write(batch, to_disk=self.failure is None)
            except OSError as error:
                self.failure = error
                self.bytes_written += stream.write(batch, to_disk=False)

    def release(self) -> None:
        """Close the files and leave the journal as a kill would; a later batch reopens them."""
        with self._lock:
            for stream in self._streams.values():
                stream.release()

    def close(self, manifest: Mapping[str, Any]) -> Store:
        """Turn every stream into Parquet and give the finished trace.

        After a refusal of the disk this is tried once more; if it fails again, the journal stays
        where it is and the trace reads it together with what is in memory.
        """
        self.release()
        with self._lock:
            contents = {
                name: self._streams[name].content() for name in TABLES if name in self._streams
            }
        complete = {"schema_version": SCHEMA_VERSION, **manifest, "state": "complete"}
        if self.failure is not None:
            complete["storage_failure"] = str(self.failure)
        if self.folder is None:
            return Store(complete, {name: _packed(item) for name, item in contents.items()})
        journal = Store(complete, contents)
        try:
            _write_folder(journal, self.folder)
        except OSError as error:
            self.failure = self.failure or error
            complete["storage_failure"] = str(self.failure)
            _remove_tables(self.folder)
            return journal
        _remove_journal(self.folder)
        return open_store(self.folder)


def _packed(content: StreamContent) -> Content:
    """A stream in memory as Parquet in memory: smaller, and columns can be read alone."""
    sink = pa.BufferOutputStream()
    content.write(sink)
    buffer = sink.getvalue()
    return ParquetContent("memory", content.schema, lambda: pa.BufferReader(buffer), content.rows)
