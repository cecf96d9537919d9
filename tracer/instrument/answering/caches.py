"""KV caches as numbers: per layer what it saw, what it holds, what it can hold, its bytes.

The three lengths differ: a sliding window drops tokens that it has seen, a static cache holds
memory for tokens that have not come. Three forms are met: objects with layers (since 4.54),
objects with a list of keys and one of values, and plain tuples of models that make no cache object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tracer.instrument import measure
from tracer.recorder import Recorder
from tracer.rows import HotRow

NAMES: Final = ("cache", "past_key_values", "cache_params")
"""What a cache is called among a forward's arguments and outputs: since generation 5, before, and
before in models of linear attention alone."""


def count(cache: Any) -> Any:
    """Tokens that a cache has seen, to be read later: a number, or an own copy of the counter.

    A static cache counts in a tensor on its device, which goes on counting; reading it at once
    would wait for the device.
    """
    if isinstance(cache, tuple):
        keys = _first_keys(cache)
        return None if keys is None else int(keys.shape[-2])
    counter = getattr(cache, "get_seq_length", None)
    try:
        seen: Any = None if counter is None else counter()
    except (ValueError, NotImplementedError):  # of linear attention alone: it counts no tokens
        return None
    return seen.clone() if hasattr(seen, "clone") else seen


def is_known(cache: Any) -> bool:
    """Whether its rows are sequences; one of pages, shared by requests, has no count for all."""
    return counts_tokens(cache) or hasattr(cache, "ssm_states")


def counts_tokens(cache: Any) -> bool:
    """Whether it holds tokens; states of linear attention alone, in generation 4, hold none."""
    return isinstance(cache, tuple) or hasattr(cache, "get_seq_length")


def counted(cache: Any, fed_at: Any) -> Any:
    """The same, or None where the cache's own count is false and the indices fed tell it."""
    if cache is None or (fed_at is not None and is_preallocated(cache)):
        return None
    return count(cache)


def name(recorder: Recorder, cache: Any, holder: Any) -> str:
    """Short id of a cache; a tuple, made anew each time, goes by that of what holds it."""
    return recorder.caches.of(holder if isinstance(cache, tuple) else cache)


def read(seen: Any) -> int | None:
    """The number behind `count`."""
    return None if seen is None else int(seen)


def is_preallocated(cache: Any) -> bool:
    """Whether it holds memory for tokens to come.

    Generation 4 counts the keys in such a one that are not zero, of the first row: a pad whose
    embedding is zero is left out, and counting is work for the device.
    """
    inner = getattr(cache, "self_attention_cache", cache)
    longest = inner.get_max_cache_shape() if hasattr(inner, "get_max_cache_shape") else None
    return longest is not None and int(longest) > 0


def _first_keys(cache: tuple[Any, ...]) -> Any:
    """Keys of the first layer of a tuple of layers; None where it is something else."""
    first = cache[0] if cache else None
    keys = first[0] if isinstance(first, tuple) and first else None
    return keys if getattr(keys, "ndim", 0) == 4 else None


def keys_held(cache: Any) -> Any:
    """The tensor of the first keys that a cache of any form holds; None of one without."""
    inner = getattr(cache, "self_attention_cache", cache)
    if isinstance(inner, tuple):
        return _first_keys(inner)
    layers = getattr(inner, "layers", None)
    if layers is None:
        every = getattr(inner, "key_cache", ())
    else:
        every = (getattr(layer, "keys", None) for layer in layers)
    return next((keys for keys in every if hasattr(keys, "shape")), None)


def identity(cache: Any) -> Any:
    """What lasts of a cache from one call to the next: itself, or a tuple's first keys."""
    return _first_keys(cache) if isinstance(cache, tuple) else cache


