"""Which part of a parameter this rank holds, of one that is cut over several (tensor parallel).

A parameter that is cut says so itself: torch's DTensor knows its mesh and its placements. What the
rank holds is worked out from these alone, without the library's own cutting and without a word to
the other ranks. In generation 4 two kinds do not say it: packed halves, which are cut one by one
and called whole, and local tensors, which know nothing. There each way of cutting is tried.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

_HALVES: Final = 2  # gate and up, packed into one parameter


def is_cut(tensor: Any) -> bool:
    """Whether it is a tensor of several ranks, of which this one holds a part or a copy."""
    return hasattr(tensor, "to_local")


def local(tensor: Any) -> Any:
    """What this rank holds of it; any other tensor as it is."""
    return tensor.to_local() if is_cut(tensor) else tensor


def mesh_of(tensors: Iterable[Any]) -> Any:
    """The ranks over which a model is cut; None for a model that this rank has for itself."""
    return next((one.device_mesh for one in tensors if is_cut(one)), None)


def parts(tensor: Any, whole: Any, mesh: Any) -> Iterator[tuple[Any, str]]:
    """What this rank may hold of a parameter's values, the likeliest first, each with its words.

    Args:
        tensor: The live parameter.
        whole: The values that the parameter has over all ranks.
        mesh: The ranks over which the model is cut, or None.

    Yields:
        The part and which it is, as in `, 0 to 7 of 16 in dimension 0 being this rank's`; of a
        parameter that is not cut the whole and no words.
    """
    for places in _ways(tensor, whole, mesh):
        part = whole
        for dim, wanted in places.items():
            part = part.index_select(dim, wanted)
        yield part, _words(places, whole)


def _ways(tensor: Any, whole: Any, mesh: Any) -> Iterator[Mapping[int, Any]]:
    """Ways of cutting: the places that this rank has, by dimension."""
    if is_cut(tensor) and tensor.shape == whole.shape:
        yield _placed(tensor, whole)
        if release() < FIVE:
            yield _placed(tensor, whole, groups=_HALVES)
        return
    odd = [dim for dim, size in enumerate(whole.shape) if tensor.shape[dim : dim + 1] != (size,)]
    is_known = is_cut(tensor) or mesh is None or release() >= FIVE
    if is_known or len(odd) != 1 or tensor.dim() != whole.dim():
        yield {}
        return
    rank, ranks = mesh.get_coordinate()[-1], mesh.size()
    for groups in (1, _HALVES):
        yield {odd[0]: _cut(_all(whole, odd[0]), groups, ranks, rank)}


def _placed(tensor: Any, whole: Any, groups: int = 1) -> dict[int, Any]:
    found: dict[int, Any] = {}
    ranks = tensor.device_mesh.get_coordinate()
    for number, placement in enumerate(tensor.placements):
        dim = getattr(placement, "dim", None)
        if dim is not None:
            dim %= whole.dim()
            places = found.get(dim, _all(whole, dim))
            many = getattr(placement, "split_factor", groups)
            found[dim] = _cut(places, many, tensor.device_mesh.size(number), ranks[number])
    return found


def _all(whole: Any, dim: int) -> Any:
    return sys.modules["torch"].arange(whole.shape[dim])


def _cut(places: Any, groups: int, ranks: int, rank: int) -> Any:
    """The share of one rank in each group, as torch cuts: the last ranks may have less."""
    pieces = [group.chunk(ranks) for group in places.chunk(groups)]
    kept = [piece[rank] for piece in pieces if rank < len(piece)]
    return sys.modules["torch"].cat(kept) if kept else places[:0]


def _words(places: Mapping[int, Any], whole: Any) -> str:
    told = [
        f"{_ranges(wanted.tolist())} of {whole.shape[dim]} in dimension {dim}"
        for dim, wanted in places.items()
    ]
    return f", {' and '.join(told)} being this rank's" if told else ""


def _ranges(places: list[int]) -> str:
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ", ".join(f"{first} to {last}" for first, last in runs) or "none"
