"""Time of a forward on its device: two events in the device's queue, read once they have come.

The host runs ahead of a GPU, so that its clock tells when work was handed over, not when it was
done. To put an event into the queue waits for nothing, nor does asking whether it has come.
"""

from __future__ import annotations

import sys
from typing import Any


class DeviceTimer:
    """Two events round a forward, on the stream that its device uses now."""

    __slots__ = ("_after", "_before", "_device")

    def __init__(self, device: Any) -> None:
        cuda = sys.modules["torch"].cuda
        self._device = device
        self._before, self._after = (cuda.Event(enable_timing=True) for _ in range(2))
        self._before.record(cuda.current_stream(device))

    def end(self) -> None:
        """The forward has been handed over as a whole."""
        self._after.record(sys.modules["torch"].cuda.current_stream(self._device))

    def read(self) -> int | None:
        """Nanoseconds between the two events; None where the device has not come so far yet."""
        if not (self._before.query() and self._after.query()):
            return None
        milliseconds: float = self._before.elapsed_time(self._after)
        return round(milliseconds * 1e6)


def begin(model: Any, device: Any) -> DeviceTimer | None:
    """Time a forward of a model; None where it runs on the host, or on several devices at once."""
    if getattr(device, "type", None) != "cuda":
        return None
    parts = set((getattr(model, "hf_device_map", None) or {}).values())
    return DeviceTimer(device) if len(parts) <= 1 else None
