"""`doctor(...)`: ask every rule that knows this kind of subject.

A folder is looked at before loading, from headers and small files, without torch; a trace after a
run; a live model as it is. Nothing of theirs is run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from tracer import explain
from tracer.diagnosis import (  # noqa: F401  (each enters its rules)
    at_once,
    batches,
    caches,
    decoding,
    folders,
    headers,
    later,
    layers,
    lengths,
    live,
    loading,
    memory,
    numbers,
    padding,
    placement,
    precision,
    recording,
    refusals,
    running,
    settings,
    template_files,
    templates,
    ties,
    tokens,
    vision,
    weights,
)
from tracer.diagnosis.findings import Findings
from tracer.diagnosis.held import HeldTrace
from tracer.diagnosis.live import Live
from tracer.diagnosis.rules import ask
from tracer.errors import TracerError
from tracer.explain.sentences import phrase
from tracer.folder import MANIFEST
from tracer.inspection import Inspection, inspect
from tracer.ranks import rank_folders
from tracer.trace import Trace, open_trace

_ZIP: Final = ".zip"


def doctor(subject: Any, processor: Any = None) -> Findings:
    """Find what is known to go wrong, with the rows that show it.

    Args:
        subject: A model's folder (path, or the Inspection of one), a trace (path of a folder or
            zip, or the Trace), or a live model; also what has a `model` and a `processor` or
            `tokenizer`, such as a pipeline.
        processor: Processor or tokenizer of a live model.

    Returns:
        Findings, worst first: a list with `.frame()`, `.undecided`, and cards in a notebook.

    Raises:
        CheckpointError: There is no such folder.
        TraceFormatError: It is a trace, and can't be read.
        TracerError: It is none of these.
    """
    name = ""
    if isinstance(subject, str | os.PathLike):
        name = os.fspath(subject)
        subject = _opened(Path(subject).expanduser())
    if isinstance(subject, Inspection):
        return Findings(*ask("folder", subject), str(subject.folder))
    if isinstance(subject, Trace):
        return Findings(*ask("trace", HeldTrace(subject)), name or _told(subject))
    subject = _live(subject, processor)
    return Findings(*ask("live", subject), type(subject.model).__name__)


def _told(trace: Trace) -> str:
    """A trace that has no path, in words."""
    rows = sum(trace.rows(table) for table in trace.tables)
    tables = explain.count("table", len(trace.tables))
    return explain.text("doctor.of_trace", tables=tables, rows=explain.count("row", rows))


def _opened(path: Path) -> Inspection | Trace:
    is_trace = path.suffix.lower() == _ZIP or (path / MANIFEST).exists() or _has_ranks(path)
    return open_trace(path) if is_trace else inspect(path)


def _has_ranks(path: Path) -> bool:
    return path.is_dir() and bool(rank_folders(path))


def _live(subject: Any, processor: Any) -> Live:
    if not hasattr(subject, "named_parameters") and hasattr(subject, "model"):
        names = ("processor", "tokenizer", "front")  # of a pipeline, or of a Lab
        own = next((held for name in names if (held := getattr(subject, name, None))), None)
        subject, processor = subject.model, processor or own
    if not hasattr(subject, "named_parameters"):
        raise TracerError(phrase("errors.doctor_subject", kind=type(subject).__name__))
    return Live(subject, processor)
