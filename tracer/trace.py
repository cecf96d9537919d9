"""A trace for people: its tables as pandas frames, its story as text, its files for others.

`Trace` puts pandas, the summary, the audit and the exports on top of a `Store`; it changes
nothing and records nothing. Arrow (`Trace.arrow`) is the exact form: a frame shows the same cells
with pandas' nullable types, and reals keep NaN and missing apart.
"""

from __future__ import annotations

import collections
import html
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracer.audit import audit
from tracer.export.csv import write_csv
from tracer.export.csv_read import read_tables
from tracer.export.parquet import write_parquet
from tracer.export.text import visible_text
from tracer.schema import EVENT_COLUMNS, EVENT_TABLES, PRIVATE_COLUMNS, STAGES, TABLES
from tracer.storage import (
    IfExists,
    Journal,
    Store,
    Where,
    arrow_schema,
    condition,
    open_store,
    unknown_name,
)
from tracer.views.labels import aligned, bytes_label, count_label, duration_label, plural

EVENTS: Final = "events"
_COMMON: Final = [column.name for column in EVENT_COLUMNS]
_EVENTS_SCHEMA: Final = pa.schema(
    [*(arrow_schema("calls").field(name) for name in _COMMON), ("table", pa.string())]
)
_PANDAS_TYPES: Final = {
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype("pyarrow"),
    # The one pandas type for reals that tells NaN from missing.
    pa.float64(): pd.ArrowDtype(pa.float64()),
    pa.binary(): pd.ArrowDtype(pa.binary()),
}


def open_trace(path: Path | str) -> Trace:
    """Open a trace: a folder, a zip, or what a killed recording left.

    Raises:
        TraceFormatError: It is no trace, is damaged, or a newer version wrote it.
    """
    return Trace(open_store(path))


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
        return to_frame(self.arrow(table, columns, where, limit))

    def __getitem__(self, table: str) -> pd.DataFrame:
        """A whole table: all columns in schema order, events by seq; empty where nothing was."""
        rows = self.arrow(table)
        if table in EVENT_TABLES:
            # A span is stored when it ends, and large tables keep that order on disk.
            rows = rows.sort_by("seq")
        return to_frame(rows)

    def _events(self, columns: Sequence[str] | None, where: Where, limit: int | None) -> pa.Table:
        names = _EVENTS_SCHEMA.names if columns is None else list(columns)
        for name in names:
            if name not in _EVENTS_SCHEMA.names:
                raise unknown_name("column of 'events' called", name, _EVENTS_SCHEMA.names)
        expression = condition(where, _EVENTS_SCHEMA)
        # An Arrow expression may name any column; tuples and no condition tell what is needed.
        asked = {"seq", *names}
        if isinstance(where, pc.Expression):
            asked.update(_COMMON)
        elif where is not None:
            asked.update(name for name, *_ in where)
        needed = [name for name in _COMMON if name in asked]
        parts = []
        for table in self.tables:
            if table in EVENT_TABLES:
                part = self.store.read(table, needed)
                label = pa.repeat(pa.scalar(table, pa.string()), part.num_rows)
                part = part.append_column("table", label)
                parts.append(part if expression is None else part.filter(expression))
        schema = pa.schema([_EVENTS_SCHEMA.field(name) for name in (*needed, "table")])
        union = pa.concat_tables(parts) if parts else schema.empty_table()
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
        return all(
            _equal_columns(self.arrow(table, [name])[name], other.arrow(table, [name])[name])
            for table in self.tables
            for name in TABLES[table].column_names
        )

    def audit(self) -> pd.DataFrame:
        """Whether the trace is complete and true: check, verdict, expected, found, evidence."""
        return audit(self.__getitem__, self.manifest)

    def summary(self) -> str:
        """What happened, in some thirty lines of text; reads only the columns that it needs."""
        parts = [
            _ending(self),
            _models(self),
            _calls(self),
            _stages(self),
            _faults(self),
            _row_counts(self),
        ]
        return "\n".join(visible_text(part) for part in parts if part)

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
        return _scrubbed(self.store, _PathHider() if paths else None, host, text)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary())}</pre>"

    def __repr__(self) -> str:
        rows = sum(self.rows(table) for table in self.tables)
        return f"<Trace: {self.manifest.get('state')}, {len(self.tables)} tables, {rows:,} rows>"


