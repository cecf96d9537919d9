"""Tables of a finished load: where every parameter and buffer got its values.

Told once, when the load has ended, as the recorder's own work. Nothing is compared here with the
files' contents (that is `verification.py`); an origin rests on what was seen to happen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracer.instrument import measure, placements
from tracer.instrument.folder_facts import folder_of, tell_checkpoint
from tracer.instrument.installer import release
from tracer.instrument.reads import Load
from tracer.instrument.targets import IGNORED_LOAD_ARGUMENTS
from tracer.rows import shape_text


def tell_meta(load: Load, model: Any) -> None:
    """`meta_params`: the model as built, before any weight."""
    named = placements.named_tensors(model)
    load.expected = {each.name: tuple(each.tensor.shape) for each in named}
    # One tensor under two names takes its bytes once.
    once = {id(each.tensor): each for each in reversed(named)}.values()
    load.expected_bytes = {each.name: measure.size_of(each.tensor) for each in once}
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
    tell_checkpoint(load, has_failed=False)
    placements.describe(load, model, named)
    _tell_settings(load, model)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        configs = load.state.recorder.notes.setdefault("generation_configs", {})
        configs[load.model] = generation.to_dict()


def _tell_model(load: Load, model: Any, named: list[placements.Named]) -> None:
    config = model.config
    unique = {id(each.tensor): each for each in named}.values()
    folder = folder_of(load)
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
