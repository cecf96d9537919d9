"""The files of a trace by name: its manifest, who may write where, and how a file appears whole.

A folder holds a manifest, a Parquet file a table and, while a recording is on, a journal; that of
a run of several ranks holds such a folder for each. Nothing here knows rows: storage.py and
journal.py put them there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from tracer.errors import StorageError, TraceFormatError
from tracer.explain.sentences import phrase
from tracer.manifest import check_manifest
from tracer.ranks import Rank, rank_folders
from tracer.schema import SCHEMA_VERSION, TABLES

IfExists = Literal["error", "replace", "number"]

MANIFEST: Final = "manifest.json"
JOURNAL: Final = "journal"
STARTS: Final = "starts"
RESERVE: Final = "reserve"
"""A file in the journal that is given up when the disk is full, so that the manifest can say so."""
# A manifest is some kilobytes; whatever is larger than this was made to exhaust memory.
MANIFEST_LIMIT_BYTES: Final = 64 * 2**20


def damaged(file: object, why: object) -> TraceFormatError:
    """The one sentence for a file of a trace that can't be read.

    Args:
        file: What is damaged, as text or a sentence.
        why: A sentence, or an error, of which the first line is told.
    """
    reason = why
    if isinstance(why, Exception):
        reason = str(why).splitlines()[0] if str(why) else type(why).__name__
    return TraceFormatError(phrase("errors.damaged", file=file, why=reason))


@contextlib.contextmanager
def as_storage_error(path: Path) -> Iterator[None]:
    """Say in one sentence which place refused to be written, and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(phrase("errors.place_refused", path=path, why=reason)) from error


def claim_folder(folder: Path, if_exists: IfExists, rank: Rank | None = None) -> Path:
    """Make the folder for a trace, or empty it of an old one; a stranger's files are never touched.

    With a rank it is that rank's folder inside the folder of the run, which all ranks share: each
    finds the same one, since only a folder of the same start takes a further rank.

    Raises:
        StorageError: It exists, is a file, or can't be made.
    """
    count = 1
    candidate = folder
    while True:
        target = candidate / rank.folder if rank else candidate
        with as_storage_error(candidate):
            occupied = _occupant(candidate, rank)
            if occupied is None:
                target.mkdir(parents=True, exist_ok=True)
                return target
        if occupied == "taken_by_trace" and if_exists == "replace":
            with as_storage_error(candidate):
                _make_way(candidate, rank)
                target.mkdir(exist_ok=True)
            return target
        if if_exists == "number" and (occupied != "taken_by_file" or count > 1):
            count += 1
            candidate = folder.with_name(f"{folder.name}-{count}")
            continue
        advice = "advice_trace" if occupied == "taken_by_trace" else "advice_place"
        raise StorageError(
            phrase(
                "errors.place_taken",
                path=candidate,
                what=phrase(f"errors.{occupied}"),
                advice=phrase(f"errors.{advice}"),
            )
        )


def _occupant(folder: Path, rank: Rank | None) -> str | None:
    """What stands in the way, by its key among the errors' words."""
    if not os.path.lexists(folder):
        return None
    if not folder.is_dir():
        return "taken_by_file"
    names = set(os.listdir(folder))
    if not names:
        return None
    ranks = {} if MANIFEST in names else rank_folders(folder)
    if ranks and rank is not None:
        return _occupant_beside(ranks, rank)
    try:
        for inner in ranks.values() if ranks else [folder]:
            read_manifest(inner)
    except TraceFormatError:
        if names != set(os.listdir(folder)):
            return _occupant(folder, rank)  # Another rank makes way at this moment.
        return "taken_by_strangers"
    return "taken_by_trace"


def _occupant_beside(ranks: Mapping[int, Path], rank: Rank) -> str | None:
    """What keeps a rank out of the folder of a run: its own place is taken, or it is another run.

    A folder without a manifest was made by a rank a moment ago.
    """
    own = ranks.get(rank.number)
    if own is not None and any(own.iterdir()):
        return "taken_by_trace" if (own / MANIFEST).exists() else "taken_by_strangers"
    for number, inner in ranks.items():
        told = {} if number == rank.number else _told_by(inner)
        if told and {**told, **rank.fields(), "rank": told.get("rank")} != told:
            return "taken_by_trace"
    return None


def _told_by(folder: Path) -> dict[str, Any]:
    """The manifest of another rank; empty where it has none yet, or made way while we looked."""
    try:
        return read_manifest(folder)
    except TraceFormatError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise


def _make_way(folder: Path, rank: Rank | None) -> None:
    """Remove the old trace; of a run of ranks each removes what no other rank of this run will."""
    ranks = rank_folders(folder)
    for number, inner in ranks.items():
        is_stale = rank is None or number == rank.number
        is_stale |= rank is not None and rank.number == 0 and number >= rank.world_size
        if is_stale:
            remove_trace(inner)
            with contextlib.suppress(OSError):  # A stranger's file inside keeps the folder.
                inner.rmdir()
    remove_trace(folder)


def remove_trace(folder: Path) -> None:
    """Delete the files of a trace by name; whatever else lies in the folder stays.

    The manifest goes last: until then it is a trace to whoever looks, another rank for one.
    """
    remove_tables(folder)
    remove_journal(folder)
    (folder / MANIFEST).unlink(missing_ok=True)


def remove_tables(folder: Path) -> None:
    """Delete the Parquet files of the schema's tables."""
    for name in TABLES:
        (folder / f"{name}.parquet").unlink(missing_ok=True)


def remove_journal(folder: Path) -> None:
    """Delete the streams of a recording, and their folder where nothing else is in it."""
    journal = folder / JOURNAL
    (journal / RESERVE).unlink(missing_ok=True)
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
        raise no_trace(folder, phrase("errors.no_manifest", manifest=MANIFEST)) from error
    return parse_manifest(text, file)


def no_trace(path: Path, why: object) -> TraceFormatError:
    """The one sentence for a place that holds no trace."""
    return TraceFormatError(phrase("errors.no_trace", path=path, why=why))


def parse_manifest(text: bytes, file: Path) -> dict[str, Any]:
    """A manifest from its bytes; `file` is named in errors.

    Raises:
        TraceFormatError: It is damaged, no manifest, has a field of another type than it must
            have, or was written by a newer version.
    """
    manifest: dict[str, Any]
    try:
        if len(text) > MANIFEST_LIMIT_BYTES:
            raise damaged(file, phrase("errors.manifest_too_large"))
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(file, error) from error
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise no_trace(file, phrase("errors.no_version"))
    if version > SCHEMA_VERSION:
        raise TraceFormatError(
            phrase("errors.newer", file=file, version=version, known=SCHEMA_VERSION)
        )
    check_manifest(manifest, str(file))
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
