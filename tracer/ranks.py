"""Which process of a distributed run this is, where it records, and how its clocks were paired.

`torchrun` starts several processes of one program, each with a rank. Nothing here imports torch:
it looks whether the user did. It reads and merges no trace; `merging` does.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

MOST_RANKS: Final = 65_536
"""More than any run has; a manifest that claims more is damaged."""
PAIRED_ALONE: Final = "alone"
PAIRED_TOGETHER: Final = "after a barrier"

_FOLDER: Final = re.compile(r"rank-(\d{5})")
# Who records on one rank only waits so long for the others, once in a process.
_PATIENCE: Final = datetime.timedelta(seconds=2)
_PAIRINGS: Final = 5
# What torchrun tells every process of one start, and of no other.
_LAUNCH: Final = (
    "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip

_meetings: Counter[str] = Counter()
_missed: list[str] = []  # places where others did not come; after one nobody is waited for


@dataclasses.dataclass(frozen=True, slots=True)
class Rank:
    """One process of a run.

    Attributes:
        number: 0 outside distributed runs.
        world_size: Number of processes; 1 outside distributed runs.
        launch: The same for all processes of one start, without the name of a machine in it.
    """

    number: int = 0
    world_size: int = 1
    launch: str = ""

    @property
    def folder(self) -> str:
        """Name of this rank's folder inside the folder of the whole run."""
        return f"rank-{self.number:05d}"

    def fields(self) -> dict[str, Any]:
        """What the manifest says of it."""
        alone = {"rank": self.number, "world_size": self.world_size}
        return alone | {"launch": self.launch} if self.launch else alone


def current_rank() -> Rank:
    """The rank of this process: as torch.distributed says, else as torchrun told it."""
    distributed = _distributed()
    if distributed is not None:
        number, world_size = distributed.get_rank(), distributed.get_world_size()
    else:
        number, world_size = _told("RANK"), _told("WORLD_SIZE")
    if number is None or world_size is None or not 0 <= number < world_size <= MOST_RANKS:
        return Rank()
    if world_size == 1:
        return Rank()
    words = "\n".join(os.environ.get(name, "") for name in _LAUNCH)
    return Rank(number, world_size, hashlib.sha256(words.encode()).hexdigest()[:12])


def _told(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def _distributed() -> Any:
    """torch.distributed where the user's program initialised it."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def rank_folders(folder: Path) -> dict[int, Path]:
    """The folders of ranks inside a run's folder, by rank."""
    found = {}
    for inner in folder.iterdir():
        match = _FOLDER.fullmatch(inner.name)
        if match and inner.is_dir() and not inner.is_symlink():
            found[int(match[1])] = inner
    return dict(sorted(found.items()))


def meet(rank: Rank, place: str) -> bool:
    """Wait until all ranks begin their recording at this place; whether they did, within seconds.

    The ranks leave a mark in the store through which they found each other. No collective is
    used: one that some ranks never join would hang the user's run or mix with the user's own.
    """
    distributed = _distributed()
    if rank.world_size == 1 or distributed is None or _missed:
        return False
    open_store = getattr(distributed.distributed_c10d, "_get_default_store", None)
    if open_store is None:
        return False
    _meetings[place] += 1
    keys = [f"tracer/{place}/{_meetings[place]}/{each}" for each in range(rank.world_size)]
    try:
        store = open_store()
        store.set(keys[rank.number], "here")
        store.wait(keys, _PATIENCE)
    except RuntimeError:  # DistStoreError: a rank that does not record, or one far behind
        _missed.append(place)
        return False
    return True


def clock_pair(clock: Callable[[], int], origin: int, has_met: bool) -> dict[str, Any]:
    """Wall and monotonic clock read as one moment, in ns, and where the trace's time begins."""
    readings = []
    for _ in range(_PAIRINGS):
        before, wall, after = clock(), time.time_ns(), clock()
        readings.append((after - before, wall, (before + after) // 2))
    _, wall, monotonic = min(readings)
    paired = PAIRED_TOGETHER if has_met else PAIRED_ALONE
    return {"wall_ns": wall, "monotonic_ns": monotonic, "origin_ns": origin, "paired": paired}
