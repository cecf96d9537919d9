"""Tables of a finished load: where every parameter and buffer got its values.

Told once, when the load has ended, as the recorder's own work. Nothing is compared here with the
files' contents (that is `verification.py`); an origin rests on what was seen to happen.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tracer import checkpoint
from tracer.errors import CheckpointError
from tracer.instrument import measure, placements, shard_facts
from tracer.instrument.installer import release
from tracer.instrument.reads import STORED_DTYPES, Load
from tracer.instrument.targets import IGNORED_LOAD_ARGUMENTS
from tracer.rows import shape_text


def tell_meta(load: Load, model: Any) -> None:
    """`meta_params`: the model as built, before any weight."""
    named = placements.named_tensors(model)
    load.expected = {each.name: tuple(each.tensor.shape) for each in named}
    load.state.recorder.add_facts(
        "meta_params",
        load.call,
        len(named),
        model=load.model,
        param=[each.name for each in named],
        kind=[each.kind for each in named],
        persistent=[each.persistent for each in named],
        module_class=[type(each.module).__name__ for each in named],
        shape=[shape_text(shape) for shape in load.expected.values()],
        dtype=[measure.dtype_name(each.tensor.dtype) for each in named],
        device=[measure.device_name(each.tensor.device) for each in named],
        size_bytes=[measure.size_of(each.tensor) for each in named],
        planned_device=_planned_device(load.arguments.get("device_map")),
    )


def _planned_device(device_map: Any) -> str | None:
    """Before the library has resolved a map, only one that is a single device says anything."""
    if device_map is None:
        return "cpu"
    return None if isinstance(device_map, dict) or device_map == "auto" else str(device_map)


def tell(load: Load, model: Any) -> None:
    """All tables of a load that ended well."""
    named = placements.named_tensors(model)
    _tell_model(load, model, named)
    tell_checkpoint(load)
    placements.describe(load, model, named)
    _tell_settings(load, model)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        configs = load.state.recorder.notes.setdefault("generation_configs", {})
        configs[load.model] = generation.to_dict()


def _tell_model(load: Load, model: Any, named: list[placements.Named]) -> None:
    config = model.config
    unique = {id(each.tensor): each for each in named}.values()
    folder = _folder(load)
    load.state.recorder.add_fact(
        "models",
        load.call,
        load.call,
        model=load.model,
        class_name=type(model).__name__,
        asked=load.asked,
        hub="local" if load.asked and Path(load.asked).is_dir() else "huggingface",
        revision=getattr(config, "_commit_hash", None),
        folder=folder,
        from_cache=True if load.asked and Path(load.asked).is_dir() else None,
        downloaded_bytes=0 if load.asked and Path(load.asked).is_dir() else None,
        dtype_asked=_dtype_asked(load),
        dtype=load.dtype,
        dtype_why=load.dtype_why,
        attention=getattr(config, "_attn_implementation", None),
        experts=getattr(config, "_experts_implementation", None),
        device_map=getattr(model, "hf_device_map", None),
        tied=placements.tied_names(load, model),
        parameters=sum(each.tensor.numel() for each in unique if each.kind == "parameter"),
        size_bytes=sum(measure.size_of(each.tensor) for each in unique),
        training=model.training,
    )


def _dtype_asked(load: Load) -> str | None:
    asked = load.arguments.get("dtype", load.arguments.get("torch_dtype"))
    return None if asked is None else measure.dtype_name(asked)


def _folder(load: Load) -> str | None:
    if load.files:
        return str(Path(load.files[0]).parent)
    return load.asked if load.asked and Path(load.asked).is_dir() else None


def tell_checkpoint(load: Load) -> None:
    """`checkpoint_tensors` now and `files` in the end, for a load that failed as well.

    Whether a file was read is known in the end only: a tokenizer may be loaded after the model.
    """
    folder = _folder(load)
    if folder is not None:
        load.state.recorder.at_end.append(lambda: _tell_files(load, folder))
        _tell_tensors(load, folder)


def _access(opened: str | None) -> str | None:
    """How the loader came to a file's bytes; unknown where only the path was asked for."""
    if opened is None:
        return None
    return "mmap" if opened.endswith(".safetensors") else "bytes"


def _tell_files(load: Load, folder: str) -> None:
    recorder = load.state.recorder
    resolved = recorder.notes.get("resolved", set())
    opened = {os.path.realpath(path): path for path in load.files}
    # Generation 4 never opens a file whose tensors all stay in it.
    named = opened | {
        os.path.realpath(path): path for path in load.headers if path not in load.files
    }
    filesystem = checkpoint.filesystem_of(folder)
    for file in checkpoint.list_files(folder):
        path = os.path.realpath(Path(folder) / file.path)
        header = load.headers.get(named.get(path, ""))
        read = path in opened or path in resolved
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
            why_not=None if read else _why_not(header),
            filesystem=filesystem,
            access=_access(opened.get(path)),
        )


def _why_not(header: checkpoint.Header | None) -> str:
    if header is None:
        return "no call of the recording asked for it"
    return "its tensors all stay in it, offloaded to the disk"


def _index(load: Load, folder: str) -> dict[str, str] | None:
    try:
        return checkpoint.read_index(folder)
    except CheckpointError as error:
        load.state.recorder.fault("index", str(error))
        return None


def _tell_tensors(load: Load, folder: str) -> None:
    recorder = load.state.recorder
    index = _index(load, folder)
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


def _fate(load: Load, key: str, path: str) -> tuple[str, str]:
    if load.shards is not None:
        return shard_facts.fate(load, load.shards, key, path)
    plan = load.plans.get(key)
    if load.file_of.get(key) != path:
        return "discarded", f"{Path(load.file_of[key]).name} holds the same name and was read later"
    if plan is None:
        return "unexpected", "no parameter of the model goes by this name, renamed or not"
    if plan.param in load.mismatched:
        return "discarded", f"its shape does not fit {plan.param}"
    if plan.operations:
        return "converted", f"{', '.join(plan.operations)} into {plan.param}"
    if plan.param not in load.placed:
        return "skipped", f"read for {plan.param}, which was never set"
    return "loaded", f"set as {plan.param}"


def _tell_settings(load: Load, model: Any) -> None:
    effective = {
        "dtype": load.dtype,
        "attn_implementation": getattr(model.config, "_attn_implementation", None),
        "device_map": getattr(model, "hf_device_map", load.arguments.get("device_map")),
    }
    asked = dict(load.arguments)
    if "torch_dtype" in asked:
        asked.setdefault("dtype", asked["torch_dtype"])
    ignored = next(names for since, names in IGNORED_LOAD_ARGUMENTS if release() >= since)
    for name in [*effective, *(key for key in asked if key not in effective)]:
        dropped = name in ignored
        given = name in asked
        if name.startswith("_") or name in {"config", "state_dict"}:
            continue  # the library's own plumbing between the Auto class and this one
        why = "accepted and dropped by this version" if dropped else None
        if name == "dtype":
            why = load.dtype_why
        load.state.recorder.add_fact(
            "settings",
            load.call,
            load.call,
            model=load.model,
            scope="load",
            setting=name,
            asked=_plain(asked[name]) if given else None,
            effective=None if dropped else _plain(effective.get(name, asked.get(name))),
            origin=_setting_origin(load, name, given),
            used=not dropped,
            why=why,
        )


def _setting_origin(load: Load, name: str, given: bool) -> str:
    if given:
        return "call"
    if name == "dtype" and load.dtype_why in {"config.json", "config object"}:
        return load.dtype_why
    return "library"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    return measure.dtype_name(value)
