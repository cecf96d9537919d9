"""A trace for people: its tables as pandas frames, its story as text, its files for others.

`Trace` puts pandas, the audit and the exports on top of a `Store`; summary and scrubbing have rooms
of their own. It changes nothing and records nothing. Arrow (`Trace.arrow`) is the exact form: a
frame shows the same cells with pandas' nullable types, and reals keep NaN and missing apart.
"""

from __future__ import annotations

import html
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracer.audit import audit, findings
from tracer.auditing.source import Finding
from tracer.conditions import Where, condition
from tracer.errors import IncompleteTraceWarning
from tracer.explain.lookup import unknown_name
from tracer.explain.sentences import then
from tracer.export.csv import write_csv
from tracer.export.csv_read import read_tables
from tracer.export.parquet import write_parquet
from tracer.folder import IfExists
from tracer.frames import frame_of_batches, to_frame
from tracer.schema import EVENT_COLUMNS, EVENT_TABLES, TABLES
from tracer.scrubbing import scrubbed
from tracer.shortcomings import shortcomings
from tracer.storage import Store, arrow_schema, open_store
from tracer.summary import summary_text

EVENTS: Final = "events"
_COMMON: Final = [column.name for column in EVENT_COLUMNS]
_EVENTS_SCHEMA: Final = pa.schema(
    [*(arrow_schema("calls").field(name) for name in _COMMON), ("table", pa.string())]
)
# Rows of a table that is compared as a whole: some megabytes.
_SMALL_ROWS: Final = 10_000
# A frame of more rows is filled batch by batch.
_MANY_ROWS: Final = 250_000


def open_trace(path: Path | str) -> Trace:
    """Open a trace: a folder, a zip, what a killed recording left, or a run of several ranks.

    A run of ranks is the folder that they shared. In it short ids have the rank in front
    (`r1/model-1`) and `start_ns` is derived: the manifest says how clocks were brought together.

    Warns:
        IncompleteTraceWarning: Rows that were written are no longer there, or a rank is missing.

    Raises:
        TraceFormatError: It is no trace, is damaged, or a newer version wrote it.
    """
    trace = Trace(open_store(path))
    lacks = shortcomings(trace.manifest)
    if lacks:
        text = then(*lacks).said("en")
        warnings.warn(f"{path} is not complete: {text}", IncompleteTraceWarning, stacklevel=2)
    return trace


def read_csv(folder: Path | str) -> Trace:
    """Read back what `to_csv` wrote: a trace with equal cells and types, in memory.

    Raises:
        TraceFormatError: The folder is no whole, unchanged CSV export.
    """
    manifest, tables = read_tables(folder)
    return Trace(Store.from_tables(manifest, tables))


