"""Which details a page has room for: all of most runs, the most telling ones of a long one.

Details are kept by how much they tell: calls, forwards, tokens and pictures first, then stages,
then what the first forward did, then tensors, then modules of the other forwards in their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from tracer.replaying.buffers import as_json, packed, packed_json
from tracer.replaying.details import ROOMS
from tracer.replaying.nodes import KINDS
from tracer.replaying.replay import Replay
from tracer.replaying.tree import Numbers

BLOCK: Final = 256
"""Details that are packed together: a page unpacks those near the stop that it shows."""
_PORTION: Final = 64
_SLACK: Final = 1.15
"""Blocks of the walk mix kinds and pack less well than the blocks by which they were weighed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """What a page keeps.

    Attributes:
        block: Details in each block.
        blocks: The packed blocks in the order of the walk; None for one of which none was kept.
        shared: What the kept details refer to, by room and key.
        count: How many details were kept.
    """

    block: int
    blocks: list[str | None]
    shared: dict[str, dict[str, Any]]
    count: int


def kept_details(replay: Replay, most_bytes: int) -> Kept:
    """The details that fit into so many bytes, the most telling first."""
    texts: dict[int, str] = {}
    shared: dict[str, dict[str, Any]] = {room: {} for room in ROOMS}
    left = float(most_bytes)
    for stops in _by_weight(replay):
        told = [replay.detail(int(stop)) for stop in stops]
        parts = {one["stop"]: as_json(one) for one in told}
        needed = _needed(replay, told, shared)
        left -= len(packed(",".join(parts.values()).encode("utf-8"))) * _SLACK
        left -= len(packed_json(needed))
        if left < 0:
            break
        texts.update(parts)
        for room, values in needed.items():
            shared[room].update(values)
    blocks = [_block(texts, first, len(replay.stops)) for first in _firsts(replay)]
    return Kept(BLOCK, blocks, shared, len(texts))


def strip_places(detail: dict[str, Any]) -> list[dict[str, Any]]:
    """The places in strips that a stop shows besides its own token's."""
    first = detail.get("strip")
    return [] if first is None else [first, *first.get("others", [])]


def _firsts(replay: Replay) -> range:
    return range(0, len(replay.stops), BLOCK)


def _block(texts: dict[int, str], first: int, count: int) -> str | None:
    stops = range(first, min(first + BLOCK, count))
    if not any(stop in texts for stop in stops):
        return None
    return packed(f"[{','.join(texts.get(stop, 'null') for stop in stops)}]".encode())


def _by_weight(replay: Replay) -> Iterator[Numbers]:
    """Stops in portions, those that tell most first."""
    columns = replay.stops.columns
    kind, step = columns["kind"], columns["step"]
    is_tensor, is_module = kind == KINDS.index("tensor"), kind == KINDS.index("module")
    is_main = np.isin(kind, [KINDS.index(name) for name in ("call", "step", "token", "image")])
    weight = np.select([is_module & (step > 0), is_tensor, is_module, ~is_main], [4, 3, 2, 1], 0)
    order = np.argsort(weight, kind="stable")
    for first in range(0, len(order), _PORTION):
        yield order[first : first + _PORTION]


def _needed(
    replay: Replay, details: list[dict[str, Any]], known: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """What these details refer to and no earlier ones did, by room and key."""
    found: dict[str, dict[str, Any]] = {room: {} for room in ROOMS}

    def take(room: str, key: str | None) -> Any:
        if key is None or key in known[room] or key in found[room]:
            return None
        value = replay.shared(room, key)
        if value is not None:
            found[room][key] = value
        return value

    for detail in details:
        take("sources", detail.get("source", {}).get("key"))
        for frame in take("stacks", detail.get("stack")) or ():
            take("sources", frame["source"])
        take("caches", detail.get("cache"))
        for place in (detail.get("token", {}), *strip_places(detail)):
            take("strips", place.get("strip"))
    return found
