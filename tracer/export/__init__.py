"""Tables and schema in, files out: CSV, Parquet and the trace-event format of timeline viewers.

Nothing here knows a Trace, torch or a running recording: a source of tables is enough. `csv`
writes and `csv_read` reads back; `target` decides which folders may be written at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow


class TableSource(Protocol):
    """What an exporter needs of a stored trace: its manifest and its rows, batch by batch."""

    @property
    def manifest(self) -> dict[str, Any]:
        """What the trace says about itself."""

    def tables(self) -> list[str]:
        """Names of the tables that have rows."""

    def rows(self, table: str) -> int:
        """Number of rows of one table."""

    def batches(
        self, table: str, columns: Sequence[str] | None = None, *, encoded: bool = False
    ) -> Iterable[pyarrow.RecordBatch]:
        """The rows of one table, or some of its columns, in the order in which they are stored.

        With `encoded` text columns come as dictionaries.
        """