def _parts(cache: Any) -> Iterator[tuple[str, Any]]:
    """Self- and cross-attention caches of an encoder-decoder model, else the cache itself."""
    inner = getattr(cache, "self_attention_cache", None)
    if inner is not None:
        yield "self", inner
        yield "cross", cache.cross_attention_cache
    elif isinstance(cache, tuple) and _first_keys(cache) is not None and len(cache[0]) == 4:
        yield "self", tuple(layer[:2] for layer in cache)
        yield "cross", tuple(layer[2:] for layer in cache)
    else:
        yield "self", cache


def tell(
    recorder: Recorder, call: int, step: int, name: str, cache: Any, seen: int | None = None
) -> int | None:
    """Write a step's rows of `cache_layers`.

    `seen` is what its layers have seen, where they themselves can't be asked.

    Returns:
        Bytes of all key and value tensors; None without a cache.
    """
    if cache is None:
        return None
    total: int | None = 0
    for part, one in _parts(cache):
        rows = _layers(one, seen if part == "self" else None)
        if rows is None:
            recorder.fault("cache_layers", f"{type(one).__name__} has no layers to look at")
            return None
        columns = dict(zip(_LAYER_COLUMNS, zip(*rows, strict=True), strict=False))
        cells = {column: list(values) for column, values in columns.items()}
        sizes = cells.get("size_bytes", ())
        total = None if total is None or None in sizes else total + sum(sizes)
        recorder.add_facts(
            "cache_layers",
            call,
            len(rows),
            step=step,
            cache=name,
            layer=list(range(len(rows))),
            part=part,
            **cells,
        )
    return total


_LAYER_COLUMNS: Final = (
    "class_name", "dtype", "tokens_seen", "tensor_tokens", "capacity_tokens", "size_bytes", "device"
)  # fmt: skip


def _layers(cache: Any, seen: int | None) -> list[tuple[Any, ...]] | None:
    """Cells of `_LAYER_COLUMNS` for each layer; None of a cache of no known form."""
    layers = getattr(cache, "layers", None)
    if layers is not None:
        return _of_layers(layers, seen)
    keys = getattr(cache, "key_cache", None)
    if keys is not None:
        return [_of_list(cache, place, seen) for place in range(len(keys))]
    if hasattr(cache, "ssm_states"):
        pairs = zip(cache.conv_states, cache.ssm_states, strict=True)
        return [_of_states(type(cache).__name__, pair) for pair in pairs]
    if isinstance(cache, tuple) and _first_keys(cache) is not None:
        return [_cells("tuple", layer[0], layer[1], layer[0].shape[-2], None) for layer in cache]
    return None


def _of_layers(layers: Any, seen: int | None) -> list[tuple[Any, ...]]:
    """Cells of layer objects; made once for neighbours that are alike, at every step anew."""
    rows: list[tuple[Any, ...]] = []
    last = None
    for layer in layers:
        own = read(count(layer)) if seen is None else seen
        keys: Any = getattr(layer, "keys", None)
        values: Any = getattr(layer, "values", None)
        if not hasattr(keys, "shape") or not hasattr(values, "shape"):
            rows.append(_describe(layer, own))
            continue
        alike = (
            *(type(layer), own, _longest(layer), _holds_more(layer)),
            *(keys.shape, values.shape, keys.dtype, values.dtype, keys.device),
        )
        rows.append(rows[-1] if alike == last and not alike[3] else _describe(layer, own))
        last = alike
    return rows


def _holds_more(layer: Any) -> bool:
    """Whether a layer holds more than keys and values as they are."""
    return hasattr(layer, "_quantized_keys") or hasattr(layer, "conv_states")


def _longest(layer: Any) -> int | None:
    if hasattr(layer, "get_max_length"):
        longest = layer.get_max_length()
    else:  # its name in generation 4
        longest = layer.get_max_cache_shape() if hasattr(layer, "get_max_cache_shape") else None
    return None if longest is None else int(longest)


