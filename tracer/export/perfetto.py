"""Write a trace for timeline viewers, in the JSON trace-event format that they all open.

One track a thread, one process a rank; samples of memory and the size of each cache are counters.
It carries names and times, not the facts of a trace: those stay in CSV and Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tracer.errors import StorageError
from tracer.explain.sentences import phrase
from tracer.export import TableSource
from tracer.schema import EVENT_COLUMNS, EVENT_TABLES, TABLES

_HEAD: Final = '{"otherData":{"producer":"tracer-lab"},"displayTimeUnit":"ms","traceEvents":[\n'
_COMMON: Final = [column.name for column in EVENT_COLUMNS]
_MEMORY: Final = [name for name in TABLES["memory"].column_names if name.endswith("_bytes")]
_INSTANT: Final = {"messages", "faults"}
_OWN: Final = {"memory": _MEMORY, "steps": ["cache", "cache_bytes"]}


def write_perfetto(store: TableSource, path: str | Path) -> Path:
    """Write one JSON file, event by event.

    Raises:
        StorageError: The place holds something that this function did not write, or can't be
            written.
    """
    target = Path(path)
    try:
        _check_place(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w", encoding="utf-8", newline="\n") as file:
            file.write(_HEAD)
            separator = ""
            for event in _events(store):
                file.write(separator + json.dumps(event, ensure_ascii=False))
                separator = ",\n"
            file.write("\n]}\n")
    except OSError as error:
        raise StorageError(phrase("errors.timeline_refused", path=target, why=error)) from error
    return target


def _check_place(target: Path) -> None:
    if target.is_dir():
        raise StorageError(
            phrase("errors.timeline_is_folder", path=target, example=target / "trace.json")
        )
    if target.exists():
        with target.open("rb") as file:
            is_ours = file.read(len(_HEAD)) == _HEAD.encode()
        if not is_ours:
            raise StorageError(phrase("errors.timeline_is_other", path=target))


def _events(store: TableSource) -> Iterator[dict[str, Any]]:
    threads: dict[tuple[int, str], int] = {}
    tables = set(store.tables())
    for table in (name for name in EVENT_TABLES if name in tables):
        batches = store.batches(table, columns=_COMMON + _OWN.get(table, []))
        for row in chain.from_iterable(batch.to_pylist() for batch in batches):
            place = (row["rank"], row["thread"])
            if place not in threads:
                threads[place] = len(threads) + 1
                yield _track(place, threads[place])
            if table != "memory":
                yield _span(table, row, threads[place])
            yield from _counters(table, row)


def _track(place: tuple[int, str], number: int) -> dict[str, Any]:
    name = {"name": place[1]}
    return {"ph": "M", "name": "thread_name", "pid": place[0], "tid": number, "args": name}


def _span(table: str, row: dict[str, Any], thread: int) -> dict[str, Any]:
    event = {
        "name": row["name"],
        "cat": row["stage"],
        "ts": _microseconds(row["start_ns"]),
        "pid": row["rank"],
        "tid": thread,
        "args": {"table": table, **{key: row[key] for key in ("seq", "stage", "call", "status")}},
    }
    if table in _INSTANT:
        return {**event, "ph": "i", "s": "t"}
    if row["duration_ns"] is None:
        return {**event, "ph": "B"}  # a begin without an end: viewers say that it did not finish
    return {**event, "ph": "X", "dur": _microseconds(row["duration_ns"])}


def _counters(table: str, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    event = {"ph": "C", "pid": row["rank"], "ts": _microseconds(row["start_ns"])}
    if table == "memory":
        for name in _MEMORY:
            if row[name] is not None:
                yield {**event, "name": name, "args": {"bytes": row[name]}}
    elif table == "steps" and row["cache_bytes"] is not None:
        # The cache has this size when the step ends.
        event["ts"] = _microseconds(row["start_ns"] + (row["duration_ns"] or 0))
        yield {**event, "name": f"{row['cache']} bytes", "args": {"bytes": row["cache_bytes"]}}


def _microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1000
