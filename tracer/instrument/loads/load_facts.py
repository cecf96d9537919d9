"""Tables of a finished load: where every parameter and buffer got its values.

What they need of the model is taken when the load ends, in plain values; rows are made of it when
rows are next handed over, mostly after the user's call. Nothing is compared here with the files'
contents (that is `verification.py`); an origin rests on what was seen to happen.
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any

from tracer.instrument import measure
from tracer.instrument.loads import (
    devices,
    folder_facts,
    load_settings,
    placements,
    read_rows,
    renames,
    resolution,
    shard_rows,
)
from tracer.instrument.loads.load_notes import JOBS, Load
from tracer.instrument.loads.named_tensors import (
    Taken,
    named_tensors,
    take,
    tied_names,
    without_adapter,
)
from tracer.instrument.targets import ADAPTER_MARK
from tracer.rows import shape_text


def tell_meta(load: Load, model: Any) -> None:
    """Note what `meta_params` will tell: the model as built, before any weight."""
    _note_built(load, take(named_tensors(model)))


def tell_adapter(load: Load, model: Any) -> None:
    """`meta_params` of what an adapter has added to the model since it was built."""
    if getattr(model, ADAPTER_MARK, False):
        added = [
            each
            for each in take(named_tensors(model))
            if each.name not in load.expected and without_adapter(each.name) not in load.expected
        ]
        note_adapter(load, added)


def note_adapter(load: Load, added: list[Taken]) -> None:
    """`meta_params` of an adapter's own parameters."""
    load.of_adapter = {each.name for each in added}
    _note_built(load, added)
    write_meta(load)


def _note_built(load: Load, built: list[Taken]) -> None:
    load.expected |= {each[0]: each for each in built}
    load.meta = built


def write_meta(load: Load) -> None:
    """`meta_params`, once the device map is known; again does nothing."""
    meta, load.meta = load.meta, []
    if meta:
        tell = functools.partial(_tell_meta, load, load.model, meta)
        load.state.recorder.add_later("meta_params", tell)


def _tell_meta(load: Load, model: str | None, built: list[Taken]) -> None:
    load.state.recorder.add_facts(
        "meta_params",
        load.call,
        len(built),
        model=model,
        param=[each.name for each in built],
        kind=[each.kind for each in built],
        persistent=[each.persistent for each in built],
        module_class=[each.module_class.__name__ for each in built],
        shape=[shape_text(each.shape) for each in built],
        dtype=[measure.dtype_name(each.dtype) for each in built],
        device=[measure.device_name(each.device) for each in built],
        size_bytes=[each.size_bytes for each in built],
        planned_device=[devices.planned(load, each.name) for each in built],
    )


def note_finished(load: Load, model: Any, outer: Load | None) -> None:
    """Take what the rows of a load that ended well need of its model, which may change or go."""
    write_meta(load)
    tell_adapter(load, model)
    named = named_tensors(model)
    load.finished = take(named)
    load.may_be_missing = renames.may_be_missing(model)
    placements.note_finished(load, named)
    if outer is not None:
        placements.hand_out(load, outer, named)
    folder_facts.note_folder(load)
    _note_model(load, model)
    load_settings.tell(load, model)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        configs = load.state.recorder.notes.setdefault("generation_configs", {})
        configs[load.model] = generation.to_dict()


def tell(load: Load) -> None:
    """All rows of a load that ended well, out of what was noted by then."""
    guard = load.state.recorder.guard
    _tell_reads(load)
    tied: dict[str, str] = {}
    with guard("models"):
        tied = tied_names(load, load.finished)
        _tell_model(load, tied)
    with guard("checkpoint_tensors"):
        placements.note_replaced(load, tied)
        folder_facts.tell_checkpoint(load)
    _tell_placements(load)


def tell_adapters_own(load: Load) -> None:
    """Rows of an adapter that was added to a loaded model."""
    guard = load.state.recorder.guard
    _tell_reads(load)
    with guard("checkpoint_tensors"):
        folder_facts.tell_checkpoint(load)
    _tell_placements(load)


def _tell_reads(load: Load) -> None:
    with load.state.recorder.guard("tensor_loads"):
        read_rows.write(load, is_over=True)
        shard_rows.write(load, is_over=True)


def _tell_placements(load: Load) -> None:
    with load.state.recorder.guard("placements"):
        placements.describe(load)
        placements.write(load)


def let_go(load: Load) -> None:
    """The load is over: its jobs are nobody's any more."""
    for identity in load.keys:
        JOBS.pop(identity, None)
    load.keys.clear()


def tell_failed(load: Load) -> None:
    """What a load that failed has come to, at once: files and memory tell the cause now."""
    write_meta(load)
    _tell_reads(load)
    with load.state.recorder.guard("checkpoint_tensors"):
        folder_facts.tell_failed(load)


def _note_model(load: Load, model: Any) -> None:
    config, recorder = model.config, load.state.recorder
    folder = load.folder
    origin = resolution.origin_of(recorder, load.asked, folder)
    fetched = resolution.downloaded_bytes(recorder, load.asked, folder)
    load.about = {
        "class_name": type(model).__name__,
        "hub": origin.hub,
        "revision": origin.revision,
        "from_cache": None if fetched is None else fetched == 0,
        "downloaded_bytes": fetched,
        "attention": getattr(config, "_attn_implementation", None),
        "experts": getattr(config, "_experts_implementation", None),
        "device_map": getattr(model, "hf_device_map", None),
        "training": model.training,
    }


def _tell_model(load: Load, tied: dict[str, str]) -> None:
    unique = {each.identity: each for each in load.finished}.values()
    parameters = [math.prod(each.shape) for each in unique if each.kind == "parameter"]
    load.state.recorder.add_fact(
        "models",
        load.call,
        load.call,
        model=load.model,
        asked=load.asked,
        folder=load.folder,
        dtype_asked=_dtype_asked(load),
        dtype=load.dtype,
        dtype_why=load.dtype_why,
        tied=tied,
        parameters=sum(parameters),
        size_bytes=sum([each.size_bytes for each in unique]),
        **load.about,
    )


def _dtype_asked(load: Load) -> str | None:
    asked = load.dtype_asked
    if isinstance(asked, dict):  # one for each part of the configuration
        return json.dumps({part: measure.dtype_name(one) for part, one in asked.items()})
    return None if asked is None else measure.dtype_name(asked)
