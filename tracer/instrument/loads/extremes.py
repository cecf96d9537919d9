"""With `values`: what the cast of a load made of finite values and of values other than zero.

Counted on both sides of the cast, as numbers, so that no tensor is kept: among floats a cast turns
no infinity into a finite value and no zero into another one.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from tracer.instrument.loads.load_notes import Load


class Extremes(NamedTuple):
    """Values of one tensor that are infinite, and values that are zero."""

    infinities: int
    zeros: int


def before_cast(load: Load, tensor: Any, wanted: Any) -> Extremes | None:
    """Count a tensor that is about to be cast to another float dtype; None for any other."""
    if not load.state.recorder.options.values or wanted in (None, tensor.dtype):
        return None
    are_floats = tensor.is_floating_point() and wanted.is_floating_point
    return _count(tensor) if are_floats and tensor.device.type != "meta" else None


def after_cast(load: Load, key: str, before: Extremes | None, tensor: Any) -> None:
    """Note what became of a source that was counted before its cast."""
    if before is not None:
        after = _count(tensor)
        made = after.infinities - before.infinities, after.zeros - before.zeros
        load.cast[key] = made


def of(load: Load, keys: list[str]) -> tuple[int | None, int | None]:
    """New infinities and new zeros of all sources of a parameter; missing where none was cast."""
    made = [load.cast[key] for key in keys if key in load.cast]
    return (sum(one[0] for one in made), sum(one[1] for one in made)) if made else (None, None)


def _count(tensor: Any) -> Extremes:
    torch = sys.modules["torch"]
    # torch can't compare floats of eight bits.
    plain = tensor.detach().float() if tensor.element_size() == 1 else tensor.detach()
    zeros = plain.numel() - int(torch.count_nonzero(plain))
    return Extremes(int(torch.isinf(plain).sum()), zeros)
