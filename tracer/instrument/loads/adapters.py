"""An adapter's weights in generation 4, which PEFT reads whole and fills in by itself.

`load_adapter` (integrations/peft.py, 4.51.3 and 4.57.6) asks two functions of PEFT for it. What was
filled is told by the parameters themselves: their memory is another one, or was written to. Single
reads can't be seen in there, so rows of `tensor_loads` have no times. Since generation 5 an
adapter's tensors take the way of all others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tracer.instrument import measure
from tracer.instrument.loads import checkpoint_files
from tracer.instrument.loads.load_notes import Load, Plan
from tracer.instrument.loads.shard_reads import Piece, Shards
from tracer.instrument.stages import Call, Observer, open_span
from tracer.listing import ADAPTERS
from tracer.spans import ThreadState


def read(state: ThreadState, call: Call) -> Observer:
    """`load_peft_weights`: one file, read into a dict of tensors."""
    span = open_span(state, call, "weights of the adapter")
    outcome = yield None
    load: Load | None = state.load
    if load is not None and load.shards is not None:
        with state.own_work("headers of the checkpoint"):
            path = _file_of(call)
            if path is not None:
                load.files.append(path)  # one that can't be read as well: its folder tells why
            if outcome.error is None:
                _note_read(load, path, outcome.result)
    state.close(span, outcome.status)


def _file_of(call: Call) -> str | None:
    """The local file that the tensors come out of; an id of the hub is not followed."""
    folder = Path(os.fspath(call.argument(0, "model_id")), call.kwargs.get("subfolder") or "")
    return next((str(folder / name) for name in ADAPTERS if (folder / name).is_file()), None)


def _note_read(load: Load, path: str | None, tensors: dict[str, Any]) -> None:
    load.keys |= {id(tensor): key for key, tensor in tensors.items()}
    if path is not None:
        load.access[path] = "bytes"
        checkpoint_files.read_headers(load, [path])
        load.file_of.update(dict.fromkeys(tensors, path))


def filled(state: ThreadState, call: Call) -> Observer:
    """`set_peft_model_state_dict`: the model's new parameters take the values that were read."""
    load: Load | None = state.load
    if load is None or load.shards is None:
        yield None
        return
    model, given = call.args[:2]
    added = f".{call.argument(2, 'adapter_name') or 'default'}"
    with state.own_work("parameters of the adapter"):
        before = {name: _state(one) for name, one in model.named_parameters() if added in name}
    span = open_span(state, call, "weights of the adapter")
    outcome = yield None
    state.close(span, outcome.status)
    if outcome.error is None:
        with state.own_work("parameters of the adapter"):
            for name, one in model.named_parameters():
                tensor = _given_for(name.replace(added, ""), given)
                if tensor is not None and before.get(name) not in (None, _state(one)):
                    _note_filled(load, load.shards, span.seq, name, tensor, one)


def _given_for(name: str, given: dict[str, Any]) -> Any:
    """The tensor for a parameter: in the file some have no suffix, and no `modules_to_save`."""
    plain = name.replace(".modules_to_save.", ".")
    names = (name, plain, name.removesuffix(".weight"))
    return next((given[one] for one in names if one in given), None)


def _state(parameter: Any) -> tuple[int, int, int]:
    return id(parameter), parameter.data_ptr(), parameter._version


def _note_filled(
    load: Load, shards: Shards, parent: int, param: str, tensor: Any, live: Any
) -> None:
    key = load.keys.get(id(tensor))
    load.placed.add(param)
    if key is None:  # given by the user
        return
    path, now = load.file_of.get(key), load.state.recorder.clock()
    load.plans[key] = Plan(param, None, "PEFT's names", [])
    if path not in load.headers:
        form = measure.shape_of(tensor), measure.dtype_name(tensor.dtype), measure.size_of(tensor)
        load.given[key] = form
    piece = Piece(
        load.state.recorder.next_seq(),
        parent,
        param,
        key,
        path,
        now,
        live.dtype,
        load.state.thread,
        device=live.device,
        is_kept=True,
    )
    shards.read.add((path, key))
    shards.done.append(piece)
