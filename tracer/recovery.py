"""What a killed recording left behind: its whole batches, and what was open when it ended.

Spans that only have a start record come back as interrupted rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracer.batches import conform
from tracer.contents import Content, StreamContent, whole_batches
from tracer.folder import STARTS

START_SCHEMA: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("parent", pa.int64()),
        ("call", pa.int64()),
        ("stage", pa.string()),
        ("name", pa.string()),
        ("start_ns", pa.int64()),
        ("thread", pa.string()),
        ("rank", pa.int64()),
        ("table", pa.string()),
    ]
)
"""A start record: what is known of a span before it ends, and the table its row will go to."""


def recover(
    journal: Path, schemas: dict[str, pa.Schema], event_tables: Sequence[str]
) -> dict[str, Content]:
    """Tables that a killed recording left behind, open spans among them."""
    contents: dict[str, Content] = {}
    starts = pa.Table.from_batches(
        (conform(batch, START_SCHEMA) for batch in whole_batches(journal / f"{STARTS}.arrows")),
        schema=START_SCHEMA,
    )
    for name, schema in schemas.items():
        stream = journal / f"{name}.arrows"
        # Every table's first column tells its number of rows; of an event table it is seq.
        first = [batch.column(0) for batch in whole_batches(stream, schema.names[:1])]
        rows = sum(map(len, first))
        extra = None
        if name in event_tables:
            extra = _open_spans(starts.filter(pc.equal(starts["table"], name)), first, schema)
            rows += extra.num_rows
        if rows:
            contents[name] = StreamContent(schema, (stream,), rows, extra)
    return contents


def _open_spans(starts: pa.Table, ended: list[pa.Array], schema: pa.Schema) -> pa.Table:
    """Rows for the spans that have a start record and never ended."""
    seqs = pa.chunked_array(ended, type=pa.int64())
    still_open = starts.filter(pc.invert(pc.is_in(starts["seq"], value_set=seqs)))
    rows = still_open.num_rows
    columns: dict[str, Any] = {name: still_open[name] for name in still_open.column_names}
    columns["status"] = pa.array(["interrupted"] * rows, pa.string())
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in schema]
    return pa.table(arrays, schema=schema)
