"""KV caches as numbers: per layer what it saw, what it holds, what it can hold, its bytes.

The three lengths differ: a sliding window drops tokens that it has seen, a static cache holds
memory for tokens that have not come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
        for number, layer in enumerate(layers):
            columns = _describe(layer)
            total += columns["size_bytes"] or 0
            recorder.add_fact(
                "cache_layers",
                run.span.seq,
                run.span.seq,
                step=step,
                cache=name,
                layer=number,
                part=part,
                **columns,
            )
    return total


def _describe(layer: Any) -> dict[str, Any]:
    keys: Any = getattr(layer, "keys", None)
    values: Any = getattr(layer, "values", None)
    is_made = hasattr(keys, "shape") and hasattr(values, "shape")
    capacity = layer.get_max_length() if hasattr(layer, "get_max_length") else -1
    return {
        "class_name": type(layer).__name__,
        "dtype": measure.dtype_name(keys.dtype) if is_made else None,
        "tokens_seen": read(count(layer)),
        "tensor_tokens": int(keys.shape[-2]) if is_made and keys.ndim > 1 else 0,
        "capacity_tokens": int(capacity) if capacity is not None and int(capacity) > 0 else None,
        "size_bytes": measure.size_of(keys) + measure.size_of(values) if is_made else 0,
        "device": str(keys.device) if is_made else None,
    }


def count_rotary(recorder: Recorder, rows: list[int], start: int) -> int:
    """Calls of language-model rotary modules among the hot rows from `start` on."""
    rotary = {
        index
        for index, slot in enumerate(recorder.slots)
        if "Rotary" in slot.class_name and "Vision" not in slot.class_name
    }
    return sum(slot in rotary for slot in rows[start + SLOT_PLACE :: HOT_WIDTH])
