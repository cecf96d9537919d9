"""From what the recorder gathered to Arrow batches in the schema's columns.

Three forms come in: dicts a row, integers a module call, and spans that are still open. Knows the
schema, no library, and keeps nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracer.export.text import storable_text
from tracer.privacy import without_words
from tracer.recovery import START_SCHEMA
from tracer.schema import TABLES
from tracer.storage import arrow_schema

if TYPE_CHECKING:
    from tracer.recorder import Recorder
    from tracer.spans import Span

HOT_WIDTH: Final = 7
"""Integers a module call: seq, parent, context, start, duration (-1 none), slot, signature."""
SLOT_PLACE: Final = 5


@dataclasses.dataclass(slots=True)
class ModuleSlot:
    """A module that is hooked: what every row about it has in common."""

    model: str
    path: str
    class_name: str
    source: str | None = None
    interrupted: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """What many calls of a module have in common: shapes, dtype, device, call path, outcome."""

    input_shape: str | None = None
    output_shape: str | None = None
    dtype: str | None = None
    device: str | None = None
    stack: str | None = None
    status: str = "ok"


def as_json(value: Any) -> str:
    """JSON text of a list, object or setting; what JSON can't hold becomes its `str`."""
    plain = _with_text_keys(value)
    return json.dumps(plain, ensure_ascii=False, default=str, separators=(", ", ": "))


def _with_text_keys(value: Any) -> Any:
    """Keys of any kind (`sequence_bias` has tuples) as text; JSON knows no others."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list | tuple) else value


def batch(table: str, rows: Sequence[dict[str, Any]], redact: bool) -> pa.RecordBatch:
    """Rows as dicts into one batch; absent columns are missing, unknown ones a KeyError."""
    schema = arrow_schema(table)
    known = set(schema.names)
    unknown = {name for row in rows for name in row} - known
    if unknown:
        raise KeyError(f"{table} has no column {sorted(unknown)}")
    columns = TABLES[table].columns
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        values = [row.get(column.name) for row in rows]
        if column.kind == "json":
            values = [_json_cell(value) for value in values]
        elif column.kind == "text":
            values = [None if value is None else storable_text(str(value)) for value in values]
        arrays.append(pa.array(values, field.type))
    made = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return without_words(table, made) if redact else made


def _json_cell(value: Any) -> str | None:
    if value is None:
        return None
    return storable_text(value if isinstance(value, Encoded) else as_json(value))


class Encoded(str):
    """JSON text that is ready: it is stored as it is, not encoded again."""

    __slots__ = ()


def start_batch(spans: Iterable[tuple[Span, str]], origin: int, rank: int) -> pa.RecordBatch:
    """Start records of spans that are still open."""
    rows = [
        {
            "seq": span.seq,
            "parent": span.parent,
            "call": span.call,
            "stage": span.stage,
            "name": span.name,
            "start_ns": span.start - origin,
            "thread": thread,
            "rank": rank,
            "table": span.table,
        }
        for span, thread in spans
    ]
    return pa.RecordBatch.from_pylist(rows, schema=START_SCHEMA)


def module_batch(
    recorder: Recorder,
    hot: list[int],
    thread: str,
    values: dict[int, tuple[float, float, float, int]],
) -> pa.RecordBatch:
    """A thread's module calls as one batch of `modules`."""
    numbers = np.array(hot, dtype=np.int64).reshape(-1, HOT_WIDTH)
    count = len(numbers)
    contexts = _lookup(recorder.contexts, numbers[:, 2], ("call", "step", "stage"))
    slots = _lookup(recorder.slots, numbers[:, 5], ("model", "path", "class_name", "source"))
    shared = _lookup(
        recorder.signatures,
        numbers[:, 6],
        ("input_shape", "output_shape", "dtype", "device", "stack", "status"),
    )
    duration = numbers[:, 4]
    step = contexts["step"]
    columns: dict[str, Any] = {
        **contexts,
        **slots,
        **shared,
        "seq": numbers[:, 0],
        "parent": numbers[:, 1],
        "name": slots["path"],
        "start_ns": numbers[:, 3] - recorder.origin,
        "duration_ns": pa.array(duration, mask=duration < 0),
        "thread": pa.repeat(thread, count),
        "rank": np.full(count, recorder.rank),
        "step": pa.compute.if_else(pa.compute.less(step, 0), pa.scalar(None, pa.int64()), step),
    }
    if values:
        columns |= _statistics(numbers[:, 0], values)
    schema = arrow_schema("modules")
    arrays = [
        _as_array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _lookup(things: Sequence[Any], indices: Any, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """Columns of shared descriptions, one entry a row, through Arrow's take."""
    used, inverse = np.unique(indices, return_inverse=True)
    positions = pa.array(inverse)
    picked = [things[index] for index in used]
    columns = {}
    for place, name in enumerate(names):
        entries = [
            thing[place] if isinstance(thing, tuple) else getattr(thing, name) for thing in picked
        ]
        columns[name] = pa.array(entries).take(positions)
    return columns


def _statistics(
    seqs: Any, values: dict[int, tuple[float, float, float, int]]
) -> dict[str, list[float | int | None]]:
    cells = [values.get(int(seq), (None, None, None, None)) for seq in seqs]
    return {
        name: [cell[place] for cell in cells]
        for place, name in enumerate(("mean", "std", "abs_max", "nonfinite"))
    }


def _as_array(cells: Any, kind: pa.DataType) -> pa.Array:
    made = cells if isinstance(cells, pa.Array) else pa.array(cells)
    return made.cast(kind) if made.type != kind else made
