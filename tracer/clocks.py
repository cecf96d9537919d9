"""What the operating system tells of a thread's time besides the clock."""

from __future__ import annotations

import contextlib
import os
from typing import Final

_SCHEDULE: Final = "/proc/thread-self/schedstat"


def open_schedule() -> int | None:
    """A file that tells `waited_ns` of this thread, to be closed; None where there is none.

    Kept open while a thread is watched: to open it takes five times as long as to read it.
    """
    try:
        return os.open(_SCHEDULE, os.O_RDONLY)
    except OSError:
        return None


def close_schedule(file: int | None) -> None:
    """Close what `open_schedule` gave."""
    if file is not None:
        with contextlib.suppress(OSError):
            os.close(file)


def waited_ns(file: int | None) -> int | None:
    """Time that a thread was ready to run and waited for a processor, since it began.

    On a busy machine this is where unexplained time goes. None where the system hides it.
    """
    if file is None:
        return None
    try:
        _, waited, _ = os.pread(file, 64, 0).split()  # three numbers: run, waited, times
    except (OSError, ValueError):
        return None
    return int(waited)
