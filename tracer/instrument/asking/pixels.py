"""What an image or video processor was given, and what its pictures became: sizes, grid, values."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from tracer.instrument.asking import resizes
from tracer.instrument.asking.images import Image
from tracer.instrument.stages import Call
from tracer.spans import ThreadState

NAMES: Final = {
    "image": ("image_grid_thw", "pixel_values"),
    "video": ("video_grid_thw", "pixel_values_videos"),
}
"""What a processor calls the grids and the values of each kind."""


def pictures_given(call: Call) -> tuple[str, Any]:
    """Whether an image processor was given images or videos, and which."""
    videos = call.kwargs.get("videos")
    first = call.args[1] if len(call.args) > 1 else None
    if hasattr(call.args[0], "fetch_videos"):
        return "video", first if videos is None else videos
    if videos is not None:
        return "video", videos
    return "image", call.kwargs.get("images") if first is None else first


def add_resizes(state: ThreadState, part: Any, taken: list[Image], asked: dict[str, Any]) -> None:
    """What the processor's size function was asked, pictures of one size once for all of them."""
    seen = {one.before: one for one in resizes.taken(state)}
    for image in taken:
        size = image.original_w, image.original_h
        if image.helper_w is not None:
            size = image.helper_w, image.helper_h
        resize = seen.get(size)  # type: ignore[arg-type]
        if resize is None:
            continue
        name = resize.acted or "max_pixels"
        value = resize.max_pixels if name == "max_pixels" else resize.min_pixels
        origin = resizes.origin_of(state.recorder, part, asked, name, value)
        image.resizes.append(dataclasses.replace(resize, origin=origin))
        image.processor_w, image.processor_h = resize.after


def add_pixels(taken: list[Image], part: Any, kind: str, result: Any) -> None:
    """Grid and values of each picture, out of what all of them became."""
    grids, pixels = NAMES[kind]
    values = result.get(pixels)
    if values is None:
        values = result.get("pixel_values")
    if grids in result:
        _add_grids(taken, part, result[grids], values)
    elif getattr(values, "ndim", 0) == 4 and len(values) == len(taken):
        for image, own in zip(taken, values, strict=True):  # (image, channel, height, width)
            image.processor_w, image.processor_h = int(own.shape[-1]), int(own.shape[-2])
            image.value_min, image.value_max = own.min(), own.max()


def _add_grids(taken: list[Image], part: Any, grids: Any, values: Any) -> None:
    merge = getattr(part, "merge_size", 1) or 1
    patch = getattr(part, "patch_size", None)
    start = 0
    rows = grids.tolist() if hasattr(grids, "tolist") else list(grids)
    for image, (frames, down, across) in zip(taken, rows, strict=False):
        image.grid_t, image.grid_h, image.grid_w = int(frames), int(down), int(across)
        image.patches = image.grid_t * image.grid_h * image.grid_w
        image.expected_tokens = image.patches // merge**2
        if isinstance(patch, int):
            image.processor_h, image.processor_w = image.grid_h * patch, image.grid_w * patch
        if hasattr(values, "min"):
            own = values[start : start + image.patches]
            image.value_min, image.value_max = own.min(), own.max()
        start += image.patches
