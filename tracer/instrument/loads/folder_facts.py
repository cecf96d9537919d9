"""The folder that a load took its weights from: looked over, and `checkpoint_tensors` of it.

Told for loads that failed as well. Rows of `files` are made in `file_rows.py`, `faults` that name
what is wrong in `folder_troubles.py`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from tracer import checkpoint, problems
from tracer.errors import CheckpointError, in_english
from tracer.formats.entries import dtype_name
from tracer.instrument.loads import file_rows, folder_troubles, gguf_names, resolution, shard_facts
from tracer.instrument.loads.load_notes import IN_ITS_FILE, Load
from tracer.listing import list_folder, order_of
from tracer.rows import shape_text
from tracer.schema import SHAPE_MISFIT
from tracer.survey import Survey, survey_listing


def folder_of(load: Load) -> str | None:
    """The local folder that a load takes its files from; None where there is none."""
    if load.index:  # may name shards in folders below
        return os.path.dirname(load.index)
    if load.files:
        return str(Path(load.files[0]).parent)
    folder = resolution.local_folder(load.state.recorder, load.asked)
    if folder is None or folder != load.asked:  # what was found lies in the subfolder already
        return folder
    return os.path.join(folder, load.arguments.get("subfolder") or "")


def note_folder(load: Load) -> None:
    """List the folder of a load that ended well, as it is now, for `tell_checkpoint` and `files`.

    Whether a file was read is known in the end only: a tokenizer may be loaded after the model.
    """
    folder = load.folder = folder_of(load)
    if folder is None:
        return
    load.state.recorder.at_end.append(lambda: file_rows.tell(load, folder))
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
        folder_troubles.tell_problems(load.state.recorder, survey, load.call)
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
        folder_troubles.tell_problems(load.state.recorder, load.survey)
        folder_troubles.tell_adapter(load, folder)
        headers = load.unopened = _unopened(folder, load.survey) | headers
    load.state.recorder.at_end.append(lambda: file_rows.tell(load, folder))
    _tell_tensors(load, load.survey, headers)
    folder_troubles.tell_misfits(load, headers)
    folder_troubles.tell_mapping(load, headers)
    folder_troubles.tell_room(load, headers)


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


def _tell_tensors(
    load: Load, survey: Survey | None, headers: Mapping[str, checkpoint.Header]
) -> None:
    recorder = load.state.recorder
    index = None if survey is None or survey.index is None else survey.index.weight_map
    for path, header in headers.items():
        file = load.name_of(path)
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
    other = load.gave_way_to(key)
    if other is not None:
        return "discarded", f"read for {plan.param}, which takes its values from {other}"
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
