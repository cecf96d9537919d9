"""A load in generation 4: names matched and fresh values written first, then shard by shard.

Observers only note numbers and names, as in `loading.py`; what is the same there and in
generation 5 stays there. Read in transformers 4.51.3 and 4.57.6, modeling_utils.py.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracer.instrument import measure, memory
from tracer.instrument.loads import (
    checkpoint_files,
    gguf_names,
    load_facts,
    loading,
    names_apart,
    quantisers,
    shard_facts,
    shard_reads,
    shard_rows,
)
from tracer.instrument.loads.load_notes import JOBS, Load, Plan
from tracer.instrument.loads.named_tensors import named_tensors
from tracer.instrument.loads.shard_reads import Shard, Shards, TimedFile
from tracer.instrument.loads.writes import watched_writes
from tracer.instrument.stages import Call, Observer, open_span
from tracer.instrument.targets import WAS_SET
from tracer.spans import ThreadState


def dtype(state: ThreadState, call: Call) -> Observer:
    """`_get_dtype`, earlier `_get_torch_dtype`: without an argument the library's default wins."""
    span = open_span(state, call)
    asked, config = call.args[1], call.args[3]
    in_config = vars(config).get("dtype", vars(config).get("torch_dtype"))
    outcome = yield None
    load = state.load
    if load is None or outcome.error is not None:
        state.close(span, outcome.status)
        return
    load.dtype = measure.dtype_name(outcome.result[1] or sys.modules["torch"].get_default_dtype())
    if asked is None:
        load.dtype_why = "default of the library"
    elif asked != "auto":
        load.dtype_why = "argument"
    elif in_config is not None:
        load.dtype_why = loading.configured_by(load)
    else:
        load.dtype_why = "first floating tensor of the checkpoint"
    state.close(span, "ok", summary={"dtype": load.dtype, "why": load.dtype_why})


def tied(state: ThreadState, call: Call) -> Observer:
    """`tie_weights`: the first question asked of the built model, and again after the weights."""
    load, model = state.load, call.args[0]
    if load is not None and load.build_span is not None:
        loading.end_build(state, model)
        with state.own_work("names of the built model"):
            load.shards = _built(model)
    span = open_span(state, call)
    outcome = yield None
    state.close(span, outcome.status)
    shards = None if load is None else load.shards
    if shards is None or id(model) != shards.root:
        return
    with state.own_work("tied names"):
        parameters = list(model.named_parameters(remove_duplicate=False))
        if shards.is_set:
            shard_facts.note_ties(shards, parameters)
        else:
            for _, names in shard_facts.shared(parameters):
                shards.undecided.update(names)


def _built(model: Any) -> Shards:
    named = named_tensors(model)
    return Shards(
        root=id(model),
        prefix=f"{model.base_model_prefix}.",
        real=frozenset(each.name for each in named if each.tensor.device.type != "meta"),
        passing=frozenset(each.name for each in named if not each.persistent),
    )


def weights(state: ThreadState, call: Call) -> Observer:
    """`_load_pretrained_model`: from the names of the files to a model that has its weights."""
    load: Load | None = state.load
    shards = None if load is None else load.shards
    files = call.argument(3, "checkpoint_files") or ()
    if load is not None:
        with state.own_work("headers of the checkpoint"):
            _note_quantiser(load, call)
            load_facts.write_meta(load)
            checkpoint_files.read_headers(load, files)
    span = open_span(state, call)
    if load is not None:
        load.weights_seq = span.seq
    if load is not None and shards is not None and files and call.argument(2, "state_dict"):
        shards.whole_file = str(files[0])  # GGUF: its tensors come whole, out of one file
        load.access[shards.whole_file] = "mmap"
    outcome = yield None
    summary = None
    if load is not None and outcome.error is None:
        _, missing, unexpected, mismatched, index, _ = outcome.result
        load.mismatched = set(mismatched)
        if shards is not None:
            shards.left_in_file = set(index or ()) - load.placed
            shards.is_set = True
            planned = {plan.param for plan in load.plans.values()}
            state.recorder.targets_done[WAS_SET] += bool(planned - set(index or ()))
        summary = {
            "missing": len(missing),
            "unexpected": len(unexpected),
            "mismatched": len(mismatched),
        }
    state.close(span, outcome.status, summary=summary)
    memory.sample_memory(state, "tensor_load", "after the weights")


def _note_quantiser(load: Load, call: Call) -> None:
    """Once the class had built itself, a quantiser has put other modules in its place."""
    quantiser = call.kwargs.get("hf_quantizer")
    if quantiser is not None:
        load.quantiser = quantisers.method_of(quantiser)
        load_facts.tell_meta(load, call.argument(1, "model"))


def renamed(state: ThreadState, call: Call) -> Observer:
    """`_get_key_renaming_mapping`: where each checkpoint tensor is to go."""
    span = open_span(state, call)
    outcome = yield None
    load = state.load
    if load is not None and load.shards is not None and outcome.error is None:
        names: Mapping[str, str] = outcome.result
        asked = call.argument(1, "checkpoint_keys")
        load.shards.asked = frozenset(one for key in asked for one in gguf_names.in_file(load, key))
        patterns = tuple(call.argument(2, "key_mapping") or ())
        prefixed = bool(call.argument(3, "loading_base_model_from_task_state_dict"))
        prefixed |= bool(call.argument(4, "loading_task_model_from_base_state_dict"))
        held = Counter(key for header in load.headers.values() for key in header.tensors)
        for key, param in names.items():
            load.shards.key_of[param] = gguf_names.in_file(load, key)[0]
            if param in load.expected:
                gguf_names.plan(load, key, _plan(key, param, patterns, prefixed))
                if held[key] > 1:
                    load.shards.undecided.add(param)
    state.close(span, outcome.status)


