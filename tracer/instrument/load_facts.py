"""Tables of a finished load: where every parameter and buffer got its values.

Told once, when the load has ended, as the recorder's own work. Nothing is compared here with the
files' contents (that is `verify.py`); an origin rests on what was seen to happen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tracer import checkpoint
from tracer.instrument import measure
from tracer.instrument.reads import STORED_DTYPES, Load
from tracer.instrument.targets import IGNORED_LOAD_ARGUMENTS

_CONTROL: Final = ("dtype", "torch_dtype", "device_map", "attn_implementation")


def named_tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """Every parameter and buffer by each of its names, tied ones included."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _owner(model: Any, name: str) -> tuple[Any, str]:
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf


def _kind(module: Any, leaf: str) -> tuple[str, bool]:
    """Kind, and whether a state dict holds it."""
    if leaf in module._parameters:
        return "parameter", True
    return "buffer", leaf not in module._non_persistent_buffers_set


def tell_meta(load: Load, model: Any) -> None:
    """`meta_params`: the model as built, before any weight."""
    recorder = load.state.recorder
    for name, tensor in named_tensors(model):
        module, leaf = _owner(model, name)
        kind, persistent = _kind(module, leaf)
        load.expected[name] = measure.shape_of(tensor)
        recorder.add_fact(
            "meta_params",
            load.call,
            load.call,
            model=load.model,
            param=name,
            kind=kind,
            persistent=persistent,
            module_class=type(module).__name__,
            shape=load.expected[name],
            dtype=measure.dtype_name(tensor.dtype),
            device=str(tensor.device),
            size_bytes=measure.size_of(tensor),
            planned_device=_planned_device(load.arguments.get("device_map")),
        )


def _planned_device(device_map: Any) -> str | None:
    """Only a map that is one device says where a parameter goes before the library has resolved it."""
    if device_map is None:
        return "cpu"
    return None if isinstance(device_map, dict) or device_map == "auto" else str(device_map)


def tell(load: Load, model: Any) -> None:
    """All tables of a load that ended well."""
    _tell_model(load, model)
    tell_files(load)
    _describe_placements(load, model)
    _tell_settings(load, model)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        configs = load.state.recorder.notes.setdefault("generation_configs", {})
        configs[load.model] = generation.to_dict()


def _tell_model(load: Load, model: Any) -> None:
    config = model.config
    unique = {id(tensor): tensor for _, tensor in named_tensors(model)}
    parameters = {id(tensor): tensor for tensor in model.parameters()}
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
        tied=dict(getattr(model, "all_tied_weights_keys", None) or {}),
        parameters=sum(tensor.numel() for tensor in parameters.values()),
        size_bytes=sum(measure.size_of(tensor) for tensor in unique.values()),
        training=model.training,
    )


def _dtype_asked(load: Load) -> str | None:
    asked = load.arguments.get("dtype", load.arguments.get("torch_dtype"))
    return None if asked is None else measure.dtype_name(asked)


def _folder(load: Load) -> str | None:
    if load.files:
        return str(Path(load.files[0]).parent)
    return load.asked if load.asked and Path(load.asked).is_dir() else None


def tell_files(load: Load) -> None:
    """`files` and `checkpoint_tensors`, for a load that failed as well."""
    folder = _folder(load)
    if folder is None:
        return
    recorder = load.state.recorder
    resolved = recorder.notes.get("resolved", set())
    opened = {os.path.realpath(path): path for path in load.files}
    for file in checkpoint.list_files(folder):
        path = os.path.realpath(Path(folder) / file.path)
        header = load.headers.get(opened.get(path, ""))
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
            why_not=None if read else "not asked for by any call so far",
            filesystem=checkpoint.filesystem_of(folder),
            access="mmap" if path in opened else ("bytes" if read else None),
        )
    _tell_checkpoint_tensors(load, folder)


def _tell_checkpoint_tensors(load: Load, folder: str) -> None:
    recorder = load.state.recorder
    index = checkpoint.read_index(folder)
    for path, header in load.headers.items():
        file = Path(path).name
        for key, entry in header.tensors.items():
            fate, because = _fate(load, key, path)
            recorder.add_fact(
                "checkpoint_tensors",
                load.call,
                load.call,
                model=load.model,
                file=file,
                key=key,
                dtype=STORED_DTYPES.get(entry.dtype, entry.dtype),
                shape=list(entry.shape),
                offset_bytes=entry.offset_bytes,
                size_bytes=entry.size_bytes,
                in_index=None if index is None else index.get(key) == file,
                fate=fate,
                because=because,
            )
    if index is not None:
        named = {key for header in load.headers.values() for key in header.tensors}
        lost = sorted(set(index) - named)
        if lost:
            recorder.notes.setdefault("index_only", {})[load.model] = lost


