"""What the operating system tells of a thread's time besides the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_SCHEDULE: Final = Path("/proc/thread-self/schedstat")


def waited_ns() -> int | None:
    """Time that this thread was ready to run and waited for a processor, since it began.

    On a busy machine this is where unexplained time goes. None where the system hides it.
    """
    try:
        _, waited, _ = _SCHEDULE.read_bytes().split()
    except (OSError, ValueError):
        return None
    return int(waited)
