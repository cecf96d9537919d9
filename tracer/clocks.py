"""What the operating system tells of a thread's time besides the clock."""

from __future__ import annotations

import os
from typing import Final

_SCHEDULE: Final = "/proc/thread-self/schedstat"


def waited_ns() -> int | None:
    """Time that this thread was ready to run and waited for a processor, since it began.

    On a busy machine this is where unexplained time goes. None where the system hides it.
    """
    try:
        file = os.open(_SCHEDULE, os.O_RDONLY)
    except OSError:
        return None
    try:
        _, waited, _ = os.read(file, 64).split()  # three numbers: run, waited, times
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)
    return int(waited)
