"""Images on their way in: found in messages, fetched, resized by the helper, then the processor.

Each image is one `Image` record that stages complete in turn; its row of `images` is written when
the model has consumed it, or when the recording ends.
"""

from __future__ import annotations

import dataclasses
from pathlib import PurePath
from typing import Any

from tracer.instrument.stages import Call, Observer, open_span
from tracer.recorder import Recorder
from tracer.spans import ThreadState


@dataclasses.dataclass(slots=True)
class Image:
    """What is known of one image so far; names are columns of `images`."""

    index: int = 0
    kind: str = "image"
    row: int = 0
    source_kind: str | None = None
    fetch_ns: int | None = None
    mode: str | None = None
    original_w: int | None = None
    original_h: int | None = None
    helper_w: int | None = None
    helper_h: int | None = None
    processor_w: int | None = None
    processor_h: int | None = None
    limit: str | None = None
    limit_origin: str | None = None
    grid_t: int | None = None
    grid_h: int | None = None
    grid_w: int | None = None
    patches: int | None = None
    value_min: float | None = None
    value_max: float | None = None
    frames: int | None = None
    fps: float | None = None
    fps_known: bool | None = None
    seconds_per_grid: float | None = None
    expected_tokens: int | None = None
    found_tokens: int | None = None
    replaced_embeddings: int | None = None
    first_position: int | None = None


def _fetched_of(recorder: Recorder) -> list[tuple[int, Image]]:
    """Images out of the helper that no processor has taken yet, by the picture's identity."""
    waiting: list[tuple[int, Image]] = recorder.notes.setdefault("fetched", [])
    return waiting


def found(state: ThreadState, call: Call) -> Observer:
    """`extract_vision_info`: which parts of the messages are images or videos."""
    span = open_span(state, call)
    outcome = yield None
    state.close(span, outcome.status, summary={"found": len(outcome.result or ())})


def fetched(state: ThreadState, call: Call) -> Observer:
    """`fetch_image`, `fetch_video`: from a path, address or picture to what the processor gets."""
    element = call.argument(0, "ele")
    kind = "video" if call.target.attribute == "fetch_video" else "image"
    image = Image(kind=kind)
    given = element.get(kind, element.get("image_url"))
    image.source_kind = _source_kind(given)
    image.mode = _mode_of(given)
    span = open_span(state, call)
    video = state.recorder.notes.get("fetching")
    state.recorder.notes["fetching"] = image
    outcome = yield None
    state.recorder.notes["fetching"] = video
    image.fetch_ns = state.recorder.clock() - span.start
    state.close(span, outcome.status, summary={"source": image.source_kind})
    result = outcome.result[0] if isinstance(outcome.result, tuple) else outcome.result
    if hasattr(result, "ndim") and result.ndim == 4:  # (frame, channel, height, width)
        image.frames = int(result.shape[0])
        image.helper_h, image.helper_w = (int(size) for size in result.shape[-2:])
    elif _mode_of(result) is not None:
        image.helper_w, image.helper_h = result.size
    if image.helper_w is not None and video is None:  # a video's frames are its own
        # The identity of the picture is how the processor's input is recognised; the list is
        # emptied by the next processor call, before another picture can take the same place.
        _fetched_of(state.recorder).append((id(result), image))


def _mode_of(picture: Any) -> str | None:
    """Colour mode of a PIL image; a tensor has a method of that name."""
    mode = getattr(picture, "mode", None)
    return mode if isinstance(mode, str) else None


def _source_kind(given: Any) -> str | None:
    if isinstance(given, str):
        for start, kind in (("http", "url"), ("data:", "data"), ("file://", "path")):
            if given.startswith(start):
                return kind
        return "path"
    if isinstance(given, PurePath):
        return "path"
    if _mode_of(given) is not None:
        return "PIL"
    if isinstance(given, list | tuple):
        return "frames"
    return "tensor" if hasattr(given, "shape") else None


def resized(state: ThreadState, call: Call) -> Observer:
    """`smart_resize` inside the helper: it is handed the size as opened, and the limits."""
    image: Image | None = state.recorder.notes.get("fetching")
    outcome = yield None
    if image is None or outcome.error is not None:
        return
    image.original_h, image.original_w = int(call.args[0]), int(call.args[1])
    height, width = outcome.result
    given = call.kwargs
    limits = {name: given[name] for name in ("min_pixels", "max_pixels") if name in given}
    said = ", ".join(f"{name}={value}" for name, value in limits.items())
    image.limit = f"helper: {said or 'multiples of the patch only'}"
    if (height, width) == (image.original_h, image.original_w):
        image.limit += "; none acted"


def take(recorder: Recorder, pictures: list[Any], kind: str = "image") -> list[Image]:
    """The records of the pictures that a processor was given; new ones for pictures unknown."""
    waiting = _fetched_of(recorder)
    taken = []
    for index, picture in enumerate(pictures):
        image = next((image for identity, image in waiting if identity == id(picture)), None)
        if image is None:
            image = Image(kind=kind, source_kind=_source_kind(picture))
            size = getattr(picture, "size", None)
            if isinstance(size, tuple):
                image.original_w, image.original_h = size
            image.mode = _mode_of(picture)
        image.index = index
        taken.append(image)
    waiting.clear()
    return taken


def tell(recorder: Recorder, image: Image, event: int, call: int) -> None:
    """Write the row of an image."""
    recorder.add_fact("images", event, call, **dataclasses.asdict(image))
