"""The files of a trace by name: its manifest, who may write where, and how a file appears whole.

A folder holds a manifest, a Parquet file a table and, while a recording is on, a journal. Nothing
here knows rows: storage.py and journal.py put them there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from tracer.errors import StorageError, TraceFormatError
from tracer.schema import SCHEMA_VERSION, TABLES

IfExists = Literal["error", "replace", "number"]

MANIFEST: Final = "manifest.json"
JOURNAL: Final = "journal"
STARTS: Final = "starts"
# A manifest is some kilobytes; whatever is larger than this was made to exhaust memory.
MANIFEST_LIMIT_BYTES: Final = 64 * 2**20


def damaged(file: str, error: Exception) -> TraceFormatError:
    """The one sentence for a file of a trace that can't be read."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return TraceFormatError(
        f"{file} is damaged ({reason}); copy the trace again or record it anew."
    )


@contextlib.contextmanager
def as_storage_error(path: Path) -> Iterator[None]:
    """Say in one sentence which place refused to be written, and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"{path} can't be written ({reason}); choose a place with permission and space."
        ) from error


def claim_folder(folder: Path, if_exists: IfExists) -> Path:
    """Make the folder for a trace, or empty it of an old one; a stranger's files are never touched.

    Raises:
        StorageError: It exists, is a file, or can't be made.
    """
    count = 1
    candidate = folder
    while True:
        with as_storage_error(candidate):
            occupied = _occupant(candidate)
            if occupied is None:
                candidate.mkdir(parents=True, exist_ok=True)
                return candidate
        if occupied == "a trace" and if_exists == "replace":
            with as_storage_error(candidate):
                remove_trace(candidate)
            return candidate
        if if_exists == "number" and (occupied != "a file" or count > 1):
            count += 1
            candidate = folder.with_name(f"{folder.name}-{count}")
            continue
        advice = "choose another place"
        if occupied == "a trace":
            advice = "pass if_exists='replace' or 'number', or choose another place"
        raise StorageError(f"{candidate} is already {occupied}; {advice}.")


def _occupant(folder: Path) -> str | None:
    if not os.path.lexists(folder):
        return None
    if not folder.is_dir():
        return "a file"
    if not any(folder.iterdir()):
        return None
    try:
        read_manifest(folder)
    except TraceFormatError:
        return "a folder with files that are no trace"
    return "a trace"


def remove_trace(folder: Path) -> None:
    """Delete the files of a trace by name; whatever else lies in the folder stays."""
    (folder / MANIFEST).unlink(missing_ok=True)
    remove_tables(folder)
    remove_journal(folder)


def remove_tables(folder: Path) -> None:
    """Delete the Parquet files of the schema's tables."""
    for name in TABLES:
        (folder / f"{name}.parquet").unlink(missing_ok=True)


def remove_journal(folder: Path) -> None:
    """Delete the streams of a recording, and their folder where nothing else is in it."""
    journal = folder / JOURNAL
    for name in (*TABLES, STARTS):
        (journal / f"{name}.arrows").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # A stranger's file inside keeps the folder.
        journal.rmdir()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a trace folder.

    Raises:
        TraceFormatError: There is none, it is damaged, or a newer version wrote it.
    """
    file = folder / MANIFEST
    try:
        with file.open("rb") as opened:
            text = opened.read(MANIFEST_LIMIT_BYTES + 1)
    except OSError as error:
        raise no_trace(folder, f"it has no readable {MANIFEST}") from error
    return parse_manifest(text, file)


def no_trace(path: Path, why: str) -> TraceFormatError:
    """The one sentence for a place that holds no trace."""
    return TraceFormatError(
        f"{path} is no trace: {why}; open a folder or zip that tracer.record or save wrote."
    )


def parse_manifest(text: bytes, file: Path) -> dict[str, Any]:
    """A manifest from its bytes; `file` is named in errors.

    Raises:
        TraceFormatError: It is damaged, no manifest, or written by a newer version.
    """
    manifest: dict[str, Any]
    try:
        if len(text) > MANIFEST_LIMIT_BYTES:
            raise ValueError("larger than any manifest")
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(str(file), error) from error
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(version, int):
        raise no_trace(file, "its manifest names no schema_version")
    if version > SCHEMA_VERSION:
        raise TraceFormatError(
            f"{file} was written with schema version {version} and this tracer reads up to "
            f"{SCHEMA_VERSION}; update tracer to open it."
        )
    return manifest


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """A manifest as JSON in UTF-8."""
    # Paths, dtypes and the like become text: a manifest must never fail at the end of a run.
    return json.dumps(manifest, indent=1, default=str).encode()


def write_beside(target: Path, write: Callable[[Path], object]) -> None:
    """Write under a temporary name, then rename: a reader never meets half a file."""
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        write(temporary)
        os.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write or replace the manifest of a folder.

    Raises:
        OSError: The disk refused.
    """
    data = manifest_bytes(manifest)
    write_beside(folder / MANIFEST, lambda temporary: temporary.write_bytes(data))
