"""Everything that is known at one stop, as plain data; the package says which parts there are.

Made when it is asked for. A part is a function of the stop's kind and row; what the trace does not
tell is absent.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracer.replaying.code import Code
from tracer.replaying.facts import Fact, facts_of, flow_of, handed_over
from tracer.replaying.index import Stops
from tracer.replaying.nodes import KINDS, TABLE_OF
from tracer.replaying.places import Places
from tracer.replaying.rows import Row, Rows, cells, small_table
from tracer.replaying.sequences import Sequences
from tracer.views.labels import bytes_label, duration_label, share_label

if TYPE_CHECKING:
    from tracer.trace import Trace

ROOMS: Final = ("sources", "stacks", "strips", "caches")
"""What stops share, each under a key of its own."""
_ESTABLISHED: Final = ("models", "files", "settings", "chain", "prompts", "segments", "images")
_MOST_ROWS: Final = 60
_MOST_REACHED: Final = 400
_MILLISECOND: Final = 1e6


class Details:
    """What is known at each stop of a trace.

    Args:
        trace: The trace.
        stops: Its stops.
    """

    def __init__(self, trace: Trace, stops: Stops) -> None:
        self._stops = stops
        self._columns = stops.columns
        self._rows = Rows(trace)
        self._places = Places(self._rows)
        self._sequences = Sequences(self._rows)

    @functools.cached_property
    def code(self) -> Code:
        """Sources and call paths."""
        return Code(self._rows.trace)

    def detail(self, stop: int) -> dict[str, Any]:
        """What is known at a stop.

        Raises:
            IndexError: There is no such stop.
        """
        if not 0 <= stop < len(self._stops):
            raise IndexError(f"there is no stop {stop} among {len(self._stops)}")
        kind = KINDS[self._columns["kind"][stop]]
        table = TABLE_OF[kind]
        row = self._row(stop)
        went_in, came_out = flow_of(kind, row)
        told: dict[str, Any] = {
            "stop": stop,
            "title": self._stops.names[self._columns["name"][stop]],
            "facts": [*self._times(stop), *facts_of(kind, table, row), *self._memory(row)],
            "row": {"table": table, "cells": cells(row)},
            **self._code(stop, row),
            "inputs": [*went_in, *self._handed(kind, row)],
            "outputs": came_out,
            "tables": self._tables(kind, row),
            **self._own(stop, kind, row),
        }
        return {name: value for name, value in told.items() if value not in (None, [], {})}

    def shared(self, room: str, key: str) -> Any:
        """What several stops share; None for a room or key that isn't there."""
        if room == "sources":
            return self.code.sources.get(key)
        if room == "stacks":
            return self.code.stack(key) or None
        numbers = key.split(":")
        if not all(number.lstrip("-").isdigit() for number in numbers):
            return None
        if room == "strips" and len(numbers) in (2, 4):
            return self._sequences.strip(key)
        if room == "caches" and len(numbers) == 2:
            return self._places.cache(int(numbers[0]), int(numbers[1]))
        return None

    def _times(self, stop: int) -> list[Fact]:
        """When it was, how long it took, and how much of that was its own."""
        columns = self._columns
        start, whole = float(columns["start"][stop]), float(columns["duration"][stop])
        told = []
        if not math.isnan(start):
            told.append(["start_ns", duration_label(start * _MILLISECOND), "measured"])
        if KINDS[columns["kind"][stop]] in ("token", "image", "message", "fault"):
            return told
        if math.isnan(whole):
            return [*told, ["status", "interrupted", "measured"]]
        told.append(["duration_ns", duration_label(whole * _MILLISECOND), "measured"])
        inner = self._inner_ms(stop)
        if inner:
            own = max(whole - inner, 0.0) * _MILLISECOND
            told.append(["own_ns", duration_label(own), "derived"])
        call = int(columns["call"][stop])
        around = float(columns["duration"][call]) if call >= 0 and call != stop else math.nan
        if around > 0:
            told.append(["share_of_call", share_label(whole, around), "derived"])
        return told

    def _inner_ms(self, stop: int) -> float:
        """Milliseconds in which something inside ran on the same thread, next to each other."""
        columns = self._columns
        if columns["last"][stop] == stop:
            return 0.0
        children = self._children(stop)
        same = children[columns["thread"][children] == columns["thread"][stop]]
        return float(np.nansum(columns["duration"][same]))

    def _children(self, stop: int) -> Any:
        first, last = stop + 1, int(self._columns["last"][stop]) + 1
        return first + np.flatnonzero(self._columns["parent"][first:last] == stop)

    def _code(self, stop: int, row: Row) -> dict[str, Any]:
        """Source and call path; of a stop that has neither (a token) those it happened in."""
        around, found = stop, row
        while around >= 0 and not self._has_code(found):
            around = int(self._columns["parent"][around])
            found = self._row(around) if around >= 0 else row
        at = stop if around < 0 else around
        told = {"source": self._source(at, found), "stack": found.get("stack")}
        return told if at == stop else {**told, "code_of": at}

    def _has_code(self, row: Row) -> bool:
        return row.get("source") in self.code.sources or self.code.stack(row.get("stack", "")) != []

    def _source(self, stop: int, row: Row) -> dict[str, Any] | None:
        key = row.get("source")
        if key is None or key not in self.code.sources:
            return None
        lines = self.code.lines_of(key)
        return {"key": key, "line": lines.start or None, "reached": self._reached(stop, key, lines)}

    def _reached(self, stop: int, key: str, lines: range) -> list[list[int]]:
        """Lines of a function from which stops inside were reached, each with the first such stop.

        The path that led to a child passes through the function on the line that called it.
        """
        if not lines or self._columns["last"][stop] == stop:
            return []
        file = self.code.sources[key]["file"]
        found: dict[int, int] = {}
        for child in self._reached_children(stop, key):
            for frame in reversed(self.code.stack(self._row(int(child)).get("stack", ""))):
                if frame["file"] == file and frame["line"] in lines:
                    found.setdefault(frame["line"], int(child))
                    break
        return [[line, child] for line, child in sorted(found.items())]

    def _reached_children(self, stop: int, key: str) -> Any:
        """What ran inside; a forward's only child may be the call of that same function."""
        children = self._children(stop)[:_MOST_REACHED]
        if len(children) and self._row(int(children[0])).get("source") == key:
            inner = self._children(int(children[0]))
            return np.concatenate([children, inner])[:_MOST_REACHED]
        return children

    def _row(self, stop: int) -> Row:
        table = TABLE_OF[KINDS[self._columns["kind"][stop]]]
        return self._rows.row(table, int(self._columns["row"][stop]))

    def _handed(self, kind: str, row: Row) -> list[list[str]]:
        if kind not in ("call", "span"):
            return []
        return handed_over(self._rows.lookup("inputs", "event").rows(row.get("seq", -1)))

    def _memory(self, row: Row) -> list[Fact]:
        """Resident memory at the last sample before it ended; samples are few."""
        if "start_ns" not in row:
            return []
        samples = self._samples
        if samples is None:
            return []
        times, resident = samples
        end = row["start_ns"] + row.get("duration_ns", 0)
        at = int(np.searchsorted(times, end, side="right")) - 1
        if at < 0 or math.isnan(resident[at]):
            return []
        return [["memory_then", bytes_label(resident[at]), "measured"]]

    @functools.cached_property
    def _samples(self) -> tuple[Any, Any] | None:
        found = self._rows.trace.read("memory", ["start_ns", "rss_bytes"]).sort_values("start_ns")
        if found.empty:
            return None
        return found["start_ns"].to_numpy(np.int64), found["rss_bytes"].to_numpy(
            float, na_value=np.nan
        )

    def _tables(self, kind: str, row: Row) -> list[dict[str, Any]]:
        if "seq" not in row or kind not in ("call", "span", "step"):
            return []
        told = []
        for table in _ESTABLISHED:
            lookup = self._rows.lookup(table, "event")
            total = len(lookup.numbers(row["seq"]))
            if total:
                shown = lookup.rows(row["seq"], most=_MOST_ROWS)
                told.append(small_table(table, shown, total))
        return told

    def _own(self, stop: int, kind: str, row: Row) -> dict[str, Any]:
        """Parts that only stops of this kind have."""
        if kind == "tensor":
            return {"tensor": self._places.tensor(row)}
        if kind == "image":
            return {"image": self._places.image(row)}
        call = int(row.get("call", -1))
        step = int(self._columns["step"][stop])
        if kind == "call":
            return {"strip": self._sequences.place(int(row.get("seq", -1)), -1)}
        if step < 0:
            return {}
        own: dict[str, Any] = {}
        if self._places.has_cache(call, step):
            own["cache"] = f"{call}:{step}"
        if kind == "token":
            place = (call, step, int(row.get("row", 0)), int(row.get("offset", 0)))
            own["token"] = self._sequences.token(*place)
        else:
            own["strip"] = self._sequences.place(call, step)
        return own
