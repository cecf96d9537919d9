"""Tensors, caches and memory as plain numbers. Reads; never moves, copies or synchronises."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, Final

try:
    import resource
except ImportError:  # Windows has none: page faults are missing there, not 0
    resource = None  # type: ignore[assignment]

_STATUS: Final = "/proc/self/status"
_PAGES: Final = "/proc/self/statm"
_IO: Final = "/proc/self/io"
_LARGEST: Final = 1 << 14
_FIELDS: Final = {
    b"VmRSS:": "rss_bytes",
    b"RssAnon:": "anonymous_bytes",
    b"RssFile:": "file_bytes",
}


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: Any) -> str | None:
    """`bfloat16` of `torch.bfloat16`; None of None."""
    return None if dtype is None else str(dtype).removeprefix("torch.")


@functools.lru_cache(maxsize=256)
def device_name(device: Any) -> str:
    """`cuda:0` of the device; kept, since torch puts the text together anew each time."""
    return str(device)


def shape_of(tensor: Any) -> list[int]:
    """Shape as a plain list."""
    return [int(size) for size in tensor.shape]


def size_of(tensor: Any) -> int:
    """Bytes that the values need, whether or not they exist (meta)."""
    return int(tensor.numel() * tensor.element_size())


def _told_by_system(path: str) -> bytes:
    """What a file of the kernel says, in one read; nothing where it can't be had.

    Without the layers of `open`, which take several times as long as the kernel does.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, _LARGEST)
    except OSError:  # a process that changed its user may not read its own
        return b""
    finally:
        os.close(file)


def process_memory() -> dict[str, int | None]:
    """Resident memory, split by what backs it; missing where the system does not tell."""
    found: dict[str, int | None] = dict.fromkeys(_FIELDS.values())
    for line in _told_by_system(_STATUS).splitlines():
        name, _, rest = line.partition(b"\t")
        if name in _FIELDS:
            found[_FIELDS[name]] = int(rest.split()[0]) * 1024
    return found


def quick_process_memory() -> dict[str, int | None]:
    """The same from a file that is read several times faster; shared memory counts as a file's."""
    pages = _told_by_system(_PAGES).split()
    if len(pages) < 3:
        return dict.fromkeys(_FIELDS.values())
    page = os.sysconf("SC_PAGE_SIZE")
    resident_pages, shared_pages = int(pages[1]), int(pages[2])
    return {
        "rss_bytes": resident_pages * page,
        "anonymous_bytes": (resident_pages - shared_pages) * page,
        "file_bytes": shared_pages * page,
    }


def resident_bytes() -> int | None:
    """Resident memory alone."""
    return quick_process_memory()["rss_bytes"]


def device_memory() -> dict[str, int | None]:
    """Bytes allocated and reserved on CUDA devices; missing without an initialised device."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {"device_allocated_bytes": None, "device_reserved_bytes": None}
    devices = range(torch.cuda.device_count())
    return {
        "device_allocated_bytes": sum(torch.cuda.memory_allocated(index) for index in devices),
        "device_reserved_bytes": sum(torch.cuda.memory_reserved(index) for index in devices),
    }


def disk_bytes() -> int | None:
    """Bytes that this process has read from disk so far; missing where the system hides it."""
    for line in _told_by_system(_IO).splitlines():
        name, _, value = line.partition(b":")
        if name == b"read_bytes":
            return int(value)
    return None


def thread_usage() -> Callable[[], Any]:
    """What asks the system for this thread's counters; gives None where it hides them."""
    who = getattr(resource, "RUSAGE_THREAD", None)  # of Linux alone
    if resource is None or who is None:
        return lambda: None
    return functools.partial(resource.getrusage, who)


def thread_faults() -> tuple[int, int] | None:
    """Minor and major page faults of this thread so far; None where the system hides them."""
    usage = thread_usage()()
    return None if usage is None else (usage.ru_minflt, usage.ru_majflt)


def process_faults() -> dict[str, int | None]:
    """Minor and major page faults of the whole process so far; missing where the system hides them.

    macOS and Linux count them, each in its own way; what a graph shows is how they grow.
    """
    if resource is None:
        return {"minor_faults": None, "major_faults": None}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"minor_faults": usage.ru_minflt, "major_faults": usage.ru_majflt}
