"""Tables of a finished load: where every parameter and buffer got its values.

Told once, when the load has ended, as the recorder's own work. Nothing is compared here with the
files' contents (that is `verification.py`); an origin rests on what was seen to happen.
"""

from __future__ import annotations

from typing import Any

from tracer.instrument import measure
from tracer.instrument.loads import devices, load_settings, placements, renames, resolution
from tracer.instrument.loads.folder_facts import folder_of, tell_checkpoint
from tracer.instrument.loads.load_notes import Load
from tracer.instrument.loads.named_tensors import (
    Named,
    named_tensors,
    tied_names,
    without_adapter,
)
from tracer.instrument.targets import ADAPTER_MARK
from tracer.rows import shape_text


def tell_meta(load: Load, model: Any) -> None:
    """Note what `meta_params` will tell: the model as built, before any weight."""
    _note_built(load, named_tensors(model))


def tell_adapter(load: Load, model: Any) -> None:
    """`meta_params` of what an adapter has added to the model since it was built."""
    if getattr(model, ADAPTER_MARK, False):
        added = [
            each
            for each in named_tensors(model)
            if each.name not in load.expected and without_adapter(each.name) not in load.expected
        ]
        _note_built(load, added)
        write_meta(load)


def _note_built(load: Load, named: list[Named]) -> None:
    shapes = {each.name: tuple(each.tensor.shape) for each in named}
    load.expected |= shapes
    sizes = [measure.size_of(each.tensor) for each in named]
    # One tensor under two names takes its bytes once, under the first of them.
    met: set[int] = set()
    for each, size in zip(named, sizes, strict=True):
        if id(each.tensor) not in met:
            met.add(id(each.tensor))
            load.expected_bytes[each.name] = size
    load.meta = {
        "param": [each.name for each in named],
        "kind": [each.kind for each in named],
        "persistent": [each.persistent for each in named],
        "module_class": [type(each.module).__name__ for each in named],
        "shape": [shape_text(shape) for shape in shapes.values()],
        "dtype": [measure.dtype_name(each.tensor.dtype) for each in named],
        "device": [measure.device_name(each.tensor.device) for each in named],
        "size_bytes": sizes,
    }


def write_meta(load: Load) -> None:
    """`meta_params`, once the device map is known; again does nothing."""
    meta, load.meta = load.meta, {}
    if meta:
        names = meta["param"]
        load.state.recorder.add_facts(
            "meta_params",
            load.call,
            len(names),
            model=load.model,
            **meta,
            planned_device=[devices.planned(load, name) for name in names],
        )


def tell(load: Load, model: Any, outer: Load | None) -> None:
    """All tables of a load that ended well."""
    tell_adapter(load, model)
    named = named_tensors(model)
    tied = tied_names(load, named)
    _tell_model(load, model, named, tied)
    placements.note_replaced(load, named, tied)
    tell_checkpoint(load, has_failed=False)
    placements.describe(load, named, tied, renames.passed_over(model)[0])
    if outer is not None:
        placements.hand_out(load, outer, named)
    load_settings.tell(load, model)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        configs = load.state.recorder.notes.setdefault("generation_configs", {})
        configs[load.model] = generation.to_dict()


def _tell_model(load: Load, model: Any, named: list[Named], tied: dict[str, str]) -> None:
    config = model.config
    unique = {id(each.tensor): each for each in named}.values()
    folder, recorder = folder_of(load), load.state.recorder
    origin = resolution.origin_of(recorder, load.asked, folder)
    fetched = resolution.downloaded_bytes(recorder, load.asked, folder)
    recorder.add_fact(
        "models",
        load.call,
        load.call,
        model=load.model,
        class_name=type(model).__name__,
        asked=load.asked,
        hub=origin.hub,
        revision=origin.revision,
        folder=folder,
        from_cache=None if fetched is None else fetched == 0,
        downloaded_bytes=fetched,
        dtype_asked=_dtype_asked(load),
        dtype=load.dtype,
        dtype_why=load.dtype_why,
        attention=getattr(config, "_attn_implementation", None),
        experts=getattr(config, "_experts_implementation", None),
        device_map=getattr(model, "hf_device_map", None),
        tied=tied,
        parameters=sum([each.tensor.numel() for each in unique if each.kind == "parameter"]),
        size_bytes=sum([measure.size_of(each.tensor) for each in unique]),
        training=model.training,
    )


def _dtype_asked(load: Load) -> str | None:
    asked = load.arguments.get("dtype", load.arguments.get("torch_dtype"))
    return None if asked is None else measure.dtype_name(asked)
