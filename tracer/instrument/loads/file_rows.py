"""`files`: every file of the folder that a load took its weights from, read or not, and why not.

A load with an adapter takes files out of a second folder, whose files are rows as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracer import checkpoint, problems
from tracer.checkpoint import FolderFile, Header
from tracer.instrument.loads.load_notes import Load
from tracer.listing import ADAPTERS, list_folder
from tracer.problems import Problem
from tracer.survey import Survey, survey_listing

_NOT_ASKED = "no call of the recording asked for it"
_NOT_REACHED = "the load failed before it came to this file"


def tell(load: Load, folder: str) -> None:
    """Write the rows, at the end of the recording: what is read may be read after the load."""
    rows = list(_rows(load, folder, load.survey, checkpoint.list_files(folder)))
    named = {row["path"] for row in rows}
    for place in dict.fromkeys(os.path.dirname(path) for path in load.files):
        # What lies below the folder is among its files.
        if not f"{place}{os.sep}".startswith(f"{folder}{os.sep}"):
            for row in _rows(load, place, *_elsewhere(load, place)):
                if row["path"] in named:
                    row["path"] = f"{os.path.basename(place)}/{row['path']}"
                rows.append(row)
    for row in rows:
        load.state.recorder.add_fact("files", load.call, load.call, model=load.model, **row)


def _elsewhere(load: Load, place: str) -> tuple[Survey | None, list[FolderFile]]:
    """Another folder: that of an adapter looked over, of any other the files that were taken."""
    taken = {os.path.basename(path) for path in load.files if os.path.dirname(path) == place}
    if taken.isdisjoint(ADAPTERS):
        files = checkpoint.list_files(place) if os.path.isdir(place) else []
        return None, [one for one in files if one.path in taken]
    survey = survey_listing(list_folder(place, ADAPTERS), beside=False)
    return survey, survey.files


def _rows(
    load: Load, folder: str, survey: Survey | None, files: list[FolderFile]
) -> Iterator[dict[str, Any]]:
    resolved = load.state.recorder.notes.get("resolved", set())
    opened = {os.path.realpath(path): access for path, access in load.access.items()}
    # Generation 4 never opens a file whose tensors all stay in it.
    known = {os.path.realpath(path): header for path, header in load.headers.items()}
    filesystem = checkpoint.filesystem_of(folder)
    causes = {} if survey is None else problems.causes(survey.problems)
    told = {load.name_of(path) for path in load.unopened or load.headers}
    for file in files:
        path = os.path.realpath(Path(folder) / file.path)
        own = known.get(path)
        header = survey.headers.get(file.path, own) if survey is not None else own
        is_looked_at = own is not None or file.path in told
        read = path in opened or (path in resolved and file.kind != "weights")
        read = read or (file.kind == "adapter_config" and _has_adapter(load, folder))
        yield {
            "path": file.path,
            "kind": file.kind,
            "format": file.format,
            "size_bytes": file.size_bytes if os.path.exists(path) else None,
            "expected_bytes": _expected_bytes(file.path, header, causes),
            "header_bytes": header.header_bytes if header and is_looked_at else None,
            "tensors": len(header.tensors) if header else None,
            "metadata": header.metadata if header else None,
            "read": read,
            "why_not": _why_not(load, file.path, read, path in known, survey, causes),
            "filesystem": filesystem,
            "access": opened.get(path),
        }
    listed = {file.path for file in files}
    for name in survey.chosen if survey is not None else ():
        if name not in listed and name in causes:
            yield {
                "path": name,
                "kind": "weights",
                "format": "safetensors" if name.endswith(".safetensors") else "pickle",
                "read": False,
                "why_not": causes[name].english,
                "filesystem": filesystem,
            }


def _has_adapter(load: Load, folder: str) -> bool:
    """Whether an adapter's weights were asked for in there, for which PEFT reads what it is."""
    return any(
        os.path.dirname(path) == folder and os.path.basename(path) in ADAPTERS
        for path in load.files
    )


def _expected_bytes(path: str, header: Header | None, causes: dict[str, Problem]) -> int | None:
    """Bytes that the file should have: by its header, or by the pointer in its place."""
    if header is not None:
        ends = [one.offset_bytes + one.size_bytes for one in header.tensors.values()]
        return max(ends, default=header.header_bytes + 8)
    cause = causes.get(path)
    return cause.expected if cause is not None and isinstance(cause.expected, int) else None


def _why_not(
    load: Load,
    path: str,
    read: bool,
    has_header: bool,
    survey: Survey | None,
    causes: dict[str, Problem],
) -> str | None:
    """Why a file's weights are not in the model: not asked for, not needed, or broken."""
    if path in causes:
        return causes[path].english
    if read:
        return None
    is_chosen = survey is not None and path in survey.chosen
    if is_chosen and not load.finished:
        return _NOT_REACHED
    if has_header:
        return "its tensors all stay in it, offloaded to the disk"
    why = None if survey is None else survey.why_not.get(path)
    return _NOT_ASKED if why is None else why.said("en")