def _describe(layer: Any, seen: int | None) -> tuple[Any, ...]:
    keys: Any = getattr(layer, "keys", None)
    values: Any = getattr(layer, "values", None)
    longest = _longest(layer)
    capacity = longest if longest is not None and longest > 0 else None
    packed = getattr(layer, "_quantized_keys", None)
    if packed is not None:
        return _quantized(layer, packed, seen, capacity)
    if hasattr(layer, "conv_states"):
        return _with_states(layer, _cells(type(layer).__name__, keys, values, seen, capacity))
    return _cells(type(layer).__name__, keys, values, seen, capacity)


def _quantized(layer: Any, packed: Any, seen: int | None, capacity: int | None) -> tuple[Any, ...]:
    """Cells of a layer that holds most of its tokens quantised, the newest perhaps as they were."""
    keys, values = layer.keys, layer.values
    cells = _cells(type(layer).__name__, keys, values, seen, capacity)
    pairs = packed, layer._quantized_values
    if not all(isinstance(pair, tuple) and hasattr(pair[0], "element_size") for pair in pairs):
        return (*cells[:3], None, capacity, None, cells[6])  # in a form of the backend's own
    held = int(packed[0].shape[-2]) + cells[3]
    size = cells[5] + sum(
        measure.size_of(part) for pair in pairs for part in pair if hasattr(part, "element_size")
    )
    return (cells[0], measure.dtype_name(packed[0].dtype), seen, held, capacity, size, cells[6])


def _with_states(layer: Any, cells: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cells of a layer with states of linear attention, as large after one token as after many.

    One that has no keys besides them holds no tokens: how many it saw, and holds, is missing.
    """
    states = [
        one
        for every in (layer.conv_states, layer.recurrent_states)
        for one in every.values()
        if hasattr(one, "element_size")
    ]
    if cells[1] is None:  # it has no keys
        return _of_states(cells[0], states)
    return (*cells[:5], cells[5] + sum(map(measure.size_of, states)), cells[6])


def _of_states(name: str, states: Sequence[Any]) -> tuple[Any, ...]:
    size = sum(map(measure.size_of, states))
    if not states:
        return name, None, None, None, None, size, None
    dtype, device = measure.dtype_name(states[0].dtype), measure.device_name(states[0].device)
    return name, dtype, None, None, None, size, device


def _of_list(cache: Any, place: int, seen: int | None) -> tuple[Any, ...]:
    """Cells of one layer of a cache that has a list of keys and one of values."""
    keys, values = cache.key_cache[place], cache.value_cache[place]
    held = int(keys.shape[-2]) if getattr(keys, "ndim", 0) == 4 else 0
    capacity = held if is_preallocated(cache) else None
    name = type(cache).__name__
    if not hasattr(cache, "_quantized_key_cache"):
        return _cells(name, keys, values, held if seen is None else seen, capacity)
    # Most of it is quantised, in a form of the backend's own: what it takes is not known.
    cells = _cells(name, keys, values, read(count(cache)), capacity)
    return (*cells[:3], None, capacity, None, cells[6])


def _cells(
    name: str, keys: Any, values: Any, seen: int | None, capacity: int | None
) -> tuple[Any, ...]:
    if not hasattr(keys, "shape") or not hasattr(values, "shape"):
        return name, None, seen, 0, capacity, 0, None
    shape = keys.shape
    held = int(shape[-2]) if len(shape) > 1 else 0
    size = measure.size_of(keys) + measure.size_of(values)
    dtype, device = measure.dtype_name(keys.dtype), measure.device_name(keys.device)
    return name, dtype, seen, held, capacity, size, device


def is_rotary(class_name: str) -> bool:
    """Whether modules of a class turn the language model's positions into angles."""
    return "Rotary" in class_name and "Vision" not in class_name


def count_rotary(recorder: Recorder, rows: list[HotRow], start: int) -> int:
    """Calls of language-model rotary modules among the hot rows from `start` on."""
    known: dict[int, bool] = recorder.notes.setdefault("rotary_slots", {})
    for slot in range(len(known), len(recorder.slots)):  # modules that were hooked since
        known[slot] = is_rotary(recorder.slots[slot].class_name)
    return sum(known[frame[2]] for frame, *_ in rows[start:])
