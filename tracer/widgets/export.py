"""Answers as files: CSV, traces or pages, in a zip for the browser that also stays on disk."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from tracer.errors import StorageError, TracerError
from tracer.explain import text
from tracer.explain.sentences import phrase

if TYPE_CHECKING:
    from tracer.widgets.runs import Run

Kind = Literal["csv", "trace", "html"]
KINDS: Final = ("csv", "trace", "html")
FOLDER: Final = Path("runs") / "explorer"


def export(runs: Sequence[Run], kind: Kind, folder: Path = FOLDER) -> Path:
    """Write answers into a new zip: one answer's files at its top, several in a folder each.

    Args:
        runs: The answers.
        kind: `csv` (one file a table), `trace` (what `open_trace` reads) or `html` (a page that
            plays the answer in a browser).
        folder: Made where it isn't there.

    Raises:
        StorageError: The place can't be written.
        TracerError: None of the answers has a trace.
    """
    traced = [run for run in runs if run.answer.trace is not None]
    if not traced:
        raise TracerError(text("explorer.nothing_to_export"))
    name = f"answer-{traced[0].answer.number}" if len(traced) == 1 else "session"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target = _free(folder, f"{name}-{kind}")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            for run in traced:
                _write(run, kind, Path(scratch) / f"answer-{run.answer.number}")
            top = Path(scratch) if len(traced) > 1 else Path(scratch) / name
            _pack(top, target, kind)
    except OSError as error:
        raise StorageError(phrase("errors.cant_write", path=folder, why=error)) from error
    return target


def _write(run: Run, kind: Kind, place: Path) -> None:
    trace = run.answer.trace
    if trace is None:
        return
    if kind == "csv":
        trace.to_csv(place)
    elif kind == "html":
        from tracer.views.html import to_html  # brings pandas along, which the panel waits not for

        to_html(trace, place / "run.html")
    else:
        trace.save(place)


def _pack(top: Path, target: Path, kind: Kind) -> None:
    # CSV becomes a tenth. Parquet is packed already, and is read where it lies in the zip.
    method = zipfile.ZIP_STORED if kind == "trace" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(target, "x", method) as archive:
        for file in sorted(top.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(top).as_posix())


def _free(folder: Path, name: str) -> Path:
    number, target = 1, folder / f"{name}.zip"
    while target.exists():
        number += 1
        target = folder / f"{name}-{number}.zip"
    return target
