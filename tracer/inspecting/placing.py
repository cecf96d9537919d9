"""Where a device map would put a model that has no weights yet: a prediction, so an estimate.

The rules are accelerate's own, as `from_pretrained` follows them; the memory is what this machine's
devices have free now, or what `max_memory` says.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

from tracer import machine, problems
from tracer.explain.sentences import phrase
from tracer.inspecting.fit import limit
from tracer.problems import Problem


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """What one device would hold.

    Attributes:
        device: `cpu`, `disk`, or a number of a GPU.
        modules: Entries of the device map that go there; 0 where no map was needed.
        size_bytes: Bytes of parameters and buffers, tied ones once.
        room_bytes: Bytes that may be used there; None for the disk and where nothing tells.
        limit: What sets them.
        fits: Whether they have room; None where it isn't known.
    """

    device: str
    modules: int
    size_bytes: int
    room_bytes: int | None
    limit: str | None
    fits: bool | None


def placed_on(model: Any, device_map: Any, max_memory: Mapping[Any, Any] | None) -> list[Placed]:
    """Bytes by device, for a model on meta.

    Args:
        model: A `PreTrainedModel`.
        device_map: As `from_pretrained` takes it.
        max_memory: As `from_pretrained` takes it; the devices' own where none is given.
    """
    if not isinstance(device_map, dict) and not _can_infer(device_map):
        device_map = {"": "cpu" if device_map is None else str(device_map)}
    rooms = _rooms(max_memory)
    if not isinstance(device_map, dict):
        device_map = _inferred(model, device_map, rooms)
    sizes: dict[str, int] = {}
    for name, size in _sizes(model):
        device = _device_of(name, device_map)
        sizes[device] = sizes.get(device, 0) + size
    modules = [str(device) for device in device_map.values()]
    return [
        _placed(device, modules.count(device) if "" not in device_map else 0, size, rooms)
        for device, size in sizes.items()
    ]


def _can_infer(device_map: Any) -> bool:
    names = {"auto", "balanced", "balanced_low_0", "sequential"}
    return device_map in names and importlib.util.find_spec("accelerate") is not None


def _rooms(max_memory: Mapping[Any, Any] | None) -> dict[Any, tuple[int, str]]:
    """Bytes by device and what sets them, GPUs first, in the order in which they are filled."""
    if max_memory is not None:
        from accelerate.utils import convert_file_size_to_int

        return {
            device: (convert_file_size_to_int(size), "max_memory")
            for device, size in max_memory.items()
        }
    import torch

    found: dict[Any, tuple[int, str]] = {}
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found[index] = torch.cuda.mem_get_info(index)[0], "free memory of the device"
    room = machine.memory_left()
    if room is not None:
        found["cpu"] = room.left_bytes, room.limit
    return found


def _inferred(model: Any, kind: str, rooms: Mapping[Any, tuple[int, str]]) -> dict[str, Any]:
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    from tracer.instrument.loads.renames import undivided_modules

    undivided = undivided_modules(model)
    memory = {device: size for device, (size, _) in rooms.items()}
    if kind != "sequential":
        memory = get_balanced_memory(
            model,
            max_memory=memory,
            no_split_module_classes=undivided,
            low_zero=kind == "balanced_low_0",
        )
    placed: dict[str, Any] = infer_auto_device_map(
        model, max_memory=memory, no_split_module_classes=undivided
    )
    return placed


def _sizes(model: Any) -> Iterator[tuple[str, int]]:
    """Every parameter and buffer once."""
    from tracer.instrument import measure
    from tracer.instrument.loads.named_tensors import named_tensors

    seen = set()
    for one in named_tensors(model):
        if id(one.tensor) not in seen:
            seen.add(id(one.tensor))
            yield one.name, measure.size_of(one.tensor)


def _device_of(name: str, device_map: Mapping[str, Any]) -> str:
    """The device of the longest entry that a name lies under."""
    while name and name not in device_map:
        name = name.rpartition(".")[0]
    return str(device_map.get(name, "cpu"))


def _placed(device: str, modules: int, size: int, rooms: Mapping[Any, tuple[int, str]]) -> Placed:
    own = {str(name).removeprefix("cuda:"): room for name, room in rooms.items()}
    room, limit = own.get(device.removeprefix("cuda:"), (None, None))
    return Placed(device, modules, size, room, limit, None if room is None else size <= room)


def room_problems(placement: list[Placed]) -> Iterator[Problem]:
    """Devices that would be asked for more than they have, and what would be left on the disk."""
    for one in placement:
        if one.fits is False:
            yield problems.problem(
                "no_room",
                phrase(
                    "folders.no_room_on_device",
                    device=one.device,
                    expected=one.size_bytes,
                    found=one.room_bytes,
                    limit=limit(one.limit),
                ),
                key=one.device,
                expected=one.size_bytes,
                found=one.room_bytes,
            )
        elif one.device == "disk":
            yield problems.problem(
                "no_room",
                phrase("folders.no_room_but_disk", expected=one.size_bytes, modules=one.modules),
                key=one.device,
                expected=one.size_bytes,
                found=0,
            )
