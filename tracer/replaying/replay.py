"""A trace opened for a player: its header and columns, and what is known at each stop."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from tracer.explain import language
from tracer.replaying.buffers import joined
from tracer.replaying.details import Details
from tracer.replaying.index import Stops, stops_of
from tracer.replaying.marks import quick_marks, slow_marks
from tracer.replaying.nodes import KINDS, TABLE_OF
from tracer.replaying.words import provenance, words
from tracer.schema import CALL_STATUS, STAGES
from tracer.trace import Trace
from tracer.views.labels import MISSING, bytes_label, count_label, duration_label

VERSION: Final = 1


class Replay:
    """What a player needs of a trace.

    Args:
        trace: Any trace, whole or cut short, of a load, an answer or both.

    Attributes:
        stops: The stops, as arrays.
        header: JSON data that opens a player; its marks are those that are quickly found.
        columns: The typed columns, in one buffer.
    """

    def __init__(self, trace: Trace) -> None:
        # Of a table that was lost nothing is shown; the header says that the trace is not whole.
        trace = Trace(trace.store.remains())
        self.trace = trace
        self.stops = stops_of(trace)
        places, self.columns = joined(self.stops.columns)
        tables = [TABLE_OF[kind] for kind in KINDS]
        self.header: dict[str, Any] = {
            "version": VERSION,
            "count": len(self.stops),
            "columns": places,
            "kinds": list(KINDS),
            "tables": tables,
            "stages": list(STAGES),
            "statuses": list(CALL_STATUS),
            "names": self.stops.names,
            "threads": self.stops.threads,
            "title": _title(trace),
            "facts": _facts(trace, self.stops),
            "ended": str(trace.manifest.get("state", "unknown")),
            "marks": quick_marks(trace, self.stops),
            "notes": [],
            "provenance": provenance(trace.tables),
            "language": language(),
            "words": words(trace.tables),
        }
        self._details = Details(trace, self.stops)

    @property
    def marks(self) -> list[dict[str, Any]]:
        """All marks, those of the audit and the doctor too, which read the whole trace."""
        found = [*self.header["marks"], *self._slow_marks[0]]
        return sorted(found, key=lambda mark: mark["stop"])

    @property
    def notes(self) -> list[dict[str, Any]]:
        """What this player can't show, marks that could not be looked for among it."""
        failed = [
            {"key": "marks_failed", "values": {"reason": reason}} for reason in self._slow_marks[1]
        ]
        return [*self.header["notes"], *failed]

    @functools.cached_property
    def _slow_marks(self) -> tuple[list[dict[str, Any]], list[str]]:
        return slow_marks(self.trace, self.stops)

    def detail(self, stop: int) -> dict[str, Any]:
        """What is known at a stop.

        Raises:
            IndexError: There is no such stop.
        """
        return self._details.detail(stop)

    def shared(self, room: str, key: str) -> Any:
        """What several stops share: a source, a call path, a strip, a cache; None if unknown."""
        return self._details.shared(room, key)


def _title(trace: Trace) -> str:
    names = trace.arrow("models", ["class_name", "asked"]).to_pylist()
    shown = [row["class_name"] or row["asked"] for row in names]
    if not any(shown):  # its load was not recorded: what was called tells the class
        called = trace.arrow("calls", ["name"], limit=1)["name"].to_pylist()
        shown = [name.partition(".")[0] for name in called if name]
    return ", ".join(dict.fromkeys(name for name in shown if name))


def _facts(trace: Trace, stops: Stops) -> list[list[str]]:
    """A few numbers about the whole run."""
    models = trace.arrow("models", ["parameters", "size_bytes", "dtype"]).to_pylist()
    told = []
    for row in models[:1]:
        told += [
            ["parameters", count_label(row["parameters"])],
            ["size_bytes", bytes_label(row["size_bytes"])],
            ["dtype", row["dtype"] or MISSING],
        ]
    tokens = trace.rows("choices")
    if tokens:
        told.append(["generated_tokens", count_label(tokens)])
    versions = trace.manifest.get("versions", {})
    if isinstance(versions, dict) and versions.get("transformers"):
        told.append(["transformers", str(versions["transformers"])])
    ended = _end_ms(stops)
    if ended is not None:
        told.append(["run_ns", duration_label(ended * 1e6)])
    return told


def _end_ms(stops: Stops) -> float | None:
    """When the last of the library's work ended; what never ended counts by what came inside."""
    is_library = stops.columns["stage"] != list(STAGES).index("recorder")
    start, took = stops.columns["start"][is_library], stops.columns["duration"][is_library]
    ends = start + np.nan_to_num(took)
    return float(np.nanmax(ends)) if np.isfinite(ends).any() else None
