"""Write a trace as CSV: one file a table, `events.csv`, `manifest.json`; streamed, by Arrow.

One row is one line whatever a cell holds, and no two different cells look alike: numbers stand
bare, a missing value is an empty field without quotes, text is a JSON string literal inside a
quoted field. `csv_read` reads it back exactly; pandas alone reads it like this::

    frame = pandas.read_csv(
        "tokens.csv", keep_default_na=False, na_values=["", "NaN"], dtype_backend="numpy_nullable"
    )
    frame["text"] = frame["text"].map(json.loads, na_action="ignore")

There NaN and missing become one, which they are not in the file. What this module does not do is
choose which tables or rows are written: all of them are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow
import pyarrow.compute as compute

from tracer.export import TableSource
from tracer.export.cells import CellWriter, machine_cells, people_cells
from tracer.export.events import merged_events
from tracer.export.target import export_folder
from tracer.schema import EVENT_TABLES, EVENTS, TABLES, Column, Kind

BYTE_ORDER_MARK: Final = "\ufeff"
_SLICE_ROWS: Final = 65_536
# Cells in hand at one time: an Arrow string column addresses 2 GiB, and memory stays flat.
_SLICE_BYTES: Final = 1 << 24
_WORKERS: Final = 2  # more gain nothing: joining lines is bound by memory


def write_csv(store: TableSource, folder: str | Path, *, excel: bool = False) -> Path:
    """Write every table that has rows, the union of all events, and the manifest.

    Args:
        store: Where the rows come from.
        folder: New, empty, or left by an earlier export.
        excel: Write for people and spreadsheets: a byte order mark, plain text, formulas guarded
            by an apostrophe, bytes and overlong text only hinted at. Can't be read back.

    Raises:
        StorageError: The folder holds something else, or can't be written.
    """
    tables = [name for name in TABLES if name in set(store.tables())]
    events = merged_events(store, [table for table in tables if table in EVENT_TABLES])
    contents = [(TABLES[table], store.batches(table, encoded=True)) for table in tables] + [
        (EVENTS, events)
    ]
    files = [f"{table.name}.csv" for table, _ in contents]
    form = "excel" if excel else "csv"
    with export_folder(folder, form, store.manifest, files) as (path, rows):
        for file, (table, batches) in zip(files, contents, strict=True):
            rows[file] = _write_file(path / file, table.columns, batches, excel=excel)
    return Path(folder)


def _write_file(
    path: Path,
    columns: tuple[Column, ...],
    batches: Iterable[pyarrow.RecordBatch],
    *,
    excel: bool,
) -> int:
    write = people_cells if excel else machine_cells
    header = ",".join(column.name for column in columns) + "\n"
    rows = 0
    underway: deque[Future[memoryview]] = deque()
    with path.open("wb") as file, ThreadPoolExecutor(_WORKERS) as workers:
        file.write(((BYTE_ORDER_MARK if excel else "") + header).encode("utf-8"))
        for part in _slices(batches):
            rows += part.num_rows
            # Arrow lets go of the interpreter's lock, so threads help; the order stays.
            underway.append(workers.submit(_lines, part, columns, write))
            if len(underway) > _WORKERS:
                file.write(underway.popleft().result())
        for lines in underway:
            file.write(lines.result())
    return rows


def _slices(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        row_bytes = max(1, sum(map(_cell_bytes, batch.columns)) // max(1, batch.num_rows))
        length = max(1, min(_SLICE_ROWS, _SLICE_BYTES // row_bytes))
        if length < batch.num_rows:
            # Each piece would write all distinct texts of the batch.
            batch = pyarrow.RecordBatch.from_arrays(
                [_decoded(column) for column in batch.columns], batch.schema.names
            )
        for start in range(0, batch.num_rows, length):
            yield batch.slice(start, length)


def _cell_bytes(values: pyarrow.Array) -> int:
    """Bytes that the cells of a column take when each stands by itself."""
    if not pyarrow.types.is_dictionary(values.type):
        return int(values.nbytes)
    lengths = compute.binary_length(values.dictionary)
    return compute.sum(lengths.take(values.indices)).as_py() or 0


def _decoded(values: pyarrow.Array) -> pyarrow.Array:
    return values.dictionary_decode() if pyarrow.types.is_dictionary(values.type) else values


def _lines(
    batch: pyarrow.RecordBatch, columns: tuple[Column, ...], write: CellWriter
) -> memoryview:
    pieces: list[str | pyarrow.Array] = []
    for column in columns:
        cells = _piece(batch.column(column.name), column.kind, write)
        if isinstance(cells, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += f",{cells}"
        else:
            pieces.append(cells)
    empty = {"null_handling": "replace", "null_replacement": ""}
    if isinstance(pieces[-1], str):
        pieces[-1] += "\n"
    else:
        pieces[-1] = compute.binary_join_element_wise(pieces[-1], "\n", "", **empty)
    if all(isinstance(piece, str) for piece in pieces):
        lines = pyarrow.repeat(pieces[0], batch.num_rows)
    else:
        lines = compute.binary_join_element_wise(*pieces, ",", **empty)
    # Each line ends in LF and the array is new, so its data buffer is the piece of the file.
    return memoryview(lines.buffers()[2])


def _piece(values: pyarrow.Array, kind: Kind, write: CellWriter) -> str | pyarrow.Array:
    """The cells of a column; where all are the same, that one cell."""
    if _is_constant(values):
        return write(values.slice(0, 1), kind)[0].as_py() or ""
    return write(values, kind)


def _is_constant(values: pyarrow.Array) -> bool:
    """Whether all cells are the same, as far as a glance tells."""
    if values.null_count:
        return bool(values.null_count == len(values))
    if pyarrow.types.is_dictionary(values.type):
        values = values.indices
    if not pyarrow.types.is_integer(values.type):
        return False
    ends = compute.min_max(values).as_py()
    return bool(ends["min"] == ends["max"])
