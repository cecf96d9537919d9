"""How much memory this process can still get: of the machine, its container, its own limit.

Read from the system without torch; what a platform does not tell is missing, never a guess.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

_PROC: Final = Path("/proc")
_CGROUP: Final = Path("/sys/fs/cgroup")


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """Memory that can still be had.

    Attributes:
        left_bytes: Bytes left under the narrowest limit.
        total_bytes: What that limit allows in all.
        limit: What sets it, in words.
    """

    left_bytes: int
    total_bytes: int
    limit: str


def memory_left(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Room | None:
    """The narrowest of the limits that this system tells; None where it tells none."""
    return min(_limits(proc, cgroup), key=lambda room: room.left_bytes, default=None)


def _limits(proc: Path, cgroup: Path) -> Iterator[Room]:
    meminfo = _kilobytes(proc / "meminfo")
    if {"MemAvailable", "MemTotal"} <= meminfo.keys():
        yield Room(meminfo["MemAvailable"], meminfo["MemTotal"], "memory of the machine")
    most, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if most is not None and used is not None:
        # Pages of files count as used, and are given back when something else needs them.
        used -= _kept_files(cgroup / "memory.stat")
        yield Room(max(most - used, 0), most, "memory limit of the container")
    if resource is not None and hasattr(resource, "RLIMIT_AS"):
        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = _kilobytes(proc / "self/status").get("VmSize")
        if most != resource.RLIM_INFINITY and used is not None:
            yield Room(max(most - used, 0), most, "address space limit of the process, ulimit -v")


def _kilobytes(path: Path) -> dict[str, int]:
    """Lines such as `MemAvailable:  123 kB`, in bytes."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", _text(path), re.M)
    return {name: int(value) * 1024 for name, value in found}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None  # `max` where there is no limit


def _kept_files(path: Path) -> int:
    found = re.findall(r"^(?:in)?active_file (\d+)$", _text(path), re.M)
    return sum(map(int, found))


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
