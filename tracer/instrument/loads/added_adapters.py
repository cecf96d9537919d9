"""An adapter that is added to a model which is loaded already: a small load of its own.

`load_adapter` of transformers' models and of PEFT's wrapper (to which `PeftModel.from_pretrained`
hands on). Told are the files of the adapter's folder, its reads, and the parameters that came to be
its own; what the base model has was told when that was loaded. An adapter's folder that is given to
an Auto class is a part of that load, and nothing of this happens.
"""

from __future__ import annotations

import math
import os
from typing import Any

from tracer.instrument import measure
from tracer.instrument.installer import release
from tracer.instrument.loads import at_once, folder_facts, load_facts, loading, placements
from tracer.instrument.loads.load_notes import Load
from tracer.instrument.loads.named_tensors import Named, named_tensors, take
from tracer.instrument.loads.shard_reads import Shards
from tracer.instrument.stages import Call, Observer, open_call
from tracer.instrument.targets import FIVE
from tracer.recorder import Recorder
from tracer.spans import ThreadState


def added(state: ThreadState, call: Call) -> Observer:
    """`load_adapter`, outside of any load."""
    if state.load is not None:
        yield None
        return
    model, asked = call.args[0], call.argument(1, "peft_model_id") or call.kwargs.get("model_id")
    span = open_call(state, call, f"{type(model).__name__}.load_adapter", "from_pretrained")
    name = None if asked is None else os.fspath(asked)
    load = Load(state, span.seq, name, dict(call.kwargs), frozenset(call.kwargs))
    load.model = state.recorder.models.of(model)
    if release() < FIVE or not call.target.module.startswith("transformers"):
        load.shards = Shards(id(model), "", frozenset(), frozenset())  # PEFT reads it whole
    outer = at_once.begin(state, load)
    outcome = yield None
    with state.own_work("facts of the load"):
        if outcome.error is None:
            adapter = call.argument(2, "adapter_name") or "default"
            with state.recorder.guard("placements"):
                _note_finished(load, model, adapter)
        else:
            load_facts.tell_failed(load)
    loading.end_load(load, outer, span, outcome.status, model, load_facts.tell_adapters_own)


def _note_finished(load: Load, model: Any, adapter: str) -> None:
    """Take what the rows need of the parameters that are this adapter's, each of them once."""
    told: set[str] = load.state.recorder.notes.setdefault("adapters", {}).setdefault(
        load.model, set()
    )
    everything = named_tensors(model)
    own = [each for each in everything if _is_of(each, adapter) and each.name not in told]
    told |= {each.name for each in own}
    load_facts.note_adapter(load, take(own))
    load.finished = take(own)
    placements.note_finished(load, own)
    folder_facts.note_folder(load)
    _tell_wrapper(load.state.recorder, load, model, everything)


def _is_of(each: Named, adapter: str) -> bool:
    """PEFT keeps what adapters have by the adapter's name: `lora_A.default.weight`."""
    return adapter in each.name.split(".")


def _tell_wrapper(recorder: Recorder, load: Load, model: Any, everything: list[Named]) -> None:
    """The row of `models` of PEFT's wrapper; a model of transformers has its own already."""
    wrappers: set[str | None] = recorder.notes.setdefault("wrappers", set())
    if load.model in wrappers or not hasattr(model, "get_base_model"):
        return
    wrappers.add(load.model)
    unique = {each.identity: each for each in take(everything)}.values()
    values = [math.prod(each.shape) for each in unique if each.kind == "parameter"]
    row = {
        "model": load.model,
        "class_name": type(model).__name__,
        "asked": load.asked,
        "folder": load.folder,
        "dtype": measure.dtype_name(getattr(model, "dtype", None)),
        "parameters": sum(values),
        "size_bytes": sum(each.size_bytes for each in unique),
        "training": model.training,
    }
    # After the row of its base, which waits too.
    recorder.add_later("models", lambda: recorder.add_fact("models", load.call, load.call, **row))
