"""`files` and `checkpoint_tensors`: what lies in a model's folder, and what became of it.

Whether a file was read rests on what was seen to be opened or asked for; why another was not, on
the files that the load chose and on the index that names them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tracer import checkpoint
from tracer.instrument import shard_facts
from tracer.instrument.reads import IN_ITS_FILE, STORED_DTYPES, Load
from tracer.rows import shape_text


def tell_files(load: Load, folder: str) -> None:
    """`files`: every file of the folder, read or not."""
    recorder = load.state.recorder
    resolved = recorder.notes.get("resolved", set())
    opened = {os.path.realpath(path): access for path, access in load.access.items()}
    headers = {os.path.realpath(path): header for path, header in load.headers.items()}
    filesystem = checkpoint.filesystem_of(folder)
    for file in checkpoint.list_files(folder):
        path = os.path.realpath(Path(folder) / file.path)
        header = headers.get(path)
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
            header_bytes=header.header_bytes if header else None,
            tensors=len(header.tensors) if header else None,
            metadata=header.metadata if header else None,
            read=read,
            why_not=None if read else _why_not(load, file, path),
            filesystem=filesystem,
            access=opened.get(path),
        )


def _why_not(load: Load, file: checkpoint.FolderFile, path: str) -> str:
    chosen = {os.path.realpath(one) for one in load.files}
    if path in chosen:
        # Generation 4 never opens a file whose tensors all stay in it.
        is_left = path in {os.path.realpath(one) for one in load.headers}
        return (
            "its tensors all stay in it, offloaded to the disk"
            if is_left
            else "the load ended before it came to this file"
        )
    if "/" in file.path:
        return "in a folder below, which the load does not enter by itself"
    if file.kind == "weights" and chosen:
        return _why_other_weights(load, file)
    if file.kind == "index" and chosen:
        names = sorted({Path(one).suffix for one in load.files})
        return f"the load took its weights from {', '.join(names)} files without it"
    return "no call of the recording asked for it"


def _why_other_weights(load: Load, file: checkpoint.FolderFile) -> str:
    first = Path(load.files[0]).name
    if file.format == "gguf":
        return f"GGUF is read only where gguf_file names it; the load took {first}"
    if file.path.startswith("adapter_"):
        return "an adapter: read on top of the base model that it names"
    if Path(file.path).suffix == Path(first).suffix and len(load.files) > 1:
        return "the index does not name it"
    if first.endswith(".safetensors") and file.format == "pickle":
        return f"safetensors come first where both are there: the load took {first}"
    return f"the load took {first}"


def tell_tensors(load: Load) -> None:
    """`checkpoint_tensors`: every tensor of every header, with its one fate."""
    recorder = load.state.recorder
    index = _index(load)
    for path, header in load.headers.items():
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
            dtype=[STORED_DTYPES.get(each.dtype, each.dtype) for each in entries.values()],
            shape=[shape_text(each.shape) for each in entries.values()],
            offset_bytes=[each.offset_bytes for each in entries.values()],
            size_bytes=[each.size_bytes for each in entries.values()],
            in_index=None if index is None else [index.get(key) == file for key in entries],
            fate=[fate for fate, _ in fates],
            because=[because for _, because in fates],
        )
    if index is not None and load.headers:
        named = {key for header in load.headers.values() for key in header.tensors}
        lost = sorted(set(index) - named)
        if lost:
            recorder.notes.setdefault("index_only", {})[load.model] = lost


def _index(load: Load) -> dict[str, str] | None:
    """What the index says, where the load followed one: another may lie beside a lone file."""
    if load.index is None:
        return None
    with load.state.recorder.guard("index"):
        names = json.loads(Path(load.index).read_text("utf-8"))["weight_map"]
        return {str(key): str(file) for key, file in names.items()}
    return None


def _fate(load: Load, key: str, path: str) -> tuple[str, str]:
    if load.shards is not None:
        return shard_facts.fate(load, load.shards, key, path)
    plan = load.plans.get(key)
    if load.file_of.get(key) != path:
        return "discarded", f"{Path(load.file_of[key]).name} holds the same name and was read later"
    if plan is None:
        return "unexpected", "no parameter of the model goes by this name, renamed or not"
    targets = load.targets_of(plan.param)
    odd = [target for target in targets if target in load.mismatched]
    if odd:
        return "discarded", f"its shape does not fit {', '.join(odd)}"
    if plan.operations:
        return "converted", f"{', '.join(plan.operations)} into {', '.join(targets)}"
    if plan.param not in load.placed:
        return "skipped", f"read for {plan.param}, which was never set"
    if plan.param in load.replaced:
        return "discarded", f"set as {plan.param}, {load.replaced[plan.param]}"
    if load.offloaded.get(plan.param) == IN_ITS_FILE:
        return "discarded", f"read in vain: {plan.param} stays in this file, offloaded to the disk"
    return "loaded", f"set as {plan.param}"


def folder_of(load: Load) -> str | None:
    """Folder of the weights' files, or else the one that was asked for."""
    if load.files:
        return str(Path(load.files[0]).parent)
    return load.asked if load.asked and Path(load.asked).is_dir() else None
