"""An adapter's weights in generation 4, which PEFT reads whole and fills in by itself.

`load_adapter` (integrations/peft.py, 4.51.3 and 4.57.6) asks two functions of PEFT for it. What was
filled is told by the parameters themselves: their memory is another one, or was written to. Single
reads can't be seen in there, so rows of `tensor_loads` have no times. Since generation 5 an
adapter's tensors take the way of all others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from tracer.instrument import measure
from tracer.instrument.loads import checkpoint_files
from tracer.instrument.loads.load_notes import Load, Plan
from tracer.instrument.loads.shard_reads import Piece, Shards
from tracer.instrument.stages import Call, Observer, open_span
from tracer.spans import ThreadState

_FILES: Final = ("adapter_model.safetensors", "adapter_model.bin")


def read(state: ThreadState, call: Call) -> Observer:
    """`load_peft_weights`: one file, read into a dict of tensors."""
    span = open_span(state, call, "weights of the adapter")
    outcome = yield None
    load: Load | None = state.load
    if load is not None and load.shards is not None and outcome.error is None:
        with state.own_work("headers of the checkpoint"):
            _note_file(load, call, outcome.result)
            load.keys |= {id(tensor): key for key, tensor in outcome.result.items()}
    state.close(span, outcome.status)


def _note_file(load: Load, call: Call, tensors: dict[str, Any]) -> None:
    """The local file that the tensors came out of; an id of the hub is not followed."""
    folder = Path(os.fspath(call.argument(0, "model_id")), call.kwargs.get("subfolder") or "")
    path = next((str(folder / name) for name in _FILES if (folder / name).is_file()), None)
    if path is None:
        return
    load.files.append(path)
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
                tensor = given.get(name.replace(added, ""))
                if tensor is not None and before.get(name) not in (None, _state(one)):
                    _note_filled(load, load.shards, span.seq, name, tensor, one)


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
