"""Runs that may fail: the recording is kept, and how it ended is told as a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from tracer.session import Recording
from tracer.trace import Trace

_COMPLETED = "completed"


def attempt(recording: Recording, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call a function inside a recording; an exception ends the recording and is not passed on.

    Returns:
        What the function returned, or None if it failed: `outcomes` says how.
    """
    try:
        with recording:
            return function(*given, **named)
    except Exception:
        # The manifest has it; a notebook that shows failures on purpose goes on.
        return None


def outcomes(traces: Mapping[str, Trace]) -> pd.DataFrame:
    """How runs ended.

    Returns:
        A row a run: run, outcome (completed, or the exception's class), error (its words, missing
        for a completed one), messages (warnings and log lines that the library gave).
    """
    rows = []
    for run, trace in traces.items():
        kind, _, words = str(trace.manifest.get("ended", "")).partition(": ")
        said = trace.read("messages", ["text"])["text"].dropna()
        rows.append([run, kind, words or None, " / ".join(said) or None])
    return pd.DataFrame(rows, columns=["run", "outcome", "error", "messages"])


def error_of(trace: Trace) -> str | None:
    """The exception that ended a run, as `Class: words`; None where it completed."""
    ended = str(trace.manifest.get("ended", ""))
    return None if ended == _COMPLETED else ended