class Trace:
    """A finished recording, read lazily; `trace["calls"]` is a table as a pandas frame.

    Attributes:
        store: Where the rows lie: what exporters read.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, machine, options, cost, and how the run ended."""
        return self.store.manifest

    @property
    def tables(self) -> list[str]:
        """Names of the schema tables that have rows, in schema order, without `events`."""
        return self.store.tables()

    def rows(self, table: str) -> int:
        """Number of rows of a table."""
        if table == EVENTS:
            return sum(self.store.rows(name) for name in EVENT_TABLES)
        return self.store.rows(table)

    def arrow(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Where = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Some columns and rows of a table as Arrow; nothing else is read.

        Args:
            table: A schema table, or `events`: the common columns of all event tables by seq.
            columns: Names in the order wanted; all without.
            where: `(column, operator, value)` tuples that must all hold, or an Arrow expression.
            limit: At most so many rows, from the first.

        Raises:
            UnknownNameError: There is no such table or column.
        """
        if table == EVENTS:
            return self._events(columns, where, limit)
        if table not in TABLES:
            raise unknown_name("table", table, (*TABLES, EVENTS))
        return self.store.read(table, columns, where, limit)

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Where = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """The same as `arrow`, as a pandas frame."""
        schema = arrow_schema(table) if table in TABLES else _EVENTS_SCHEMA
        names = schema.names if columns is None else list(columns)
        is_plain = where is None and limit is None and len({*names} & {*schema.names}) == len(names)
        if not is_plain or table == EVENTS or self.rows(table) <= _MANY_ROWS:
            return to_frame(self.arrow(table, columns, where, limit))
        asked = pa.schema([schema.field(name) for name in names])
        return frame_of_batches(asked, self.store.batches(table, names), self.rows(table))

    def __getitem__(self, table: str) -> pd.DataFrame:
        """A whole table: all columns in schema order, events by seq; empty where nothing was."""
        rows = self.arrow(table)
        if table in EVENT_TABLES and not _is_rising(rows["seq"]):
            # A span is stored when it ends, and large tables keep that order on disk.
            rows = rows.sort_by("seq")
        return to_frame(rows)

    def _events(self, columns: Sequence[str] | None, where: Where, limit: int | None) -> pa.Table:
        names = _EVENTS_SCHEMA.names if columns is None else list(columns)
        for name in names:
            if name not in _EVENTS_SCHEMA.names:
                raise unknown_name("column_of", name, _EVENTS_SCHEMA.names, table=EVENTS)
        expression = condition(where, _EVENTS_SCHEMA)
        # An Arrow expression may name any column; tuples and no condition tell what is needed.
        asked = {"seq", *names}
        if isinstance(where, pc.Expression):
            asked.update(_COMMON)
        elif where is not None:
            asked.update(name for name, *_ in where)
        needed = [name for name in _COMMON if name in asked]
        parts = []
        for table in EVENT_TABLES:
            part = self.store.read(table, needed)
            label = pa.repeat(pa.scalar(table, pa.string()), part.num_rows)
            part = part.append_column("table", label)
            parts.append(part if expression is None else part.filter(expression))
        union = pa.concat_tables(parts)
        return union.sort_by("seq").select(names).slice(0, limit)

    def to_csv(self, folder: Path | str, *, excel: bool = False) -> Path:
        """Write one CSV a table, `events.csv` and `manifest.json`; `excel` writes for people."""
        return write_csv(self.store, folder, excel=excel)

    def to_parquet(self, folder: Path | str) -> Path:
        """Write one Parquet file a table and `manifest.json`, for other tools."""
        return write_parquet(self.store, folder)

    def save(self, path: Path | str, *, if_exists: IfExists = "error") -> Path:
        """Write the trace to a zip (where the name ends so) or to a folder.

        Raises:
            StorageError: The place exists or can't be written.
        """
        return self.store.save(path, if_exists=if_exists)

    def equals(self, other: Trace) -> bool:
        """Whether both have the same tables with the same cells and types; NaN equals NaN."""
        if self.tables != other.tables:
            return False
        return all(self._has_equal(table, other) for table in self.tables)

    def _has_equal(self, table: str, other: Trace) -> bool:
        if self.rows(table) != other.rows(table):
            return False
        names = TABLES[table].column_names
        # A small table is read at once; of a large one no more than a column is held.
        is_small = self.rows(table) <= _SMALL_ROWS
        for asked in [names] if is_small else [[name] for name in names]:
            mine, theirs = self.arrow(table, asked), other.arrow(table, asked)
            if not all(_equal_columns(mine[name], theirs[name]) for name in asked):
                return False
        return True

    def audit(self) -> pd.DataFrame:
        """Whether the trace is complete and true: check, verdict, expected, found, evidence.

        Checks and verdicts are the same words in any language, for code that asks for them; what
        was expected and found is told in the language that `language` chose.
        """
        return audit(Trace(self.store.remains())._judged, self.manifest)

    def audit_findings(self) -> list[Finding]:
        """The rows of the audit, whose sentences can be said in any language."""
        return findings(Trace(self.store.remains())._judged, self.manifest)

    def _judged(self, table: str) -> pd.DataFrame:
        """What the audit looks at: of millions of modules those that lie directly below a call."""
        if table != "modules":
            return self[table]
        calls = self.arrow("calls", ["seq"])["seq"].combine_chunks()
        return self.read(table, where=pc.field("parent").isin(calls))

    def summary(self) -> str:
        """What happened, in some thirty lines of text, in the language that `language` chose.

        Reads only the columns that it needs.
        """
        rows = {table: self.rows(table) for table in self.tables}
        return summary_text(Trace(self.store.remains()).read, self.manifest, rows)

    def scrub(self, paths: bool = True, host: bool = True, text: bool = True) -> Trace:
        """A copy for sharing, in memory; kinds, counts and numbers stay.

        Args:
            paths: Absolute paths in the manifest and in every text column keep their last part
                only, behind a placeholder that is the same for the same folder.
            host: Names of machine and user leave the manifest.
            text: What a user wrote or a model answered is missing: texts, vocabulary strings,
                bytes, token ids, raw logits (their largest value is the token), messages,
                tracebacks, and settings made of words.
        """
        return Trace(scrubbed(self.store, paths=paths, host=host, text=text))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary())}</pre>"

    def __repr__(self) -> str:
        rows = sum(self.rows(table) for table in self.tables)
        return f"<Trace: {self.manifest.get('state')}, {len(self.tables)} tables, {rows:,} rows>"


def _is_rising(seqs: pa.ChunkedArray) -> bool:
    return not seqs.null_count and bool((np.diff(seqs.to_numpy()) >= 0).all())


def _equal_columns(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(left.type) and left.type == right.type:
        if not pc.is_nan(left).equals(pc.is_nan(right)):
            return False
        left, right = (pc.if_else(pc.is_nan(side), 0.0, side) for side in (left, right))
    return bool(left.equals(right))
