"""A load as it goes on: from a name to files, the model on meta, weights, what no file held.

Observers only note numbers and names; `load_facts.py` makes tables of them when the load ends.
Function and line numbers were read in transformers 5.24.0.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from typing import Any

from tracer.instrument import measure, memory
from tracer.instrument.hooks import every_module
from tracer.instrument.loads import (
    at_once,
    checkpoint_files,
    folder_troubles,
    gguf_names,
    load_facts,
    names_apart,
    part_settings,
    placements,
    quantisers,
    read_rows,
    written,
)
from tracer.instrument.loads.load_notes import JOBS, Load
from tracer.instrument.stages import Call, Observer, open_call, open_span
from tracer.instrument.targets import HAD_A_PLACE, READ_IN_PART, READ_WHOLE, WAS_SET
from tracer.instrument.verifying import verification
from tracer.recorder import Recorder
from tracer.spans import Span, ThreadState


def pipeline_call(state: ThreadState, call: Call) -> Observer:
    """`pipeline(...)`: what it loads are calls below it."""
    span = open_call(state, call, "pipeline", "pipeline")
    outer, state.pipeline = state.pipeline, dict(call.kwargs)
    outcome = yield None
    state.pipeline = outer
    state.close(span, outcome.status)


def part_call(state: ThreadState, call: Call) -> Observer:
    """`from_pretrained` of an Auto class, tokenizer, processor or configuration."""
    span = open_call(state, call, _class_name(call), "from_pretrained")
    outer = state.asked
    if call.target.module.endswith("auto_factory"):
        state.asked = dict(call.kwargs)  # what the class below is given is not all the user's
    is_asked = sum(one.name.endswith(".from_pretrained") for one in state.spans) == 1
    outcome = yield None
    state.asked = outer
    if outcome.error is not None:
        is_model = call.target.module.endswith("auto_factory")
        with state.own_work("folder that could not be loaded"):
            asked = call.argument(1, "pretrained_model_name_or_path")
            folder_troubles.tell_broken(state.recorder, asked, call.kwargs, with_weights=is_model)
    if outcome.error is None and call.target.stage in {"tokenizer", "processor"}:
        _remember_tokenizer(state.recorder, outcome.result)
        if is_asked:  # of what the library loads for itself, the whole tells
            with state.own_work("settings of the load"), state.recorder.guard(call.target.name):
                part_settings.tell(state.recorder, span.seq, outcome.result, dict(call.kwargs))
    state.close(span, outcome.status)


def _remember_tokenizer(recorder: Recorder, loaded: Any) -> None:
    tokenizer = getattr(loaded, "tokenizer", loaded)
    folder = getattr(tokenizer, "name_or_path", None)
    if folder and hasattr(tokenizer, "convert_ids_to_tokens"):
        recorder.notes.setdefault("tokenizers", {})[str(folder)] = tokenizer


def _class_name(call: Call) -> str:
    """`Class.from_pretrained` of the class that was asked, not of the one that defines it."""
    owner = call.args[0] if call.args and isinstance(call.args[0], type) else None
    return f"{owner.__name__}.{call.target.attribute}" if owner else call.target.name


def model_call(state: ThreadState, call: Call) -> Observer:
    """`PreTrainedModel.from_pretrained`: one load, whose facts are told when it ends."""
    recorder = state.recorder
    span = open_call(state, call, _class_name(call), "from_pretrained")
    asked = call.argument(1, "pretrained_model_name_or_path")
    name = None if asked is None else os.fspath(asked)
    arguments = dict(call.kwargs) if state.asked is None else state.asked
    load = Load(state, span.seq, name, arguments)
    load.by_user = _given_by_the_user(state, arguments)
    load.built_class = call.args[0] if call.args else None
    outer = at_once.begin(state, load)
    memory.sample_memory(state, "resolve", "before the load")
    outcome = yield None
    model = outcome.result[0] if isinstance(outcome.result, tuple) else outcome.result
    with state.own_work("facts of the load"):
        memory.sample_memory(state, "tensor_load", "after the load")
        if outcome.error is None:
            load.model = recorder.models.of(model)
            with recorder.guard("placements"):
                load_facts.note_finished(load, model, outer)
        else:
            load_facts.tell_failed(load)
    end_load(load, outer, span, outcome.status, model, load_facts.tell)


def end_load(
    load: Load,
    outer: Load | None,
    span: Span,
    status: str,
    model: Any,
    tell: Callable[[Load], None],
) -> None:
    """Close a load's call and, where it went well, verify it and put off its rows.

    Args:
        load: The load.
        outer: The one round it.
        span: The load's call.
        status: How the call ended.
        model: What was loaded, or what an adapter was added to.
        tell: Makes the rows.
    """
    state = load.state
    load_facts.let_go(load)
    at_once.end(state, load, outer)
    state.close(span, status, model=load.model)
    if status == "ok":
        if state.recorder.options.verify_weights:
            with state.own_time():
                placements.describe(load)
            verification.verify(load, model)
        state.recorder.add_later("facts of the load", functools.partial(tell, load))
        forget = functools.partial(read_rows.forget, load)
        state.recorder.add_later("facts of the load", forget)
    state.recorder.flush_if_due(state)


def _given_by_the_user(state: ThreadState, arguments: dict[str, Any]) -> frozenset[str]:
    """Names of arguments that the user gave; a pipeline adds some of its own."""
    if state.pipeline is not None:
        given = {**state.pipeline, **(state.pipeline.get("model_kwargs") or {})}
        return frozenset(name for name in arguments if name in given)
    return frozenset(() if arguments.get("_from_pipeline") else arguments)


def dtype(state: ThreadState, call: Call) -> Observer:
    """`_get_dtype`: which dtype wins, and where it comes from."""
    span = open_span(state, call)
    asked = call.argument(0, "dtype")
    in_config = getattr(call.argument(2, "config"), "dtype", None)
    outcome = yield None
    load = state.load
    if outcome.error is None and load is not None:
        load.dtype = measure.dtype_name(outcome.result[1])
        given = load.dtype_asked
        if given is not None and given != "auto":
            load.dtype_why = "argument"
        elif asked == "auto" and in_config is not None:
            load.dtype_why = configured_by(load)
        elif load.arguments.get("gguf_file") is not None:
            load.dtype_why = "default of the library for GGUF"
        else:
            load.dtype_why = "first floating tensor of the checkpoint"
        state.close(span, "ok", summary={"dtype": load.dtype, "why": load.dtype_why})
    else:
        state.close(span, outcome.status)


def configured_by(load: Load) -> str:
    """Where the configuration in force comes from: the user's own object, or the folder."""
    is_own = load.arguments.get("config") is not None and "config" in load.by_user
    return "config object" if is_own else "config.json"


