"""Where rows go while a recording is on: one Arrow stream a table, Parquet when it closes.

Each batch reaches the operating system at once, so that a kill loses none; a disk that refuses
costs no row. It does not read traces: storage.py does, recovery.py what a kill left behind.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tracer.contents import IN_MEMORY, Content, ParquetContent, StreamContent
from tracer.errors import StorageError
from tracer.explain.sentences import phrase
from tracer.folder import (
    JOURNAL,
    RESERVE,
    STARTS,
    IfExists,
    as_storage_error,
    claim_folder,
    remove_journal,
    remove_tables,
    write_manifest,
)
from tracer.ranks import Rank
from tracer.recovery import START_SCHEMA
from tracer.schema import SCHEMA_VERSION, TABLES
from tracer.storage import Store, arrow_schema, open_store, write_folder

# Arrow ends a stream with a continuation marker and a length of zero.
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
# Room for a manifest; noise, since a file system that compresses would keep anything else small.
_RESERVE_BYTES: Final = 32_768
# One thread: a recording must not compete with the model for cores.
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class _Stream:
    """One table of a journal: whole batches in a file, in memory, or first one then the other."""

    def __init__(self, path: Path | None, schema: pa.Schema) -> None:
        self._schema = schema
        self._path = path
        self._file: io.FileIO | None = None
        self._length = 0  # bytes of whole batches in the file, its schema among them
        self._rows_in_file = 0
        self._kept: list[tuple[pa.Buffer, int]] = []

    @property
    def rows(self) -> int:
        """Rows of whole batches; true whenever Ctrl-C strikes."""
        return self._rows_in_file + sum(rows for _, rows in self._kept)

    def write(self, batch: pa.RecordBatch, to_disk: bool) -> int:
        """Append a batch and give its size in bytes.

        Raises:
            OSError: The disk refused; the file then still ends with the last whole batch.
        """
        message = _encode(batch)
        if self._path is None or not to_disk:
            self._kept.append((message, batch.num_rows))
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
        total = self._length + written, self._rows_in_file + batch.num_rows
        self._length, self._rows_in_file = total
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
            kept = [message for message, _ in self._kept]
            parts.append(pa.py_buffer(b"".join((head, *kept, _END_OF_STREAM))))
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

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        if_exists: IfExists = "error",
        rank: Rank | None = None,
    ) -> None:
        """Claim the folder and write a manifest that says a recording is on.

        One of several ranks claims a folder of its own inside.

        Raises:
            StorageError: The folder exists, is a file, or can't be written.
        """
        self.folder: Path | None = None
        self.failure: OSError | None = None
        self.bytes_written = 0
        self._described: dict[str, Any] = {}
        self._streams: dict[str, _Stream] = {}
        self._is_written = False  # all of it, as a finished trace
        self._lock = threading.RLock()
        if folder is not None:
            self._described = rank.fields() if rank else {}
            self.folder = claim_folder(Path(folder), if_exists, rank)
            with as_storage_error(self.folder):
                (self.folder / JOURNAL).mkdir(exist_ok=True)
                (self.folder / JOURNAL / RESERVE).write_bytes(os.urandom(_RESERVE_BYTES))
                write_manifest(self.folder, self._provisional(self._described))

    @property
    def is_durable(self) -> bool:
        """Whether rows outlive the process: there is a folder, and its disk takes them."""
        return self.folder is not None and self.failure is None

    @staticmethod
    def _provisional(manifest: Mapping[str, Any]) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **manifest, "state": "recording"}

    def describe(self, manifest: Mapping[str, Any]) -> None:
        """Replace the provisional manifest, which is what remains after a kill."""
        if self.folder is None:
            return
        self._described = dict(manifest)
        try:
            write_manifest(self.folder, self._provisional(manifest))
        except OSError as error:
            self._refused(error)

    def _refused(self, error: OSError) -> None:
        """Note the first refusal, here and where a reader of the folder will look.

        A folder that only says "recording" would be taken for one whose process was killed.
        """
        self.failure = self.failure or error
        if self.folder is None:
            return
        told = {**self._described, "storage_failure": str(self.failure)}
        # Where even the room kept free for it is gone, nobody can be told.
        with contextlib.suppress(OSError):
            (self.folder / JOURNAL / RESERVE).unlink(missing_ok=True)
            write_manifest(self.folder, self._provisional(told))

    def append(self, table: str, batch: pa.RecordBatch) -> None:
        """Add rows of a table; never raises for the disk's sake.

        Raises:
            StorageError: The batch does not have the table's columns and types.
        """
        self._append(table, arrow_schema(table), batch)

    def rows_of(self, table: str) -> int:
        """How many rows of a table it has."""
        stream = self._streams.get(table)
        return 0 if stream is None else stream.rows

    def append_starts(self, batch: pa.RecordBatch) -> None:
        """Add start records: spans that come back as interrupted should their row never come."""
        self._append(STARTS, START_SCHEMA, batch)

    def _append(self, name: str, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(schema):
            raise StorageError(phrase("errors.no_batch", table=name, columns=batch.schema.names))
        if not batch.num_rows:
            return
        with self._lock:
            if name not in self._streams:
                path = self.folder / JOURNAL / f"{name}.arrows" if self.folder else None
                self._streams[name] = _Stream(path, schema)
            stream = self._streams[name]
            try:
                self.bytes_written += stream.write(batch, to_disk=self.failure is None)
            except OSError as error:
                self._refused(error)
                self.bytes_written += stream.write(batch, to_disk=False)

    def release(self) -> None:
        """Close the files and leave the journal as a kill would; a later batch reopens them."""
        with self._lock:
            for stream in self._streams.values():
                stream.release()

    def close(self, manifest: Mapping[str, Any]) -> Store:
        """Turn every stream into Parquet and give the finished trace.

        After a refusal of the disk this is tried once more; if it fails again, the journal stays
        where it is and the trace reads it together with what is in memory. What Ctrl-C cut off is
        done anew by the next time.
        """
        if self._is_written and self.folder is not None:
            remove_journal(self.folder)
            return open_store(self.folder)
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
            write_folder(journal, self.folder)
        except OSError as error:
            remove_tables(self.folder)
            self._described = complete
            self._refused(error)
            complete["storage_failure"] = str(self.failure)
            return journal
        self._is_written = True
        remove_journal(self.folder)
        return open_store(self.folder)


def _packed(content: StreamContent) -> Content:
    """A stream in memory as Parquet in memory: smaller, and columns can be read alone."""
    sink = pa.BufferOutputStream()
    content.write(sink)
    buffer = sink.getvalue()
    return ParquetContent(IN_MEMORY, content.schema, lambda: pa.BufferReader(buffer), content.rows)


def _encode(batch: pa.RecordBatch) -> pa.Buffer:
    """One batch as the bytes that follow a stream's schema, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    whole = sink.getvalue()
    start = batch.schema.serialize().size
    return whole.slice(start, whole.size - start - len(_END_OF_STREAM))