def to_frame(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a frame: Int64, boolean and string with missing values, Arrow's double."""
    return table.to_pandas(types_mapper=_PANDAS_TYPES.get)


def _equal_columns(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(left.type) and left.type == right.type:
        if not pc.is_nan(left).equals(pc.is_nan(right)):
            return False
        left, right = (pc.if_else(pc.is_nan(side), 0.0, side) for side in (left, right))
    return bool(left.equals(right))


def _ending(trace: Trace) -> str:
    """How the run ended, an interrupted one first of all, and how much was recorded."""
    manifest = trace.manifest
    state = manifest.get("state", "of unknown state")
    lines = []
    if state == "interrupted":
        still_open = [("status", "==", "interrupted")]
        spans = trace.arrow(EVENTS, ["duration_ns"], still_open)["duration_ns"].null_count
        lines.append(
            f"Trace interrupted: its recording never closed (killed, or still running); "
            f"{plural(spans, 'open span')}."
        )
    else:
        lines.append(f"Trace {state}.")
    if manifest.get("ended"):
        lines.append(f"How the run ended: {manifest['ended']}")
    if manifest.get("storage_failure"):
        lines.append(f"The disk refused while recording: {manifest['storage_failure']}")
    rows = sum(trace.rows(table) for table in trace.tables)
    lines.append(
        f"{plural(trace.rows('calls'), 'call')}, {plural(trace.rows('models'), 'model')}, "
        f"{plural(rows, 'row')} in {plural(len(trace.tables), 'table')}"
    )
    return "\n".join(lines)


# More calls, models or faults than this are counted, not listed.
_LISTED: Final = 6


def _section(title: str, rows: list[list[str]], right: Sequence[int], total: int) -> str:
    if not rows:
        return ""
    more = [[f"... and {total - len(rows):,} more"]] if total > len(rows) else []
    return f"{title}\n{aligned(rows, right)}" + "".join(f"\n  {line[0]}" for line in more)


def _models(trace: Trace) -> str:
    columns = ["model", "class_name", "parameters", "size_bytes", "dtype", "attention"]
    frame = trace.read("models", columns, limit=_LISTED)
    rows = [
        [
            _cell(model.model),
            _cell(model.class_name),
            f"{count_label(model.parameters)} parameters",
            bytes_label(model.size_bytes),
            _cell(model.dtype),
            _cell(model.attention),
        ]
        for model in frame.itertuples()
    ]
    return _section("Models", rows, (2, 3), trace.rows("models"))


def _calls(trace: Trace) -> str:
    columns = ["seq", "name", "model", "duration_ns", "status", "finish"]
    frame = trace.read("calls", columns, [("parent", "==", -1)]).sort_values("seq")
    rows = [
        [
            f"#{call.seq}",
            _cell(call.name),
            _cell(call.model),
            duration_label(call.duration_ns),
            _cell(call.status),
            "" if pd.isna(call.finish) else f"finish {_cell(call.finish)}",
        ]
        for call in frame.head(_LISTED).itertuples()
    ]
    return _section("Calls of the user", rows, (3,), len(frame))


def _stages(trace: Trace) -> str:
    """Spans, steps and tensor loads by stage; inside a span of its own stage time counts once."""
    columns = ["seq", "parent", "stage", "duration_ns"]
    frame = pd.concat(
        [trace.read(table, columns) for table in ("spans", "tensor_loads", "steps")],
        ignore_index=True,
    )
    stage_of = frame.set_index("seq")["stage"]
    outer = frame[frame["parent"].map(stage_of).fillna("") != frame["stage"]]
    grouped = outer.groupby("stage")["duration_ns"].agg(["size", "sum"])
    read = trace.read("tensor_loads", ["size_bytes"])["size_bytes"].sum()
    rows = [
        [
            stage,
            count_label(grouped.loc[stage, "size"]),
            duration_label(grouped.loc[stage, "sum"]),
            bytes_label(read) if stage == "tensor_load" else "",
        ]
        for stage in STAGES
        if stage in grouped.index
    ]
    return _section("Stages (times of threads added up)", rows, (1, 2, 3), len(rows))


def _faults(trace: Trace) -> str:
    frame = trace.read("faults", ["target", "reason"])
    counts = collections.Counter(
        (_cell(fault.target), _cell(fault.reason)) for fault in frame.itertuples()
    )
    if not counts:
        return "Faults: none recorded"
    rows = [
        [f"{count:,} x", target, textwrap.shorten(reason, 70)]
        for (target, reason), count in counts.most_common(_LISTED)
    ]
    return _section("Faults: not observed, or failed", rows, (0,), len(counts))


def _row_counts(trace: Trace) -> str:
    # A no-break space keeps a table and its number on one line.
    counts = ", ".join(f"{table}\u00a0{trace.rows(table):,}" for table in trace.tables)
    lines = textwrap.wrap(counts or "none", 90)
    return "Rows: " + "\n      ".join(lines).replace("\u00a0", " ")


def _cell(value: Any) -> str:
    return "-" if pd.isna(value) else " ".join(str(value).split())


# Beyond what a recording redacts: the largest raw logit is the chosen token, and a traceback
# quotes what it failed on.
_HIDDEN: Final = {
    **PRIVATE_COLUMNS,
    "logits": frozenset({"values"}),
    "faults": frozenset({"traceback"}),
}
_WORDY_SETTING: Final = (
    r"text|prompt|string|words|message|conversation|template|image|video|input|bias|suppress|_ids$"
)
_HOST_WORDS: Final = frozenset(
    ["host", "hostname", "node", "fqdn", "user", "username", "login", "uuid", "serial", "mac", "ip"]
)
_HOST_KEYS: Final = frozenset({"machine_id", "boot_id"})

# Part of a path between two separators: no quote, bracket or control character.
_PART: Final = r"""[^/\\\x00-\x1f"'<>|:;,()\[\]{}]+"""
_PATH: Final = re.compile(
    rf"""
    (?P<folder>
      (?<![\w.~/:>\\-]) (?:~\w*)? / (?:{_PART}/+)+   # /a/b/ and ~/a/, no https://a/b
    | (?<=file:/)/ (?:/*{_PART}/+)+                    # file:///a/b/
    | (?<!\w) [A-Za-z]: [\\/]+ (?:{_PART}[\\/]+)*      # on a drive of Windows
    | (?<![\w\\]) \\{{2,}} {_PART}\\+ (?:{_PART}\\+)*   # on a server of Windows
    )
    (?P<last>[^/\\\s\x00-\x1f"'<>|;,()\[\]{{}}]*)
    """,
    re.VERBOSE,
)
_HOMES: Final = ("/home", "/users", "/documents and settings")


class _PathHider:
    """Replaces absolute paths; the same folder gets the same placeholder throughout a trace."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def hide(self, text: str) -> str:
        return _PATH.sub(self._replacement, text)

    def hide_json(self, text: str) -> str:
        """JSON stays JSON: strings are changed as they are meant, not as they are written."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.hide(text)
        hidden = self.hide_all(value)
        return text if hidden == value else json.dumps(hidden, ensure_ascii=False)

    def hide_all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_all(item) for item in value]
        if isinstance(value, dict):
            return {self.hide(str(key)): self.hide_all(item) for key, item in value.items()}
        return value

    def _replacement(self, match: re.Match[str]) -> str:
        folder = re.sub(r"[\\/]+", "/", match["folder"]).rstrip("/")
        number = self._numbers.setdefault(folder, len(self._numbers) + 1)
        # The last part of a home folder is the user's name.
        is_home = re.sub("^[a-z]:", "", folder.lower()) in _HOMES
        return f"<path{number}>/{'home' if is_home else match['last']}"


def _scrubbed(store: Store, paths: _PathHider | None, host: bool, text: bool) -> Trace:
    # Paths first: a user's name that is masked inside of one would split it.
    manifest = paths.hide_all(store.manifest) if paths else dict(store.manifest)
    if host:
        manifest = _without_host(manifest)
    if text and isinstance(manifest.get("ended"), str):
        # The kind of an exception stays; its message may quote what it failed on.
        manifest["ended"] = manifest["ended"].split(":")[0]
    done = {"paths": paths is not None, "host": host, "text": text}
    manifest["scrubbed"] = [name for name, is_done in done.items() if is_done]
    journal = Journal(None)
    for table in store.tables():
        for batch in store.batches(table):
            journal.append(table, _scrub_batch(table, batch, paths, text))
    scrubbed = journal.close(manifest)
    scrubbed.manifest["state"] = store.manifest.get("state")
    return Trace(scrubbed)


def _scrub_batch(
    table: str, batch: pa.RecordBatch, paths: _PathHider | None, text: bool
) -> pa.RecordBatch:
    hidden = _HIDDEN.get(table, frozenset()) if text else frozenset()
    arrays = []
    for column, array in zip(TABLES[table].columns, batch.columns, strict=True):
        if column.name in hidden:
            array = pa.nulls(len(array), array.type)
        elif text and table == "chain" and column.name == "parameters":
            array = _mapped(array, _numbers_only)
        elif text and table == "settings" and column.name in ("asked", "effective"):
            is_wordy = pc.match_substring_regex(batch["setting"], _WORDY_SETTING)
            array = pc.if_else(is_wordy, pa.scalar(None, array.type), array)
        if paths and column.kind in ("text", "json"):
            array = _mapped(array, paths.hide_json if column.kind == "json" else paths.hide)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _mapped(array: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """Each distinct value is changed once."""
    encoded = array.dictionary_encode()
    values = pa.array([change(value) for value in encoded.dictionary.to_pylist()], array.type)
    return values.take(encoded.indices)


def _numbers_only(text: str) -> str:
    """What a processor was made with, without words: a list of banned words is the user's text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "{}"
    if not isinstance(value, dict):
        return "{}"
    return json.dumps({name: item for name, item in value.items() if _is_plain(item)})


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _without_host(manifest: dict[str, Any]) -> dict[str, Any]:
    names: set[str] = set()

    def is_host(key: str) -> bool:
        words = set(re.split(r"[^a-z]+", key.lower()))
        return key.lower() in _HOST_KEYS or not words.isdisjoint(_HOST_WORDS)

    def drop(value: Any) -> Any:
        if isinstance(value, list):
            return [drop(item) for item in value]
        if not isinstance(value, dict):
            return value
        names.update(v for k, v in value.items() if is_host(k) and isinstance(v, str) and v)
        return {k: drop(v) for k, v in value.items() if not is_host(k)}

    def mask(value: Any) -> Any:
        if isinstance(value, str):
            for name in names:
                value = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "<host>", value)
            return value
        if isinstance(value, list):
            return [mask(item) for item in value]
        return {k: mask(v) for k, v in value.items()} if isinstance(value, dict) else value

    masked: dict[str, Any] = mask(drop(manifest))
    return masked
