"""`placements`: where every parameter and buffer of a finished model got its values.

An origin rests on what was seen to happen; nothing is compared with the files' contents here
(that is `verification.py`).
"""

from __future__ import annotations

import itertools
import operator
import weakref
from typing import Any, Final

from tracer.formats.entries import dtype_name
from tracer.instrument import measure
from tracer.instrument.loads import extremes, shard_facts, written
from tracer.instrument.loads.load_notes import BY_PEFT, NO_TIMES, Inner, Load, Plan
from tracer.instrument.loads.named_tensors import (
    Named,
    Taken,
    residence,
    tied_names,
    without_adapter,
)
from tracer.rows import names_text, shape_text
from tracer.schema import CLASS_EXPECTS


def write(load: Load) -> None:
    """Hand over the rows of `placements`."""
    rows = load.placement_rows
    # A verification tells more of the tensors that it compared.
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    columns: dict[str, list[Any]] = {name: [] for name in names}
    if rows and all(len(row) == len(names) for row in rows):
        cells = zip(*map(operator.itemgetter(*names), rows), strict=True)
        columns = dict(zip(names, map(list, cells), strict=True))
    elif rows:
        columns = {name: [row.get(name) for row in rows] for name in names}
    load.state.recorder.add_facts("placements", load.call, len(rows), model=load.model, **columns)


def note_finished(load: Load, named: list[Named]) -> None:
    """Take what only the tensors themselves can tell, while they are there.

    Args:
        load: The load.
        named: Parameters and buffers of the finished model.
    """
    if any(device.type == "meta" for device in {each.device for each in load.finished}):
        away = (each for each in named if each.tensor.device.type == "meta")
        load.residences = {each.name: residence(each) for each in away}
    before, built = load.before_fill, load.expected
    for name, tensor, *_ in named if before else ():
        known = before.get(name if name in built else without_adapter(name))
        if known is not None:
            load.was_written[name] = written.was_written(known, tensor)
    before.clear()
    inner = {id(one.tensor()): one for one in load.inner if one.tensor() is not None}
    for each in named if inner else ():
        if id(each.tensor) in inner:
            load.brought[each.name] = inner[id(each.tensor)]


def _built_name(load: Load, name: str) -> str:
    """What an adapter was wrapped round was set under the name that it was built with."""
    return name if name in load.expected else without_adapter(name)


def describe(load: Load) -> None:
    """Put the rows together; `write` hands them over, after a verification if there is one."""
    if load.placement_rows:
        return
    tied, unasked = tied_names(load, load.finished), load.may_be_missing
    sources: dict[str, list[str]] = {}
    for key, plan in load.plans.items():
        if load.gave_way_to(key) is not None:
            continue
        for target in load.parts.get(plan.param, (plan.param,)):
            sources.setdefault(target, []).append(key)
    rows = []
    for live in load.finished:
        if live.name in load.brought:
            rows.append(_row_of_inner(load, live, load.brought[live.name]))
            continue
        name = _built_name(load, live.name)
        keys = sources.get(name, [])
        if load.shards is None:
            origin, because = _origin(load, live, name, tied)
        else:
            place = load.residences.get(live.name, "resident")
            origin, because = shard_facts.origin(load, load.shards, name, live.persistent, place)
        if origin == "initialised" and unasked is not None and unasked.search(name):
            because += CLASS_EXPECTS
        if origin == "checkpoint" and keys and load.plans[keys[0]].operations:
            origin, because = "converted", _converted(load, name, keys, because)
        elif name in load.mismatched and keys:
            because = f"{_misfit(load, live, keys)}; {because.removeprefix('in no file; ')}"
        keys = keys if origin in {"checkpoint", "converted"} else []
        given = keys or ([tied[name]] if origin == "tied" else [])
        rows.append(_row(load, live, name, keys, origin, because, given))
    load.placement_rows = rows


def _converted(load: Load, name: str, keys: list[str], because: str) -> str:
    parts = load.targets_of(load.plans[keys[0]].param)
    what = "tensors of the file went" if len(keys) > 1 else "tensor of the file went"
    whole = f"{len(keys)} {what} into it"
    if len(parts) > 1:
        whole += f" and {len(parts) - 1} other{'s' if len(parts) > 2 else ''}"
    return whole if name not in load.offloaded else f"{whole}; {because}"


def _misfit(load: Load, each: Taken, keys: list[str]) -> str:
    header = load.headers.get(load.file_of.get(keys[0], ""))
    shape = list(header.tensors[keys[0]].shape) if header else load.given.get(keys[0], ("?",))[0]
    return f"{keys[0]} of the file has shape {shape}, not {list(each.shape)}"


def _row_of_inner(load: Load, each: Taken, inner: Inner) -> dict[str, Any]:
    """A tensor that a load within this one has brought: what that load told of it."""
    expected = load.expected.get(each.name)
    row = next(row for row in inner.load.placement_rows if row["param"] == inner.name)
    return row | {
        "param": each.name,
        "because": f"brought by the load of call {inner.load.call}: {row['because']}",
        "expected_shape": None if expected is None else shape_text(expected.shape),
        "matches": expected is not None and expected.shape == each.shape,
    }


