"""What is wrong with a tensor that is not what it should be, said in one phrase.

Compared bit for bit, a NaN being equal to every NaN: devices differ in which one a cast gives.
Everything here works on two tensors on the CPU; nothing knows a model or a file.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Final

_CHUNK: Final = 1 << 22  # elements that are looked at together: 32 MB of 64-bit fingerprints
_NAMED: Final = 4  # so many slices are named one by one


def bits(tensor: Any) -> Any:
    """The raw bits of a tensor as integers, in its shape; complex numbers as pairs."""
    torch = sys.modules["torch"]
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(sizes[tensor.element_size()])


def is_same(one: Any, other: Any) -> bool:
    """Whether two tensors have one shape, one dtype and the same bits; any NaN equals any NaN."""
    torch = sys.modules["torch"]
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(bits(one), bits(other))) or not bool(unequal(one, other).any())


def unequal(one: Any, other: Any) -> Any:
    """A mask of the elements that differ, of two tensors of one shape and dtype."""
    mask = bits(one) != bits(other)
    if one.is_complex():
        return mask.any(dim=-1)
    if one.is_floating_point():
        mask &= ~(plain(one).isnan() & plain(other).isnan())
    return mask


def plain(tensor: Any) -> Any:
    """Floats in a dtype that torch can calculate with: those of eight bits are widened."""
    return tensor.float() if tensor.element_size() == 1 else tensor


def digest(tensor: Any) -> tuple[str, tuple[int, ...], bytes]:
    """What tells a tensor from every other: dtype, shape, and a digest of its bytes."""
    raw = bits(tensor).reshape(-1).numpy()
    return str(tensor.dtype), tuple(tensor.shape), hashlib.blake2b(raw, digest_size=16).digest()


def is_constant(tensor: Any) -> bool:
    """Whether one value fills it: many tensors hold nothing but ones, or zeros."""
    flat = bits(tensor).reshape(-1)
    return not flat.numel() or bool((flat == flat[0]).all())


def told(live: Any, expected: Any, source: str = "its source", *, stored: Any = None) -> str:
    """What is wrong with a tensor, where something is.

    The most telling statement that holds: the shape, nothing but zeros, NaN, slices in another
    order, transposed, rounded on the way, a few elements changed, or nothing in common.

    Args:
        live: What there is.
        expected: What there should be.
        source: What to call that.
        stored: The source before any cast, where it has just one.
    """
    if live.shape != expected.shape:
        return f"has shape {list(live.shape)}, {source} {list(expected.shape)}"
    if live.dtype != expected.dtype:
        return f"is {live.dtype}, {source} {expected.dtype}".replace("torch.", "")
    return (
        _constant(live)
        or _rearranged(live, expected, source)
        or _transposed(live, expected, source)
        or _rounded(live, stored, source)
        or _changed(live, expected, source)
    )


def _constant(live: Any) -> str | None:
    if live.numel() < 2:
        return None
    if not bool(bits(live).any()):
        return "holds nothing but zeros"
    if live.is_floating_point() and bool(plain(live).isnan().all()):
        return "holds nothing but NaN"
    return None


def _rearranged(live: Any, expected: Any, source: str) -> str | None:
    """Slices along one dimension that are all there, in other places."""
    if live.is_complex():
        return None
    best: tuple[int, dict[int, int]] | None = None
    for dim in range(live.dim() if live.dim() > 1 else 0):
        moved = _moved(live, expected, dim)
        if moved and (best is None or len(moved) < len(best[1])):
            best = dim, moved
    if best is None:
        return None
    dim, moved = best
    pieces = [
        f"{_span(there, many)} holds {_span(place, many)}" for there, place, many in _runs(moved)
    ]
    rest = len(pieces) - _NAMED
    named = ", ".join(pieces[:_NAMED]) + (f", and {rest} more pieces" if rest > 0 else "")
    return f"has slices of dimension {dim} in other places: {named} of {source}"


def _runs(moved: dict[int, int]) -> list[tuple[int, int, int]]:
    """Neighbours that moved together: where the first is, where it was, and how many."""
    runs: list[tuple[int, int, int]] = []
    for there, place in moved.items():
        if runs and (there - runs[-1][0], place - runs[-1][1]) == (runs[-1][2], runs[-1][2]):
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((there, place, 1))
    return runs


def _span(first: int, many: int) -> str:
    return f"{first}" if many == 1 else f"{first} to {first + many - 1}"


def _moved(live: Any, expected: Any, dim: int) -> dict[int, int]:
    """Each slice that is not its own, to the slice of the source that it is; {} if one is none."""
    if live.shape[dim] < 2:
        return {}
    mine, theirs = _fingerprints(live, dim), _fingerprints(expected, dim)
    place_of = {value: place for place, value in reversed([*enumerate(theirs)])}
    strange = [place for place, value in enumerate(mine) if value != theirs[place]]
    moved = {place: place_of.get(mine[place], -1) for place in strange}
    if not moved or -1 in moved.values():
        return {}
    return moved if all(_is_slice(live, expected, dim, pair) for pair in moved.items()) else {}


def _is_slice(live: Any, expected: Any, dim: int, pair: tuple[int, int]) -> bool:
    return is_same(live.select(dim, pair[0]), expected.select(dim, pair[1]))


def _fingerprints(tensor: Any, dim: int) -> list[int]:
    """One number a slice: a sum of its bits, each weighted by its place."""
    torch = sys.modules["torch"]
    rows = bits(tensor).movedim(dim, 0).flatten(1)
    places = torch.arange(1, rows.shape[1] + 1, dtype=torch.int64)
    weights = places * -7046029254386353131 + (places * places ^ 0x5DEECE66D)  # odd, spread out
    step = max(1, _CHUNK // rows.shape[1])
    found: list[int] = []
    for start in range(0, rows.shape[0], step):
        found += (rows[start : start + step].long() * weights).sum(dim=1).tolist()
    return found


def _transposed(live: Any, expected: Any, source: str) -> str | None:
    if live.dim() < 2 or live.shape[-1] != live.shape[-2]:
        return None
    return f"holds {source} transposed" if is_same(live, expected.mT.contiguous()) else None


def _rounded(live: Any, stored: Any, source: str) -> str | None:
    """A value that once was in a narrower dtype than it has now has lost digits for good."""
    torch = sys.modules["torch"]
    if stored is None or not stored.is_floating_point() or not live.is_floating_point():
        return None
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if dtype not in (live.dtype, stored.dtype) and is_same(
            live, stored.to(dtype).to(live.dtype)
        ):
            name = str(dtype).removeprefix("torch.")
            return f"holds its source rounded to {name}: it was in that dtype before"
    return None


def _changed(live: Any, expected: Any, source: str) -> str:
    mask = unequal(live, expected)
    count, total = int(mask.sum()), live.numel()
    first = [int(place) for place in mask.nonzero()[0]]
    mine, theirs = (_number(one[tuple(first)]) for one in (live, expected))
    where = f" at {first}" if first else ""
    example = f"the first{where} is {mine} instead of {theirs}"
    if 2 * count <= total or total < 2 or not live.is_floating_point():
        return f"differs from {source} in {count} of {total} values; {example}"
    mean, deviation = _moments(live)
    of_mean, of_deviation = _moments(expected)
    return (
        f"has little in common with {source} ({count} of {total} values differ): mean {mean:.3g} "
        f"and standard deviation {deviation:.3g} instead of {of_mean:.3g} and {of_deviation:.3g}; "
        f"{example}"
    )


def _moments(tensor: Any) -> tuple[float, float]:
    """Mean and standard deviation, a piece at a time: a copy in 64 bits may not fit."""
    pieces = tensor.flatten().split(_CHUNK)
    mean = sum(float(plain(one).double().sum()) for one in pieces) / tensor.numel()
    squares = sum(float((plain(one).double() - mean).square().sum()) for one in pieces)
    return mean, (squares / tensor.numel()) ** 0.5


def _number(tensor: Any) -> str:
    """One value; of memory that was never written a bool may be neither 0 nor 1."""
    value, raw = tensor.item(), bits(tensor).reshape(-1)
    if isinstance(value, bool) and int(raw[0]) > 1:
        return f"{value} (as byte {int(raw[0])})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
