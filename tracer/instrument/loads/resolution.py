"""How a name became files on this machine: a local folder, the hub's cache, a download.

Observers note which paths the library asked for and what was fetched meanwhile; where a folder
comes from is decided by what the folder itself shows, so a path that another tool has filled
(ModelScope hands the library a local folder) is told from a plain one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from tracer.instrument.loads import gguf_names
from tracer.instrument.stages import Call, Observer, open_span
from tracer.recorder import Recorder
from tracer.spans import ThreadState

_HUB: Final = "huggingface.co"
# The hub's cache: models--ORG--NAME/snapshots/COMMIT (huggingface_hub, _CACHED_SNAPSHOT_).
_SNAPSHOT: Final = re.compile(r"[/\\]models--[^/\\]+[/\\]snapshots[/\\]([^/\\]+)(?=[/\\]|$)")
# Written by ModelScope into each folder that it fetches (modelscope/hub/utils/caching.py): the
# names of its files, the model's id, and as text `Revision:...,CreatedAt:...`.
_MODELSCOPE_MARKS: Final = (".msc", ".mdl")
_MODELSCOPE_REVISION: Final = ".mv"


class Origin(NamedTuple):
    """Where a model's folder comes from."""

    hub: str | None
    how: str
    revision: str | None


def origin_of(recorder: Recorder, asked: str | None, folder: str | None) -> Origin:
    """Where the folder of a load comes from, by its name and by what lies in it."""
    if asked is None:
        return Origin(None, "nothing was asked for by name", None)
    if folder is None:
        is_local = os.path.isdir(asked)
        return Origin("local" if is_local else "unknown", "no file was resolved", None)
    if any(os.path.exists(os.path.join(folder, mark)) for mark in _MODELSCOPE_MARKS):
        return Origin(
            "modelscope", "a folder that ModelScope fetched", _modelscope_revision(folder)
        )
    snapshot = _SNAPSHOT.search(folder)
    is_path = os.path.exists(asked)
    if snapshot is None:
        return Origin("local" if is_path else "unknown", "a local folder", None)
    hosts = {host for host, _ in _fetched(recorder, folder)}
    hub = "mirror" if hosts - {_HUB, None} else "huggingface"
    how = "a local path into the hub's cache" if is_path else "the hub's cache"
    return Origin(hub, f"fetched from {', '.join(sorted(hosts))}" if hosts else how, snapshot[1])


def downloaded_bytes(recorder: Recorder, asked: str | None, folder: str | None) -> int | None:
    """Bytes of the folder's files that were fetched in this recording; None without a folder."""
    if asked is None or folder is None:
        return None
    return sum(size for _, size in _fetched(recorder, folder))


def local_folder(recorder: Recorder, asked: str | None) -> str | None:
    """The folder that was asked for, or where the files of an id were found so far."""
    if asked and os.path.isdir(asked):
        return asked
    folders: dict[str | None, str] = recorder.notes.get("folders", {})
    return folders.get(asked)


def _fetched(recorder: Recorder, folder: str) -> list[tuple[str, int]]:
    """Host and bytes of each file of the folder that was fetched."""
    fetched: dict[str, tuple[str, int]] = recorder.notes.get("downloads", {})
    if not fetched:
        return []
    places = (os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)
    return [fetched[real] for real in map(os.path.realpath, places) if real in fetched]


def _modelscope_revision(folder: str) -> str | None:
    try:
        text = Path(folder, _MODELSCOPE_REVISION).read_text("utf-8", "replace")
    except OSError:
        return None
    return text.partition(",")[0].removeprefix("Revision:").strip() or None


def downloaded(state: ThreadState, call: Call) -> Observer:
    """`_download_to_tmp_and_move`: one file is fetched (or was there after all)."""
    path = str(call.argument(1, "destination_path"))
    host = urlsplit(str(call.argument(2, "url_to_download"))).hostname
    was_there = os.path.exists(path)
    span = open_span(state, call, f"download of {call.kwargs.get('filename') or Path(path).name}")
    outcome = yield None
    summary: dict[str, Any] = {"host": host}
    if outcome.error is None:
        is_new = not was_there or call.kwargs.get("force_download")
        summary["size_bytes"] = size = os.path.getsize(path) if is_new else 0
        notes = state.recorder.notes.setdefault("downloads", {})
        notes[os.path.realpath(path)] = (host, size)
    state.close(span, outcome.status, summary=summary)


def resolved_files(state: ThreadState, call: Call) -> Observer:
    """`cached_files`: names become local paths; every file of a repository passes here."""
    span = open_span(state, call)
    outcome = yield None
    found = [str(path) for path in outcome.result or () if path]
    names = call.argument(1, "filenames")
    summary: dict[str, Any] = {
        "asked": list(names or ()),
        "found": [Path(path).name for path in found],
    }
    recorder = state.recorder
    if found:
        asked = os.fspath(call.argument(0, "path_or_repo_id"))
        folders: dict[str, str] = recorder.notes.setdefault("folders", {})
        folders[asked] = str(Path(found[0]).parent)
        summary |= _told(recorder, asked, str(Path(found[0]).parent))
    state.close(span, outcome.status, summary=summary)
    recorder.notes.setdefault("resolved", set()).update(os.path.realpath(path) for path in found)


def checkpoint_files(state: ThreadState, call: Call) -> Observer:
    """`_get_resolved_checkpoint_files`: the files that a load will take its weights from."""
    span = open_span(state, call)
    outcome = yield None
    load, summary = state.load, None
    if outcome.error is None:
        files = [os.fspath(path) for path in outcome.result[0] or ()]
        summary = {"files": [Path(path).name for path in files]}
        if load is not None:
            # An adapter's files are asked for once the base has its weights.
            load.files += [path for path in files if path not in load.files]
        if files and load is not None and load.asked is not None:
            summary |= _told(state.recorder, load.asked, str(Path(files[0]).parent))
    state.close(span, outcome.status, summary=summary)
    if load is not None and outcome.error is None:
        gguf_names.files_found(load)


def _told(recorder: Recorder, asked: str, folder: str) -> dict[str, Any]:
    origin = origin_of(recorder, asked, folder)
    return {"name": asked, "folder": folder, "from": origin.how, "revision": origin.revision}


def index_file(state: ThreadState, call: Call) -> Observer:
    """`get_checkpoint_shard_files`: opens the index that it is handed."""
    span = open_span(state, call)
    index = call.argument(1, "index_filename")
    if state.load is not None and index is not None:
        state.load.index = os.fspath(index)
    outcome = yield None
    state.close(span, outcome.status)
    _note_read(state.recorder, call.argument(1, "index_filename"))


def generation_file(state: ThreadState, call: Call) -> Observer:
    """`GenerationConfig.from_pretrained`: reads a local folder's file by joining the names."""
    span = open_span(state, call, "GenerationConfig.from_pretrained")
    outcome = yield None
    state.close(span, outcome.status)
    name = call.argument(1, "pretrained_model_name")
    if outcome.error is None and name is not None and os.path.isdir(name):
        file = call.argument(2, "config_file_name") or "generation_config.json"
        _note_read(state.recorder, os.path.join(name, file))


def _note_read(recorder: Recorder, path: str | None) -> None:
    if path is not None and os.path.exists(path):
        recorder.notes.setdefault("resolved", set()).add(os.path.realpath(path))