def hand_out(load: Load, outer: Load, named: list[Named]) -> None:
    """Tell a load what a load within it has made, for the tensors that come to be its own."""
    for each in named:
        outer.inner.append(Inner(load, weakref.ref(each.tensor), each.name))


def note_replaced(load: Load, tied: dict[str, str]) -> None:
    """What was set from the file and then gave way: to a tie, or to a model loaded by itself."""
    if load.shards is None:
        for name, source in tied.items():
            if name in load.placed:
                load.replaced[name] = f"then tied to {source}"
    for name, inner in load.brought.items():
        if name in load.placed:
            call = inner.load.call
            load.replaced[name] = f"then replaced by what the load of call {call} brought"


def _row(
    load: Load,
    each: Taken,
    name: str,
    keys: list[str],
    origin: str,
    because: str,
    given: list[str],
) -> dict[str, Any]:
    plan = load.plans.get(keys[0]) if keys else None
    wait_ns, convert_ns, place_ns = load.times.get(name, NO_TIMES)
    stored, live = _stored_dtype(load, keys), measure.dtype_name(each.dtype)
    infinities, zeros = extremes.of(load, keys) if load.cast else (None, None)
    expected = load.expected.get(name)
    return {
        "param": each.name,
        "kind": each.kind,
        "origin": origin,
        "because": because,
        "sources": names_text(given),
        "rule": _rule(name, keys, plan),
        "operations": names_text(plan.operations) if plan and plan.operations else _NOTHING,
        "shape": shape_text(each.shape),
        "expected_shape": None if expected is None else shape_text(expected.shape),
        "matches": expected is not None and expected.shape == each.shape,
        "stored_dtype": stored,
        "dtype": live,
        "dtype_why": _dtype_why(load, stored, live, origin),
        "device": measure.device_name(each.device),
        "residence": load.residences.get(each.name, "resident"),
        "wait_ns": wait_ns,
        "convert_ns": convert_ns,
        "place_ns": place_ns,
        "new_infinities": infinities,
        "new_zeros": zeros,
        "verified": "not compared",
    }


_NOTHING: Final = names_text(())


def _origin(load: Load, each: Taken, name: str, tied: dict[str, str]) -> tuple[str, str]:
    if name in tied:
        return "tied", "the same storage as its source"
    if name in load.offloaded:
        return "checkpoint", load.offloaded[name]
    place = load.residences.get(each.name)
    if place == "meta":
        return "unwritten", "still on meta when the load ended"
    if name in load.placed and name not in load.mismatched:
        return "checkpoint", load.set_from + (_apart(load, name, tied) if load.announced else "")
    if place is not None:
        return "unwritten", "offloaded, but its values came out of no file"
    if name in load.made:
        kind = "initialised" if each.persistent else "rebuilt"
        return kind, f"not part of any file; made by the quantiser {load.quantiser}"
    if name in load.of_adapter:
        return "initialised", BY_PEFT
    if each.name not in load.was_written:
        return "unknown", "made outside the steps that the lab watches"
    is_written = load.was_written[each.name]
    if is_written is None:
        return "unknown", "made in inference mode, where torch counts no writes"
    if not is_written:
        return "unwritten", "memory was given to it and nothing wrote into it"
    if each.persistent:
        return "initialised", "in no file; written by the class's own initialisation"
    return "rebuilt", "not part of any file; computed again by the class"


def _apart(load: Load, name: str, tied: dict[str, str]) -> str:
    """Said of a name that the class ties and the load did not."""
    source = load.announced.get(name)
    if source is None or tied.get(source) == name:
        return ""
    return f"; its class ties it to {source}, yet it has its own storage"


def _rule(name: str, keys: list[str], plan: Plan | None) -> str | None:
    if plan is None or keys == [name]:
        return None
    return f"{plan.pattern or keys[0]} -> {name} ({plan.rule})"


def _stored_dtype(load: Load, keys: list[str]) -> str | None:
    for key in keys:
        header = load.headers.get(load.file_of.get(key, ""))
        if header is not None:
            entry = header.tensors[key]
            return dtype_name(entry.dtype)
        if key in load.given:
            return load.given[key][1]
    return None


def _dtype_why(load: Load, stored: str | None, live: str | None, origin: str) -> str | None:
    if live == load.dtype:
        return load.dtype_why
    if load.dtype is None and stored is not None:  # an adapter's, which PEFT casts as it likes
        return "kept as stored" if live == stored else "cast by PEFT"
    if origin not in {"checkpoint", "converted", "tied"}:
        return "made in this dtype by the class"
    if load.quantiser is not None and origin == "converted" and live != stored:
        return f"quantised by {load.quantiser}" if live not in _FLOATS else "kept by the quantiser"
    # Only a class's own wish keeps a floating tensor from the dtype that the model is loaded in.
    is_kept = live == "float32" and stored in {*_FLOATS, None}
    if is_kept and not isinstance(load.dtype_asked, dict):
        return "kept in float32 by the class"
    if stored in {live, None}:
        return "kept as stored"
    return "argument" if isinstance(load.dtype_asked, dict) else "set by the class"


_FLOATS: Final = ("float64", "float32", "bfloat16", "float16")
