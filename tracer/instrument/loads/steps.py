"""From a file's tensor to a parameter, step by step in the loading thread; reads are in `reads.py`.

Planned, submitted, waited for, converted, set or offloaded (core_model_loading.py, 5.24). These run
once a tensor, so each adds only a few numbers to its `Load`.
"""

from __future__ import annotations

import os
from typing import Any, Final

from tracer.instrument.loads import gguf_names, read_rows
from tracer.instrument.loads.load_notes import (
    BATCH,
    IN_ITS_FILE,
    IN_OFFLOAD_FOLDER,
    Load,
    Plan,
)
from tracer.instrument.loads.seen import Seen, told, told_briefly

_NOTHING: Final[list[str]] = []  # of a mere renaming; shared, and left as it is


@told_briefly
def submitted(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`spawn_materialize`: the moment a read is handed to the pool."""
    load.submitted[id(args[1])] = start


@told_briefly
def planned(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`WeightTransform.add_tensor`: the library says which parameter a tensor is for."""
    transform, param, key, pattern, *_ = args
    steps = getattr(transform, "operations", None)
    operations = [_described(step) for step in steps] if steps else _NOTHING
    if load.quantiser is not None and transform.quantization_operation is not None:
        operations = [*operations, type(transform.quantization_operation).__name__]
    plan = param, None if pattern == key else pattern, type(transform).__name__, operations
    if load.packed:
        gguf_names.plan(load, key, Plan(*plan))
    else:
        load.planned.append((key, *plan))


def _described(step: Any) -> str:
    """An operation with the numbers that it was made with, such as `Concatenate(dim=1)`."""
    numbers = {
        name: value
        for name, value in getattr(step, "__dict__", {}).items()
        if isinstance(value, int | tuple) and not name.startswith("_")
    }
    told = ", ".join(f"{name}={value}" for name, value in numbers.items())
    return f"{type(step).__name__}({told})" if told else type(step).__name__


@told_briefly
def awaited(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`materialize_tensors`: the loading thread waits for the workers."""
    load.last_wait = start, end


@told_briefly
def converted(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`convert`: wait and conversion together; the wait is taken out."""
    began, ended = load.last_wait
    wait = ended - began if began >= start else 0
    param = args[1]
    if not result:  # an operation of a quantiser set it by itself, where no call is observed
        load.placed.add(param)
    elif len(result) > 1 or param not in result:
        load.parts[param] = list(result)
    load.conversions_seen.append((param, wait, end - start - wait))


@told_briefly
def placed(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`set_param_for_module`: a finished tensor becomes a parameter."""
    param, info = args[1], args[3]
    load.placings_seen.append((param, end - start))
    # A tensor of another shape is noted as mismatched and not set.
    odd = info.mismatched_keys
    # Where the module has no such parameter nothing was set; set ones are not missing any more.
    is_strange = param in info.unexpected_keys or param in info.missing_keys
    if not is_strange and (not odd or all(entry[0] != param for entry in odd)):
        load.placed.add(param)
    since = load.placed_since = load.placed_since + 1
    # The workers may be far ahead, and writing looks at all reads that wait: the more do, the
    # rarer it is done, else it would take the square of their number.
    if since >= BATCH and since >= len(load.reads) // 4:
        with load.state.own_time():
            read_rows.write(load, is_over=False)
            load.state.recorder.flush_if_due(load.state)


@told
def offloaded(load: Load, seen: Seen) -> None:
    """`offload_and_maybe_resave_param`: a parameter stays on disk, in its file or a new one."""
    param, folder = seen.argument(0, "target_name"), seen.argument(3, "disk_offload_folder")
    load.placed.add(param)
    # One that is written anew has a file of its own name there (integrations/accelerate.py).
    own = os.path.join(folder or "", f"{param}.safetensors")
    is_new = seen.result[param].get("safetensors_file") == own
    load.offloaded[param] = IN_OFFLOAD_FOLDER if is_new else IN_ITS_FILE
