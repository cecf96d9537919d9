"""`files`: every file of the folder that a load took its weights from, read or not, and why not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tracer import checkpoint, problems
from tracer.checkpoint import FolderFile
from tracer.instrument.loads.load_notes import Load
from tracer.problems import Problem
from tracer.survey import Survey

_NOT_ASKED = "no call of the recording asked for it"


def tell(load: Load, folder: str) -> None:
    """Write the rows, at the end of the recording: what is read may be read after the load."""
    recorder, survey = load.state.recorder, load.survey
    headers = load.unopened or load.headers
    resolved = recorder.notes.get("resolved", set())
    opened = {os.path.realpath(path): access for path, access in load.access.items()}
    # Generation 4 never opens a file whose tensors all stay in it.
    known = {os.path.realpath(path): header for path, header in load.headers.items()}
    filesystem = checkpoint.filesystem_of(folder)
    causes = {} if survey is None else problems.causes(survey.problems)
    told = {os.path.basename(path) for path in headers}
    files = checkpoint.list_files(folder)
    for place, file in [*((folder, one) for one in files), *_elsewhere(load, folder, files)]:
        path = os.path.realpath(Path(place) / file.path)
        own = known.get(path)
        header = survey.headers.get(file.path, own) if survey is not None else own
        is_looked_at = own is not None or file.path in told
        read = path in opened or (path in resolved and file.kind != "weights")
        recorder.add_fact(
            "files",
            load.call,
            load.call,
            model=load.model,
            path=file.path,
            kind=file.kind,
            format=file.format,
            size_bytes=file.size_bytes,
            expected_bytes=_expected_bytes(file.path, header, causes),
            header_bytes=header.header_bytes if header and is_looked_at else None,
            tensors=len(header.tensors) if header else None,
            metadata=header.metadata if header else None,
            read=read,
            why_not=_why_not(file.path, read, path in known, survey, causes),
            filesystem=filesystem,
            access=opened.get(path),
        )
    listed = {file.path for file in files}
    for path in survey.chosen if survey is not None else ():
        if path not in listed and path in causes:
            recorder.add_fact(
                "files",
                load.call,
                load.call,
                model=load.model,
                path=path,
                kind="weights",
                format=_format(path),
                read=False,
                why_not=causes[path].english,
                filesystem=filesystem,
            )


def _elsewhere(
    load: Load, folder: str, files: list[FolderFile]
) -> Iterator[tuple[str, FolderFile]]:
    """Weight files of other folders, as of an adapter, whose names the model's own has not."""
    listed = {file.path for file in files}
    for path in load.files:
        place, name = os.path.split(path)
        if place != folder and name not in listed:
            listed.add(name)
            yield from ((place, one) for one in checkpoint.list_files(place) if one.path == name)


def _format(path: str) -> str:
    return "safetensors" if path.endswith(".safetensors") else "pickle"


def _expected_bytes(
    path: str, header: checkpoint.Header | None, causes: dict[str, Problem]
) -> int | None:
    """Bytes that the file should have: by its header, or by the pointer in its place."""
    if header is not None:
        ends = [one.offset_bytes + one.size_bytes for one in header.tensors.values()]
        return max(ends, default=header.header_bytes + 8)
    cause = causes.get(path)
    return cause.expected if cause is not None and isinstance(cause.expected, int) else None


def _why_not(
    path: str, read: bool, has_header: bool, survey: Survey | None, causes: dict[str, Problem]
) -> str | None:
    """Why a file's weights are not in the model: not asked for, not needed, or broken."""
    if path in causes:
        return causes[path].english
    if read:
        return None
    if has_header:
        return "its tensors all stay in it, offloaded to the disk"
    why = None if survey is None else survey.why_not.get(path)
    return _NOT_ASKED if why is None else why.said("en")
