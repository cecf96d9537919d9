"""Whether something wrote into a tensor between two moments of a load.

Torch counts writes, except into tensors made under `torch.inference_mode()`: of those a copy is
kept until the load ends, and bytes that differ show a write.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from tracer.instrument import measure

_LARGEST_COPY: Final = 1 << 20

State = tuple[int, Any]
"""The tensor's identity, and its count of writes or a copy of it (None where it is too large)."""


def state_of(tensor: Any) -> State:
    """What a tensor is now, to be compared later."""
    if not tensor.is_inference():
        return id(tensor), tensor._version
    is_small = measure.size_of(tensor) <= _LARGEST_COPY
    return id(tensor), tensor.detach().clone() if is_small else None


def was_written(before: State, tensor: Any) -> bool | None:
    """Whether it was written or replaced since; None where nothing can tell."""
    known, count = before
    if known != id(tensor):
        return True
    if not tensor.is_inference():
        return bool(count != tensor._version)
    # Bytes that are still the same may have been written again.
    return True if count is not None and not _same_bytes(count, tensor) else None


def _same_bytes(one: Any, other: Any) -> bool:
    torch = sys.modules["torch"]
    raw = [each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other)]
    return bool(torch.equal(*raw))
