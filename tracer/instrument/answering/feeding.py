"""What a forward is fed, as plain values: which argument, positions, indices and mask.

Own copies of the ends are taken at once and read later, so that no device is waited for.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tracer.instrument import measure


def first_given(inputs: Any, *names: str) -> Any:
    """The first of these arguments or outputs that there is."""
    # An output of the library warns on being asked for a name of an older generation, on behalf of
    # whoever asks; past its own methods it is a plain dict. A BatchEncoding is none.
    read = partial(dict.get, inputs) if isinstance(inputs, dict) else inputs.get
    for name in names:
        value = read(name)
        if value is not None:
            return value
    return None


def with_logits(result: Any) -> int | None:
    """Tokens of each row that a forward made logits of: all that were fed, or the last alone."""
    logits: Any = getattr(result, "logits", None)
    return int(logits.shape[1]) if getattr(logits, "ndim", 0) == 3 else None


def ends(position_ids: Any) -> Any:
    """Own copy of the first and last position of row 0, on each axis; on meta there are none."""
    if position_ids is None or position_ids.ndim < 2 or position_ids.shape[-1] == 0:
        return None
    if not _is_readable(position_ids):
        return None
    # A stride takes both at once; an index of two numbers would be made into a tensor first.
    first_row = position_ids[..., 0, :: max(1, position_ids.shape[-1] - 1)]
    return first_row.reshape(-1, first_row.shape[-1]).clone()


def read_ends(copied: Any) -> tuple[int | None, int | None]:
    """First and last position out of `ends`, on the first and on the largest axis."""
    if copied is None:
        return None, None
    pairs = copied.tolist()
    # The last axis group is what rotates; plain text positions before it only count tokens.
    rotating = pairs[-3:] if len(pairs) >= 3 else pairs
    return int(rotating[0][0]), int(max(pair[-1] for pair in rotating))


def index_ends(cache_position: Any) -> Any:
    """Own copy of the first and last of the indices that generation 4 counts for a step."""
    if cache_position is None or not _is_readable(cache_position):
        return None
    count = int(cache_position.shape[-1])
    return cache_position[:: max(1, count - 1)].clone() if count else None


def _is_readable(tensor: Any) -> bool:
    from tracer.instrument import graphs  # which needs torch; a tensor brings it along

    return graphs.is_readable(tensor)


def read_pair(copied: Any) -> tuple[int | None, int | None]:
    """First and last index out of `index_ends`."""
    if copied is None:
        return None, None
    pair = copied.tolist()
    return int(pair[0]), int(pair[-1])


def describe_mask(mask: Any) -> str:
    """Kind, shape and dtype of an attention mask."""
    if mask is None:
        return "none"
    if isinstance(mask, dict):
        return ", ".join(f"{name} {describe_mask(one)}" for name, one in mask.items())
    if not hasattr(mask, "shape"):
        return type(mask).__name__
    return f"{mask.ndim}D {measure.shape_of(mask)} {measure.dtype_name(mask.dtype)}"
