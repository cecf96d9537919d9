"""Tables of the folder that a load took its weights from: files, tensors, and what is wrong there.

Told for loads that failed as well: then headers and index are looked over again, so that the trace
names the file and the numbers, whatever words the library's own error has.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tracer import checkpoint, machine, problems
from tracer.checkpoint import FolderFile
from tracer.errors import CheckpointError, in_english
from tracer.formats.entries import dtype_name
from tracer.instrument.loads import gguf_names, shard_facts
from tracer.instrument.loads.load_notes import IN_ITS_FILE, Load
from tracer.problems import Problem
from tracer.recorder import Recorder
from tracer.rows import shape_text
from tracer.schema import SHAPE_MISFIT
from tracer.survey import Survey, list_folder, order_of, survey_folder, survey_listing

_NOT_ASKED = "no call of the recording asked for it"


def folder_of(load: Load) -> str | None:
    """The local folder that a load takes its files from; None where there is none."""
    if load.files:
        return str(Path(load.files[0]).parent)
    folder = _local_folder(load.state.recorder, load.asked)
    if folder is None or folder != load.asked:  # what was found lies in the subfolder already
        return folder
    return os.path.join(folder, load.arguments.get("subfolder") or "")


def _local_folder(recorder: Recorder, asked: str | None) -> str | None:
    """The folder that was asked for, or where the files of an id were found so far."""
    if asked and os.path.isdir(asked):
        return asked
    folders: dict[str | None, str] = recorder.notes.get("folders", {})
    return folders.get(asked)


def note_folder(load: Load) -> None:
    """List the folder of a load that ended well, as it is now, for `tell_checkpoint` and `files`.

    Whether a file was read is known in the end only: a tokenizer may be loaded after the model.
    """
    folder = load.folder = folder_of(load)
    if folder is None:
        return
    load.state.recorder.at_end.append(lambda: _tell_files(load, folder))
    known = [_below(folder, path) for path in load.header_paths]
    if known and not any(map(_is_inside, known)):
        return  # files out of several folders: nothing to compare
    try:
        load.listing = list_folder(folder, order_of(load.arguments))
    except CheckpointError as error:
        load.state.recorder.fault(os.path.basename(folder), in_english(error))
        return
    if not set(known).issuperset(load.listing.chosen):
        load.survey = _survey(load, folder)  # as long as the other files are what they were


def tell_checkpoint(load: Load) -> None:
    """`checkpoint_tensors` of a load that ended well."""
    if load.folder is None:
        return
    survey = load.survey
    if load.listing is not None and survey is None:
        survey = _survey(load, load.folder)
    if survey is not None:
        survey = dataclasses.replace(survey, problems=problems.after_success(survey.problems))
        tell_problems(load.state.recorder, survey, load.call)
    load.survey = survey
    _tell_tensors(load, survey, load.headers)


def tell_failed(load: Load) -> None:
    """`checkpoint_tensors` of a load that failed, and what is wrong with its folder."""
    folder = load.folder = folder_of(load)
    if folder is None:
        return
    try:
        load.listing = list_folder(folder, order_of(load.arguments))
        load.survey = _survey(load, folder, beside=True)
    except CheckpointError as error:
        load.state.recorder.fault(os.path.basename(folder), in_english(error))
    headers = dict(load.headers)
    if load.survey is not None:
        tell_problems(load.state.recorder, load.survey)
        headers = load.unopened = _unopened(folder, load.survey) | headers
    load.state.recorder.at_end.append(lambda: _tell_files(load, folder))
    _tell_tensors(load, load.survey, headers)
    _tell_room(load, headers)


def _survey(load: Load, folder: str, *, beside: bool = False) -> Survey | None:
    """The folder looked over; headers that the load knows already are not read again."""
    known = {_below(folder, path): header for path, header in load.headers.items()}
    return None if load.listing is None else survey_listing(load.listing, known, beside=beside)


def _below(folder: str, path: str) -> str:
    """A path as it goes on from the folder."""
    start = folder + os.sep
    return path[len(start) :] if path.startswith(start) else os.path.relpath(path, folder)


def _is_inside(path: str) -> bool:
    return not path.startswith("..")


def tell_problems(recorder: Recorder, survey: Survey, call: int | None = None) -> None:
    """A `faults` row for whatever can make a load fail or end with other values."""
    for one in survey.problems:
        if one.level != "note":
            recorder.fault(one.file or survey.folder.name, one.english, call=call)
    if survey.missing_bytes:
        recorder.fault(
            survey.folder.name,
            f"{survey.missing_bytes} bytes of weights are missing from this folder",
            call=call,
        )


def tell_broken(recorder: Recorder, asked: Any, with_weights: bool) -> None:
    """What is wrong with a folder of which a configuration, tokenizer or processor did not load.

    The same words are said once, so a model that failed inside the call adds nothing here.
    """
    folder = None if asked is None else _local_folder(recorder, os.fspath(asked))
    if folder is None:
        return
    with recorder.guard("folder that could not be loaded"):
        survey = survey_folder(folder)
        beside = {file.path for file in survey.files if file.kind not in {"weights", "index"}}
        own = [one for one in survey.problems if one.file in beside or one.kind == "no_config"]
        tell_problems(
            recorder, survey if with_weights else dataclasses.replace(survey, problems=own)
        )


def _tell_room(load: Load, headers: Mapping[str, checkpoint.Header]) -> None:
    """Whether what was still to be placed when the load failed could have had room in memory."""
    # One tensor under two names takes its bytes once, under the first of them.
    expected = {each.identity: each for each in reversed(load.expected.values())}.values()
    needed = sum(each.size_bytes for each in expected if each.name not in load.placed)
    if load.arguments.get("device_map") not in (None, "cpu"):
        return  # what goes where is not decided by the machine's memory alone
    if not load.expected:  # the model was not even built: what the files hold
        entries = (entry for header in headers.values() for entry in header.tensors.values())
        needed = sum(entry.size_bytes for entry in entries)
    room = machine.memory_left()
    if room is not None and needed > room.left_bytes:
        load.state.recorder.fault(
            "memory",
            f"the load failed with {needed} bytes of weights still to be placed, where "
            f"{room.left_bytes} bytes of memory were left ({room.limit})",
        )


def _tell_files(load: Load, folder: str) -> None:
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


def _tell_tensors(
    load: Load, survey: Survey | None, headers: Mapping[str, checkpoint.Header]
) -> None:
    recorder = load.state.recorder
    index = None if survey is None or survey.index is None else survey.index.weight_map
    for path, header in headers.items():
        file = Path(path).name
        entries = header.tensors
        fates = [_fate(load, key, path) for key in entries]
        recorder.add_facts(
            "checkpoint_tensors",
            load.call,
            len(entries),
            model=load.model,
            file=file,
            key=list(entries),
            dtype=[dtype_name(each.dtype) for each in entries.values()],
            shape=[shape_text(each.shape) for each in entries.values()],
            offset_bytes=[each.offset_bytes for each in entries.values()],
            size_bytes=[each.size_bytes for each in entries.values()],
            in_index=None if index is None else [index.get(key) == file for key in entries],
            fate=[fate for fate, _ in fates],
            because=[because for _, because in fates],
        )
    if index is not None and headers and load.model is not None:
        named = {key for header in headers.values() for key in header.tensors}
        lost = sorted(set(index) - named)
        if lost:
            recorder.notes.setdefault("index_only", {})[load.model] = lost


def _unopened(folder: str, survey: Survey) -> dict[str, checkpoint.Header]:
    """By full path: headers of what a load that failed would have opened, had it come so far."""
    return {
        os.path.join(folder, path): survey.headers[path]
        for path in survey.chosen
        if path in survey.headers and path.endswith(".safetensors")
    }


def _fate(load: Load, key: str, path: str) -> tuple[str, str]:
    if path not in load.headers:
        return "skipped", "the load failed before it came to this tensor"
    if load.gguf_names and gguf_names.target_of(load.gguf_names, key) is None:
        return "skipped", gguf_names.NO_PLACE
    if load.shards is not None:
        return shard_facts.fate(load, load.shards, key, path)
    plan = load.plans.get(key)
    if load.file_of.get(key) != path:
        return "skipped", f"{Path(load.file_of[key]).name} holds the same name and comes later"
    if plan is None:
        return "unexpected", "no parameter of the model goes by this name, renamed or not"
    if key in load.of_other_ranks:
        return "skipped", f"other ranks hold all that is made of it in {plan.param}"
    targets = load.targets_of(plan.param)
    odd = load.mismatched and [target for target in targets if target in load.mismatched]
    if odd:
        return "discarded", f"{SHAPE_MISFIT}{', '.join(odd)}"
    if plan.operations:
        return "converted", f"{', '.join(plan.operations)} into {', '.join(targets)}"
    if plan.param not in load.placed:
        return "skipped", f"read for {plan.param}, which was never set"
    if plan.param in load.replaced:
        return "discarded", f"set as {plan.param}, {load.replaced[plan.param]}"
    if load.offloaded.get(plan.param) == IN_ITS_FILE:
        return "discarded", f"read in vain: {plan.param} stays in this file, offloaded to the disk"
    return "loaded", f"set as {plan.param}"
