"""Where the rows of a recording go: what a ledger asks of a journal."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Sink(Protocol):
    """Where rows go: the part of a journal that the recorder uses."""

    @property
    def bytes_written(self) -> int:
        """Bytes that rows have taken so far."""

    @property
    def is_durable(self) -> bool:
        """Whether rows outlive the process: there is a folder that takes them."""

    @property
    def failure(self) -> OSError | None:
        """What stopped writing to the disk; rows are kept in memory from then on."""

    def append(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows of a table: all of them or, where an exception comes out, perhaps none."""

    def rows_of(self, table: str) -> int:
        """How many rows of a table were taken."""

    def append_starts(self, batch: pa.RecordBatch) -> None:
        """Take start records of open spans."""


class Nowhere:
    """A sink that forgets: of a recording left to another process, or of one never to be read."""

    bytes_written = 0
    is_durable = False
    failure = None

    def append(self, table: str, batch: pa.RecordBatch) -> None:
        """Drop rows."""

    def rows_of(self, table: str) -> int:
        """None are kept."""
        return 0

    def append_starts(self, batch: pa.RecordBatch) -> None:
        """Drop start records."""
