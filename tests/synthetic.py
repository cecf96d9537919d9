"""Traces for tests: rows made by hand, through a real journal, closed or as a kill leaves them.

Lists and dicts in JSON columns are encoded on the way. The rows of the coherent trace are in
`synthetic_rows`.
"""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from synthetic_rows import GENERATED, MODEL, PROMPT, Rows, coherent_rows, event

from tracer.journal import Journal
from tracer.recovery import START_SCHEMA
from tracer.schema import TABLES
from tracer.storage import arrow_schema
from tracer.trace import Trace

__all__ = [
    "GENERATED",
    "MANIFEST",
    "PROMPT",
    "STARTS",
    "as_batch",
    "coherent_rows",
    "event",
    "left_behind",
    "make_trace",
    "spans",
    "starts",
]

MANIFEST = {
    "versions": {"tracer": "0.1.0", "transformers": "5.24.0", "torch": "2.14.1"},
    "machine": {"host": "bench", "system": "Linux", "cores": 2},
    "options": {"detail": "layers", "top_k": 2, "verify_weights": True},
    "models": [MODEL],
}
STARTS = [
    {"seq": 0, "parent": -1, "call": 0, "stage": "setup", "name": "generate", "start_ns": 5}
    | {"thread": "MainThread", "rank": 0, "table": "calls"},
    {"seq": 1, "parent": 0, "call": 0, "stage": "setup", "name": "setup", "start_ns": 6}
    | {"thread": "MainThread", "rank": 0, "table": "spans"},
]


def make_trace(
    rows: Rows, folder: Path | None = None, manifest: dict[str, Any] | None = None
) -> Trace:
    """The rows as a closed trace, in memory or in a folder, through a real journal."""
    journal = Journal(folder)
    for table, records in rows.items():
        journal.append(table, as_batch(table, records))
    return Trace(journal.close(MANIFEST if manifest is None else manifest))


def as_batch(table: str, records: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as Arrow; absent columns are missing, a column that the schema lacks is an error."""
    known = {column.name: column for column in TABLES[table].columns}
    encoded = []
    for record in records:
        assert set(record) <= set(known), set(record) - set(known)
        encoded.append(
            {
                name: json.dumps(value)
                if known[name].kind == "json" and value is not None and not isinstance(value, str)
                else value
                for name, value in record.items()
            }
        )
    return pa.RecordBatch.from_pylist(encoded, schema=arrow_schema(table))


def starts(*records: dict[str, Any]) -> pa.RecordBatch:
    """Start records as a recording appends them."""
    return pa.RecordBatch.from_pylist(list(records), schema=START_SCHEMA)


@functools.cache
def spans(first: int, count: int) -> pa.RecordBatch:
    """Some rows of `spans` that hardly compress."""
    noise = np.random.default_rng(first)
    records = [
        event(first + index, 0, 0, "setup", f"span {first + index}", index, 1)
        | {"summary": {"noise": noise.bytes(200).hex()}}
        for index in range(count)
    ]
    return as_batch("spans", records)


def left_behind(folder: Path) -> Journal:
    """A journal as a kill leaves it: two open spans, one of them in a call, and some rows."""
    journal = Journal(folder)
    journal.append_starts(starts(*STARTS))
    journal.append("spans", spans(2, 20))
    journal.append("spans", spans(22, 20))
    journal.release()
    return journal