def init_context(state: ThreadState, call: Call) -> Observer:
    """`get_init_context`: right after it, the model's class builds itself on meta."""
    outcome = yield None
    load = state.load
    if load is not None and outcome.error is None and load.build_span is None:
        # Built from here to the first question asked of the model: the class's own __init__.
        load.build_span = gguf_names.open_build(state, call.args[0], "built on meta")


def built(state: ThreadState, call: Call) -> Observer:
    """`_get_dtype_plan`: the first question asked of the built model, still without values."""
    end_build(state, call.args[0])
    yield None


def end_build(state: ThreadState, model: Any) -> None:
    """The class has built its model; before any weight, what it has is told."""
    load = state.load
    if load is not None and load.build_span is not None:
        state.close(load.build_span, summary={"modules": len(list(every_module(model)))})
        load.build_span = None
        with state.own_work("parameters on meta"):
            load.model = state.recorder.models.of(model)
            load.announced = dict(getattr(model, "all_tied_weights_keys", None) or {})
            load_facts.tell_meta(load, model)


def weights(state: ThreadState, call: Call) -> Observer:
    """`convert_and_load_state_dict_in_model`: all reads, conversions and placements."""
    load = state.load
    state_dict = call.argument(1, "state_dict")
    if load is not None:
        with state.own_work("headers of the checkpoint"):
            load_facts.write_meta(load)
            if load.weights_seq >= 0:  # an adapter's weights come after those of its base
                read_rows.write(load, is_over=True)
                read_rows.forget(load)
            checkpoint_files.note_unseen_access(load)
            checkpoint_files.read_headers(load, load.files)
            checkpoint_files.note_given(load, state_dict)
            identities = list(map(id, state_dict.values()))
            keys = (gguf_names.in_file(load, key)[0] for key in state_dict)
            load.keys.update(zip(identities, keys if load.packed else state_dict, strict=True))
            JOBS.update(dict.fromkeys(identities, load))
    span = open_span(state, call, "weights read and placed")
    if load is not None:
        load.weights_seq = span.seq
    outcome = yield None
    if load is not None and outcome.error is None:
        info = outcome.result[0]
        load.mismatched |= {entry[0] for entry in info.mismatched_keys}
        _note_done(state.recorder, call.argument(0, "model"), info.missing_keys)
    totals = (0, 0, 0) if load is None else load.total_times()
    names = ("wait_ns", "convert_ns", "place_ns")
    summary = {"tensors": len(state_dict)} | dict(zip(names, totals, strict=True))
    state.close(span, outcome.status, summary=summary)
    memory.sample_memory(state, "tensor_load", "after the weights")


def _note_done(recorder: Recorder, model: Any, missing: Collection[str]) -> None:
    """What else must have been seen: nothing, where no tensor of the files fits the model."""
    done = recorder.targets_done
    for name, one in model.named_parameters():
        if name not in missing:
            is_cut = hasattr(one, "placements")  # a DTensor
            done[HAD_A_PLACE] += 1
            done[READ_IN_PART if is_cut else READ_WHOLE] += 1
            if not is_cut and one.device.type != "meta":
                done[WAS_SET] += 1
                return  # mostly the first one


def finalized(state: ThreadState, call: Call) -> Observer:
    """`_finalize_model_loading`: ties, fresh values, report; its parts are spans of their own."""
    span = open_span(state, call, "what no file held")
    outcome = yield None
    load = state.load
    info = call.argument(2, "loading_info")
    summary = None
    if load is not None and info is not None:
        load.mismatched |= {entry[0] for entry in info.mismatched_keys}
        summary = names_apart.compare(info.missing_keys, info.unexpected_keys)
    state.close(span, outcome.status, summary=summary)


def moved_missing(state: ThreadState, call: Call) -> Observer:
    """`_move_missing_keys_from_meta_to_device`: memory without values for what no file held.

    What writes into it afterwards raises the tensor's version or replaces it, so comparing before
    and after `_initialize_missing_keys` tells fresh values from memory that nobody wrote.
    """
    span = open_span(state, call)
    load, model = state.load, call.args[0]
    made = set() if load is None else quantisers.made_so_far(load, model)
    outcome = yield None
    if load is not None and outcome.error is None:
        with state.own_work("memory without values"):
            for each in quantisers.unread(load, model):
                if id(each.tensor) in made:
                    load.made.add(each.name)
                else:
                    load.before_fill[each.name] = written.state_of(each.tensor)
    state.close(span, outcome.status)