def _plan(key: str, param: str, patterns: tuple[str, ...], prefixed: bool) -> Plan:
    if key == param:
        return Plan(param, None, "same name", [])
    pattern = next((one for one in patterns if re.search(one, key)), None)
    if pattern is not None:
        return Plan(param, pattern, "key_mapping", [])
    return Plan(param, None, "base_model_prefix" if prefixed else "the class's own renaming", [])


def compared(state: ThreadState, call: Call) -> Observer:
    """`_find_missing_and_unexpected_keys`: names of the model against names of the files."""
    span = open_span(state, call)
    outcome = yield None
    summary = None
    if outcome.error is None:
        missing, unexpected = outcome.result
        load = state.load
        key_of = {} if load is None or load.shards is None else load.shards.key_of
        summary = names_apart.compare(missing, [key_of.get(name, name) for name in unexpected])
    state.close(span, outcome.status, summary=summary)


def moved_missing(state: ThreadState, call: Call) -> Observer:
    """`_move_missing_keys_from_meta_to_cpu`: memory without values for what no file holds."""
    span = open_span(state, call)
    outcome = yield None
    shards = None if state.load is None else state.load.shards
    if shards is not None and outcome.error is None:
        for name in call.argument(1, "missing_keys"):
            if name not in shards.real:
                shards.waiting[name] = _address(call.args[0], name)
    state.close(span, outcome.status)


def initialised(state: ThreadState, call: Call) -> Observer:
    """`_initialize_missing_keys`: which of that memory is written, by any of torch's operators."""
    span = open_span(state, call)
    shards = None if state.load is None else state.load.shards
    if shards is None or not shards.waiting:
        outcome = yield None
    else:
        with watched_writes(state.recorder) as written:
            outcome = yield None
        for name, address in shards.waiting.items():
            now = _address(call.args[0], name)
            if now != address or address in written:
                shards.filled.add(name)
    state.close(span, outcome.status)


def _address(model: Any, name: str) -> int:
    address: int = model.get_parameter_or_buffer(name).untyped_storage().data_ptr()
    return address


def in_parallel(state: ThreadState, call: Call) -> Observer:
    """`load_shard_files_with_threadpool`: each shard becomes a job of a worker thread."""
    load, jobs = state.load, call.argument(0, "args_list")
    span = open_span(state, call)
    if load is not None:
        load.weights_seq = span.seq
        JOBS.update((id(job), load) for job in jobs)
    outcome = yield None
    for job in jobs:
        JOBS.pop(id(job), None)
    state.close(span, outcome.status)


def shard_file(state: ThreadState, call: Call) -> Observer:
    """`load_shard_file`: one shard, in the loading thread or as a worker's job."""
    span = open_span(state, call, Path(call.args[0][0]).name or "tensors that came whole")
    outcome = yield None
    state.close(span, outcome.status)
    if state.load is not None and state is not state.load.state:  # the worker's job is done
        state.load, state.call, state.top = None, -1, -1


def opened_file(state: ThreadState, call: Call) -> Observer:
    """`safe_open`: for a look at the header, or for the tensors, whose reads are then timed."""
    outcome = yield from checkpoint_files.opened_file(state, call)
    shard = shard_reads.current(state.load)
    if shard is not None and outcome.error is None:
        outcome.result = TimedFile(outcome.result, shard)


def shard_weights(state: ThreadState, call: Call) -> Observer:
    """`_load_state_dict_into_meta_model`: one file's tensors, read, cast and set in turn."""
    load: Load | None = state.load
    path = str(call.argument(2, "shard_file"))
    count = len(call.argument(1, "state_dict"))
    span = open_span(state, call, f"weights of {Path(path).name or 'what came whole'}")
    if load is None or load.shards is None:
        outcome = yield None
        state.close(span, outcome.status)
        return
    if load.read_source is None:
        load.read_source = state.recorder.places.source(call.function)
    shards, ident = load.shards, threading.get_ident()
    shard = Shard(load, shards, span.seq, path or shards.whole_file)
    shard.prefix = "" if id(call.args[0]) == shards.root else shards.prefix
    shard.is_cut = call.kwargs.get("device_mesh") is not None
    shard.is_quantised = call.kwargs.get("hf_quantizer") is not None
    if shard.is_quantised:
        state.recorder.fault(
            "modeling_utils._load_state_dict_into_meta_model",
            "a quantiser sets the parameters itself: how it makes them was not observed",
        )
    shards.reading[ident] = shard
    outcome = yield None
    del shards.reading[ident]
    shard.drop()
    state.close(span, outcome.status, summary={"tensors": count})
    if state is load.state:
        shard_rows.write(load, is_over=False)
        state.recorder.flush_if_due(state)
