"""KV caches as numbers: per layer what it saw, what it holds, what it can hold, its bytes.

The three lengths differ: a sliding window drops tokens that it has seen, a static cache holds
memory for tokens that have not come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument import measure
from tracer.recorder import Recorder
from tracer.rows import HOT_WIDTH, SLOT_PLACE

if TYPE_CHECKING:
    from tracer.instrument.run import Run


def count(cache: Any) -> Any:
    """Tokens that a cache has seen, to be read later: a number, or an own copy of the counter.

    A static cache counts in a tensor on its device, which goes on counting; reading it at once
    would wait for the device.
    """
    counter = getattr(cache, "get_seq_length", None)
    seen: Any = None if counter is None else counter()
    return seen.clone() if hasattr(seen, "clone") else seen


def read(seen: Any) -> int | None:
    """The number behind `count`."""
    return None if seen is None else int(seen)


def _parts(cache: Any) -> Iterator[tuple[str, Any]]:
    """Self- and cross-attention caches of an encoder-decoder model, else the cache itself."""
    inner = getattr(cache, "self_attention_cache", None)
    if inner is None:
        yield "self", cache
    else:
        yield "self", inner
        yield "cross", cache.cross_attention_cache


def tell(recorder: Recorder, run: Run, step: int, cache: Any) -> int | None:
    """Write a step's rows of `cache_layers`.

    Returns:
        Bytes of all key and value tensors; None without a cache.
    """
    if cache is None:
        return None
    total = 0
    name = recorder.caches.of(cache)
    for part, one in _parts(cache):
        layers = getattr(one, "layers", None)
        if layers is None:
            recorder.fault("cache_layers", f"{type(one).__name__} has no layers to look at")
            return None
        columns = dict(zip(_LAYER_COLUMNS, zip(*map(_describe, layers), strict=True), strict=False))
        cells = {column: list(values) for column, values in columns.items()}
        total += sum(cells.get("size_bytes", ()))
        recorder.add_facts(
            "cache_layers",
            run.span.seq,
            len(layers),
            step=step,
            cache=name,
            layer=list(range(len(layers))),
            part=part,
            **cells,
        )
    return total


_LAYER_COLUMNS: Final = (
    "class_name", "dtype", "tokens_seen", "tensor_tokens", "capacity_tokens", "size_bytes", "device"
)  # fmt: skip


def _describe(layer: Any) -> tuple[Any, ...]:
    """Cells of `_LAYER_COLUMNS`; asked for every layer at every step, so each look-up counts."""
    keys: Any = getattr(layer, "keys", None)
    values: Any = getattr(layer, "values", None)
    longest = layer.get_max_length() if hasattr(layer, "get_max_length") else None
    capacity = int(longest) if longest is not None and int(longest) > 0 else None
    seen = read(count(layer))
    if not hasattr(keys, "shape") or not hasattr(values, "shape"):
        return type(layer).__name__, None, seen, 0, capacity, 0, None
    shape = keys.shape
    held = int(shape[-2]) if len(shape) > 1 else 0
    size = measure.size_of(keys) + measure.size_of(values)
    dtype, device = measure.dtype_name(keys.dtype), measure.device_name(keys.device)
    return type(layer).__name__, dtype, seen, held, capacity, size, device


def count_rotary(recorder: Recorder, rows: list[int], start: int) -> int:
    """Calls of language-model rotary modules among the hot rows from `start` on."""
    rotary = {
        index
        for index, slot in enumerate(recorder.slots)
        if "Rotary" in slot.class_name and "Vision" not in slot.class_name
    }
    return sum(slot in rotary for slot in rows[start + SLOT_PLACE :: HOT_WIDTH])