def _fate(load: Load, key: str, path: str) -> tuple[str, str]:
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


def write_placements(load: Load) -> None:
    """Write `placements`, after a verification where one was asked for."""
    for row in load.placement_rows:
        load.state.recorder.add_fact("placements", load.call, load.call, **row)
    load.placement_rows.clear()


def _describe_placements(load: Load, model: Any) -> None:
    sources: dict[str, list[str]] = {}
    for key, planned in load.plans.items():
        sources.setdefault(planned.param, []).append(key)
    tied = dict(getattr(model, "all_tied_weights_keys", None) or {})
    tensors = dict(named_tensors(model))
    for name, tensor in tensors.items():
        module, leaf = _owner(model, name)
        kind, persistent = _kind(module, leaf)
        keys = sources.get(name, [])
        plan = load.plans.get(keys[0]) if keys else None
        origin, because = _origin(load, name, tensor, tensors.get(tied.get(name, "")), persistent)
        if origin == "checkpoint" and plan is not None and plan.operations:
            origin, because = "converted", f"{len(keys)} tensors of the file went into it"
        times = load.times.get(name)
        stored = _stored_dtype(load, keys)
        live = measure.dtype_name(tensor.dtype)
        load.placement_rows.append(
            dict(
                model=load.model,
                param=name,
                kind=kind,
                origin=origin,
                because=because,
                sources=keys or ([tied[name]] if origin == "tied" else []),
                rule=_rule(name, keys, plan),
                operations=plan.operations if plan else [],
                shape=measure.shape_of(tensor),
                expected_shape=load.expected.get(name),
                matches=load.expected.get(name) == measure.shape_of(tensor),
                stored_dtype=stored,
                dtype=live,
                dtype_why=_dtype_why(load, stored, live, origin),
                device=str(tensor.device),
                residence=_residence(module, tensor),
                wait_ns=times.wait_ns if times else None,
                convert_ns=times.convert_ns if times else None,
                place_ns=times.place_ns if times else None,
                verified="not compared",
            )
        )


def _origin(load: Load, name: str, tensor: Any, tied_to: Any, persistent: bool) -> tuple[str, str]:
    if tied_to is not None and tied_to is tensor and name not in load.placed:
        return "tied", "the same storage as its source"
    if name in load.placed and name not in load.mismatched:
        return "checkpoint", "set from the file"
    if tensor.device.type == "meta":
        return "unwritten", "still on meta when the load ended"
    before = load.before_fill.get(name)
    if before is None:
        return "unknown", "made outside the steps that the lab watches"
    if before == (id(tensor), tensor._version):
        return "unwritten", "memory was given to it and nothing wrote into it"
    if persistent:
        return "initialised", "in no file; written by the class's own initialisation"
    return "rebuilt", "not part of any file; computed again by the class"


def _rule(name: str, keys: list[str], plan: Any) -> str | None:
    if plan is None or keys == [name]:
        return None
    return f"{plan.pattern or keys[0]} -> {name} ({plan.rule})"


def _stored_dtype(load: Load, keys: list[str]) -> str | None:
    for key in keys:
        header = load.headers.get(load.file_of.get(key, ""))
        if header is not None:
            entry = header.tensors[key]
            return STORED_DTYPES.get(entry.dtype, entry.dtype)
    return None


def _dtype_why(load: Load, stored: str | None, live: str | None, origin: str) -> str | None:
    if live == load.dtype:
        return load.dtype_why
    if origin in {"rebuilt", "initialised"}:
        return "made in this dtype by the class"
    return "kept as stored" if stored == live else "kept in float32 by the class"


def _residence(module: Any, tensor: Any) -> str:
    if tensor.device.type != "meta":
        return "resident"
    weights = getattr(getattr(module, "_hf_hook", None), "weights_map", None)
    if weights is None:
        return "meta"
    dataset = getattr(weights, "dataset", None)
    return "offloaded_disk" if getattr(dataset, "index", None) else "offloaded_cpu"


def _tell_settings(load: Load, model: Any) -> None:
    effective = {
        "dtype": load.dtype,
        "attn_implementation": getattr(model.config, "_attn_implementation", None),
        "device_map": getattr(model, "hf_device_map", None),
    }
    asked = dict(load.arguments)
    if "torch_dtype" in asked:
        asked.setdefault("dtype", asked["torch_dtype"])
    ignored = IGNORED_LOAD_ARGUMENTS[5]
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
            origin="call" if given and not dropped else ("library" if not given else "call"),
            used=not dropped,
            why=why,
        )


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    return measure.dtype_name(value)
