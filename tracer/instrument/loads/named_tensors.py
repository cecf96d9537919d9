"""A model's parameters and buffers, by every name; which names are one tensor, and where it lies.

What a tensor's values are and where they came from is told in `placements.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tracer.instrument.loads.load_notes import Load
from tracer.instrument.targets import HOOK_OF_MODULE


class Named(NamedTuple):
    """A parameter or buffer under one of its names, with the module that holds it."""

    name: str
    tensor: Any
    module: Any
    kind: str
    persistent: bool


# A NamedTuple's own constructor is a function of Python; this is the one below it.
_named: Final = functools.partial(tuple.__new__, Named)


def named_tensors(model: Any, besides: Collection[str] = ()) -> list[Named]:
    """Every parameter, then every buffer, by each of its names, tied ones included.

    Args:
        model: The model.
        besides: Names that are left out.
    """
    parameters: list[Named] = []
    buffers: list[Named] = []
    # Each module by each of its paths (ending in a dot), parents first, in one walk with a stack:
    # torch's own is a generator in a generator for each level, and asking for each tensor's owner
    # by its path costs more than the rest of a load's facts.
    waiting = [("", model)]
    while waiting:
        path, module = waiting.pop()
        for leaf, tensor in module._parameters.items():
            if tensor is not None and (not besides or path + leaf not in besides):
                parameters.append(_named((path + leaf, tensor, module, "parameter", True)))
        if module._buffers:
            passing = module._non_persistent_buffers_set
            for leaf, tensor in module._buffers.items():
                if tensor is not None and path + leaf not in besides:
                    is_kept = leaf not in passing
                    buffers.append(_named((path + leaf, tensor, module, "buffer", is_kept)))
        if module._modules:
            for name, child in reversed(module._modules.items()):
                if child is not None:
                    waiting.append((f"{path}{name}.", child))
    return parameters + buffers


class Taken(NamedTuple):
    """What a parameter or buffer was at one moment, in plain values, so that rows can wait."""

    name: str
    kind: str
    persistent: bool
    module_class: type
    shape: tuple[int, ...]
    dtype: Any
    device: Any
    identity: int

    @property
    def size_bytes(self) -> int:
        """Bytes that the values need, whether or not they exist (meta)."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


_taken: Final = functools.partial(tuple.__new__, Taken)


def take(named: Iterable[Named]) -> list[Taken]:
    """What each of them is now."""
    return [
        _taken((name, kind, kept, type(module), one.shape, one.dtype, one.device, id(one)))
        for name, one, module, kind, kept in named
    ]


def without_adapter(name: str) -> str:
    """The name that a parameter had before an adapter was wrapped round its module."""
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")


def shared_names(named: Iterable[Named]) -> list[list[str]]:
    """Names that stand for one tensor, by identity, in their order; no tensor of a single name."""
    return _grouped((each.name, id(each.tensor)) for each in named)


def _grouped(identities: Iterable[tuple[str, int]]) -> list[list[str]]:
    first: dict[int, str] = {}
    groups: dict[int, list[str]] = {}
    for name, identity in identities:
        known = first.setdefault(identity, name)
        if known is not name:
            groups.setdefault(identity, [known]).append(name)
    return list(groups.values())


def tied_names(load: Load, taken: Iterable[Taken]) -> dict[str, str]:
    """Each name that stands for the tensor of another one, to that one, whose values it has.

    By identity, not by what the class announces: of a pair whose second name alone lies in the
    file, the library ties the first one to it.
    """
    if load.shards is not None:
        return load.shards.tied
    tied: dict[str, str] = {}
    for names in _grouped((each.name, each.identity) for each in taken):
        source = _source(load, names)
        tied |= {name: source for name in names if name != source}
    return tied


def _source(load: Load, names: list[str]) -> str:
    """Whose values a shared tensor has: what was set, before what the class calls the source."""
    set_ones = [name for name in names if name in load.placed and name not in load.mismatched]
    announced = {load.announced.get(name) for name in names}
    candidates = set_ones or names
    return next((name for name in candidates if name in announced), candidates[0])


def residence(each: Named) -> str:
    """Where its values are: resident, offloaded_cpu, offloaded_disk, or meta where nobody has them.

    Nothing is read: accelerate's maps give a tensor whenever they are asked whether they have it.
    """
    if each.tensor.device.type != "meta":
        return "resident"
    leaf = each.name.rpartition(".")[2]
    for weights in offload_maps(each.module):
        held: Any = getattr(weights, "dataset", weights)
        name = f"{getattr(weights, 'prefix', '')}{leaf}"
        index = getattr(held, "index", None)
        if not isinstance(index, Mapping):
            if name in held:
                return "offloaded_cpu"
        elif name in held.state_dict:  # which comes first in there
            return "offloaded_cpu"
        elif name in index:
            return "offloaded_disk"
    return "meta"


def offload_maps(module: Any) -> Iterator[Mapping[str, Any]]:
    """What accelerate fetches a module's weights from at each call, by their names in it."""
    hook = getattr(module, HOOK_OF_MODULE, None)
    for one in getattr(hook, "hooks", (hook,)):
        weights = getattr(one, "weights_map", None)
        if weights is not None:
            yield weights
