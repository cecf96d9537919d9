"""From what the recorder gathered to Arrow batches in the schema's columns.

Three forms come in: dicts a row, integers a module call, and spans that are still open. Knows the
schema, no library, and keeps nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring
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

Frame = tuple[int, int, int, int]
"""An open module call: seq, parent, slot, start."""


@dataclasses.dataclass(slots=True)
class ModuleSlot:
    """A module that is hooked: what every row about it has in common."""

    model: str
    path: str
    class_name: str
    source: str | None = None


Shape = tuple[int, ...]


@dataclasses.dataclass(slots=True, eq=False)  # frozen ones take four times as long to make
class Circumstances:
    """What the calls of a module from one place have in common, and how they ended.

    One for many calls, so that a call's own row is a few numbers.
    """

    stack: str | None = None
    device: str | None = None
    status: str = "ok"


INTERRUPTED: Final = Circumstances(status="interrupted")

Shapes = tuple[Shape | None, Shape | None]
"""Of what a module was given and of what it made."""

HotRow = tuple[Frame, int, int | None, Shapes, object, Circumstances]
"""A module call that ended: its frame, context, end (None: never), shapes, dtype of what it made,
the rest. Shapes and dtype are torch's own objects: text is made of them when rows are written."""


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Many rows of one table at once: a list is a column's cells, anything else all rows' cell."""

    count: int
    columns: dict[str, Any]

    def cells(self, name: str) -> list[Any]:
        """The cells of one column, whether or not it was given."""
        value = self.columns.get(name)
        return value if type(value) is list else [value] * self.count

    def split(self) -> list[dict[str, Any]]:
        """The same as a dict a row."""
        columns = {name: self.cells(name) for name in self.columns}
        return [
            {name: cells[place] for name, cells in columns.items()} for place in range(self.count)
        ]


Row = dict[str, Any] | Block


def as_json(value: Any) -> str:
    """JSON text of a list, object or setting; what JSON can't hold becomes its `str`."""
    plain = _with_text_keys(value)
    return json.dumps(plain, ensure_ascii=False, default=str, separators=(", ", ": "))


_encode_plain: Final = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode


