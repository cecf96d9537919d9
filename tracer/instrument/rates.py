"""The time base of videos: the sampling rate that a processor works with, and whether it was told.

Releases differ: the later ones keep a record of each video, the earlier ones take an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracer.instrument.images import Image
    from tracer.instrument.inputs import Work

_ASSUMED_FPS: Final = 24.0
"""What the library takes where nobody tells a rate (video_utils.py, `sampled_fps`)."""


def add_rates(videos: Sequence[Image], result: Any) -> None:
    """The sampling rate of each video, where the processor keeps a record that may hold one."""
    records = result.get("video_metadata") or ()
    for video, record in zip(videos, records, strict=False):
        video.fps_known = getattr(record, "fps", None) is not None
        video.fps = float(getattr(record, "sampled_fps", None) or _ASSUMED_FPS)


def add_times(videos: Sequence[Image], work: Work, result: Any) -> None:
    """Seconds of each step of a video's grid, where the processor tells them.

    Earlier releases keep no record of a video: the rate follows from the seconds, and it was told
    if the call has `fps`, which else has a default.
    """
    seconds = None if result is None else result.get("second_per_grid_ts")
    if seconds is None:
        return
    part, _ = work.settings.parts.get("video", (None, {}))
    patch = getattr(part, "temporal_patch_size", None)
    for video, value in zip(videos, seconds, strict=False):
        video.seconds_per_grid = float(value)
        if video.fps is None and patch is not None and value:
            video.fps = patch / float(value)
            video.fps_known = work.asked.get("fps") is not None
