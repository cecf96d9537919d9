"""What became of a checkpoint's tensors and where a parameter's values came from, in generation 4.

Two proofs of generation 5 do not hold there: initialisation writes through `.data`, which raises no
tensor's version, and buffers are never on meta. So a fresh value is known by the operator that was
seen to write it, and a buffer by having had values as soon as it was built.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tracer.instrument.loads.load_notes import BY_PEFT, Load
from tracer.instrument.loads.shard_reads import Shards
from tracer.schema import SHAPE_MISFIT


def fate(load: Load, shards: Shards, key: str, path: str) -> tuple[str, str]:
    """What became of a tensor of a header, and why."""
    plan = load.plans.get(key)
    if plan is None and key not in shards.asked:
        return "skipped", "the index does not name it, and only what that names is loaded"
    if plan is None and key in shards.quantised:
        return "converted", f"taken by the quantiser {load.quantiser}"
    if plan is None:
        return "unexpected", "no parameter of the model goes by this name, renamed or not"
    is_read = (path, key) in shards.read
    lost = "discarded" if is_read else "skipped"
    if load.file_of.get(key) != path:
        return lost, f"{Path(load.file_of[key]).name} holds the same name and was read later"
    other = load.gave_way_to(key)
    if other is not None:
        return lost, f"{other} goes by the same name, {plan.param}, and is taken in its place"
    if plan.param in load.mismatched:
        return lost, f"{SHAPE_MISFIT}{plan.param}"
    if plan.param in shards.left_in_file:
        what = "read in vain" if is_read else "not read"
        return lost, f"{what}: {plan.param} stays in this file, offloaded to the disk"
    if plan.param in shards.passing:
        return lost, f"{plan.param} is a buffer that no state dict holds"
    if plan.param in shards.replaced:
        return lost, f"set as {plan.param}, then tied to {shards.tied[plan.param]}"
    if plan.param not in load.placed:
        return lost, f"meant for {plan.param}, which was never set"
    if plan.operations:
        targets = load.targets_of(plan.param)
        return "converted", f"{', '.join(plan.operations)} into {', '.join(targets)}"
    return "loaded", f"set as {plan.param}"


def origin(
    load: Load, shards: Shards, name: str, persistent: bool, residence: str
) -> tuple[str, str]:
    """Where the values of a parameter or buffer come from, and what shows it."""
    if name in shards.tied:
        return "tied", "the same storage as its source"
    if name in shards.left_in_file:
        return "checkpoint", "left in its file, which is read at each use"
    if residence == "meta":
        return "unwritten", "still on meta when the load ended"
    if name in load.placed and residence == "offloaded_disk":
        return "checkpoint", "written from the file to the offload folder, read at each use"
    if name in load.placed:
        return "checkpoint", load.set_from
    if name in shards.filled:
        return "initialised", "in no file; written by the class's own initialisation"
    if name in shards.waiting:
        return "unwritten", "memory was given to it and nothing wrote into it"
    if name in shards.real and persistent:
        return "initialised", "in no file; computed as the class built itself, never on meta"
    if name in shards.real:
        return "rebuilt", "not part of any file; computed as the class built itself, never on meta"
    if name in load.of_adapter:
        return "initialised", BY_PEFT
    if load.quantiser is not None:
        return "unknown", f"made by the quantiser {load.quantiser}, in steps that nobody sees"
    return "unknown", "made outside the steps that the lab watches"


def note_ties(shards: Shards, parameters: Iterable[tuple[str, Any]]) -> None:
    """Names that stand for one parameter: each but one is tied to that one.

    Several of them may have been set from the file; the one whose memory is still there stays.
    """
    for parameter, names in shared(parameters):
        _note_group(shards, names, parameter)


def shared(parameters: Iterable[tuple[str, Any]]) -> list[tuple[Any, list[str]]]:
    """Parameters that go by several names, with these names."""
    groups: dict[int, tuple[Any, list[str]]] = {}
    for name, parameter in parameters:
        groups.setdefault(id(parameter), (parameter, []))[1].append(name)
    return [group for group in groups.values() if len(group[1]) > 1]


def _note_group(shards: Shards, names: list[str], parameter: Any) -> None:
    set_ones = [name for name in names if name in shards.addresses]
    address = parameter.data_ptr()
    live = [name for name in set_ones if shards.addresses[name] == address]
    # Tied to one that never got values, what was set is lost.
    is_lost = parameter.device.type == "meta" and len(set_ones) < len(names)
    unset = [name for name in names if name not in set_ones]
    source = (live or (unset if is_lost else set_ones) or names)[0]
    for name in names:
        if name != source:
            shards.tied[name] = source
            if name in shards.addresses and (live or is_lost):
                shards.replaced.add(name)