def _with_text_keys(value: Any) -> Any:
    """Keys of any kind (`sequence_bias` has tuples) as text; JSON knows no others."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list | tuple) else value


def batch(table: str, rows: Sequence[Row], redact: bool) -> pa.RecordBatch:
    """Rows into one batch, in their order; absent columns are missing, unknown ones a KeyError."""
    schema = arrow_schema(table)
    unknown = {
        name for row in rows for name in (row.columns if isinstance(row, Block) else row)
    }.difference(schema.names)
    if unknown:
        raise KeyError(f"{table} has no column {sorted(unknown)}")
    columns = TABLES[table].columns
    arrays = [
        _array(rows, column.name, column.kind, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    made = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return without_words(table, made) if redact else made


def _array(rows: Sequence[Row], name: str, kind: str, form: pa.DataType) -> pa.Array:
    """One column; a cell that all rows of all blocks share is stored once and repeated."""
    shared = [row.columns.get(name) for row in rows if type(row) is Block]
    if shared and len(shared) == len(rows) and all(_is_cell(one, shared[0]) for one in shared):
        (cell,) = _stored(kind, shared[:1], form)
        return pa.repeat(cell, sum(row.count for row in rows if type(row) is Block))
    return _stored(kind, _cells(rows, name), form)


def _is_cell(value: Any, first: Any) -> bool:
    return type(value) is not list and type(value) is type(first) and bool(value == first)


def _stored(kind: str, cells: list[Any], form: pa.DataType) -> pa.Array:
    """Cells as an array; text is looked at one by one only where Arrow refuses to take it."""
    if kind == "text" or (kind == "json" and all(map(_is_ready, cells))):
        with contextlib.suppress(UnicodeError, TypeError, pa.ArrowException):
            return pa.array(cells, form)
    return pa.array(_storable(kind, cells), form)


def _is_ready(cell: Any) -> bool:
    return cell is None or type(cell) is Encoded


def _cells(rows: Sequence[Row], name: str) -> list[Any]:
    cells: list[Any] = []
    for row in rows:
        if type(row) is dict:
            cells.append(row.get(name))
        else:
            cells += row.cells(name)  # type: ignore[union-attr]  # a Block, then
    return cells


def _storable(kind: str, cells: list[Any]) -> list[Any]:
    if kind == "json":
        return [None if cell is None else _json_cell(cell) for cell in cells]
    if kind == "text":
        return [None if cell is None else storable_text(str(cell)) for cell in cells]
    return cells


def _json_cell(value: Any) -> str:
    return storable_text(value if isinstance(value, Encoded) else as_json(value))


class Encoded(str):
    """JSON text that is ready: it is stored as it is, not encoded again."""

    __slots__ = ()


def names_text(names: Iterable[str]) -> Encoded:
    """Names as the JSON text of a list, without the detour that values of any kind need."""
    return Encoded(f"[{', '.join(map(encode_basestring, names))}]")


@functools.cache
def shape_text(shape: tuple[int, ...]) -> Encoded:
    """A shape as JSON text; there are few shapes and many tensors."""
    return Encoded(as_json(shape))


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
    hot: Sequence[HotRow],
    thread: str,
    values: dict[int, tuple[float, float, float, int]],
    arguments: dict[int, tuple[dict[str, Any], dict[str, Any]]],
) -> pa.RecordBatch:
    """A thread's module calls as one batch of `modules`."""
    frames, contexts, ends, shapes, dtypes, circumstances = zip(*hot, strict=True)
    seqs, parents, slots, starts = (np.array(numbers) for numbers in zip(*frames, strict=True))
    count = len(hot)
    places = _shared(*_picked(recorder.contexts, contexts), ("call", "step", "stage"))
    names = ("model", "path", "class_name", "source")
    module = _shared(*_picked(recorder.slots, slots), names)
    step = places["step"]
    columns: dict[str, Any] = {
        **places,
        **module,
        **_shared(*_factorised(circumstances), ("stack", "device", "status")),
        **_shared(*_texts(shapes, _shape_texts), ("input_shape", "output_shape")),
        **_shared(*_texts(dtypes, _dtype_text), ("dtype",)),
        "seq": seqs,
        "parent": parents,
        "name": module["path"],
        "start_ns": starts - recorder.origin,
        "duration_ns": pa.compute.subtract(pa.array(ends, pa.int64()), pa.array(starts)),
        "thread": pa.repeat(thread, count),
        "rank": np.full(count, recorder.rank),
        "step": pa.compute.if_else(pa.compute.less(step, 0), pa.scalar(None, pa.int64()), step),
    }
    if values:
        columns |= _statistics(seqs, values)
    if arguments:
        columns |= _argument_cells(seqs, arguments)
    schema = arrow_schema("modules")
    arrays = [
        _as_array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _factorised(cells: Iterable[Any]) -> tuple[list[Any], pa.Array]:
    """The distinct cells, and of each cell which of them it is."""
    places: dict[Any, int] = {}
    codes = [places.setdefault(cell, len(places)) for cell in cells]
    return list(places), pa.array(codes, pa.int32())


def _picked(things: Sequence[Any], numbers: Any) -> tuple[list[Any], pa.Array]:
    """The things that some numbers stand for, and of each number which of them it is."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    return [things[number] for number in distinct.tolist()], pa.array(codes, pa.int32())


def _texts(
    cells: Iterable[Any], described: Callable[[Any], tuple[str | None, ...]]
) -> tuple[list[Any], pa.Array]:
    """The same with the texts of each distinct cell in its place."""
    distinct, codes = _factorised(cells)
    return [described(one) for one in distinct], codes


def _shape_texts(shapes: Shapes) -> tuple[str | None, ...]:
    return tuple(None if one is None else shape_text(tuple(one)) for one in shapes)


def _dtype_text(dtype: object) -> tuple[str | None]:
    return (None if dtype is None else str(dtype).rpartition(".")[2],)


def _shared(picked: list[Any], codes: pa.Array, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """Columns of descriptions that many rows share, and of each row which of them it has."""
    columns = {}
    for place, name in enumerate(names):
        entries = [
            thing[place] if isinstance(thing, tuple) else getattr(thing, name) for thing in picked
        ]
        columns[name] = pa.array(entries).take(codes)
    return columns


def _statistics(
    seqs: Any, values: dict[int, tuple[float, float, float, int]]
) -> dict[str, list[float | int | None]]:
    cells = [values.get(int(seq), (None, None, None, None)) for seq in seqs]
    return {
        name: [cell[place] for cell in cells]
        for place, name in enumerate(("mean", "std", "abs_max", "nonfinite"))
    }


def _argument_cells(
    seqs: Any, arguments: dict[int, tuple[dict[str, Any], dict[str, Any]]]
) -> dict[str, list[str | None]]:
    """What was given and made, of the few calls that it is told of."""
    told = [arguments.get(int(seq)) for seq in seqs]
    return {
        name: [None if one is None else _plain_json(one[place]) for one in told]
        for place, name in enumerate(("arguments", "returned"))
    }


def _plain_json(value: dict[str, Any]) -> str:
    """JSON text of what has only text for keys, which need not be looked through first."""
    return storable_text(_encode_plain(value))


def _as_array(cells: Any, kind: pa.DataType) -> pa.Array:
    made = cells if isinstance(cells, pa.Array) else pa.array(cells)
    return made.cast(kind) if made.type != kind else made
