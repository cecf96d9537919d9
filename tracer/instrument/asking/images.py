"""Images on their way in: found in messages, fetched, resized by the helper, then the processor.

Each image is one `Image` record that stages complete in turn; `image_rows.py` writes its row when
the model has consumed it, or when the recording ends.
"""

from __future__ import annotations

import dataclasses
from pathlib import PurePath
from typing import Any

from tracer.instrument.asking import resizes
from tracer.instrument.asking.resizes import Resize
from tracer.instrument.stages import Call, Observer, open_span
from tracer.recorder import Recorder
from tracer.spans import ThreadState


@dataclasses.dataclass(slots=True)
class Image:
    """What is known of one image so far; names are columns of `images`, but for the limits."""

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
    resizes: list[Resize] = dataclasses.field(default_factory=list)
    grid_t: int | None = None
    grid_h: int | None = None
    grid_w: int | None = None
    patches: int | None = None
    value_min: float | None = None
    value_max: float | None = None
    frames: int | None = None
    helper_fps: float | None = None
    fps: float | None = None
    fps_known: bool | None = None
    seconds_per_grid: float | None = None
    expected_tokens: int | None = None
    found_tokens: int | None = None
    replaced_embeddings: int | None = None
    first_position: int | None = None

    @property
    def grid(self) -> tuple[int | None, ...]:
        """Patches in time, down and across."""
        return self.grid_t, self.grid_h, self.grid_w


def _waiting(recorder: Recorder) -> list[tuple[int, Image]]:
    """Images fetched that no processor has taken yet, by the picture's identity."""
    waiting: list[tuple[int, Image]] = recorder.notes.setdefault("fetched", [])
    return waiting


def _being_fetched(state: ThreadState) -> Image | None:
    """The image or video whose fetching has begun in a thread and not ended, the innermost one."""
    image: Image | None = state.notes.get("fetching")
    return image


def found(state: ThreadState, call: Call) -> Observer:
    """`extract_vision_info`: which parts of the messages are images or videos."""
    span = open_span(state, call)
    outcome = yield None
    state.close(span, outcome.status, summary={"found": len(outcome.result or ())})


def fetched(state: ThreadState, call: Call) -> Observer:
    """`fetch_image`, `fetch_video`: from a path, address or picture to what the processor gets."""
    element = call.argument(0, "ele")
    kind = "video" if call.target.attribute == "fetch_video" else "image"
    given = element.get(kind, element.get("image_url"))
    image = _given(given, kind)
    span = open_span(state, call)
    # The helper fetches a video's frames in threads of its own, as images.
    around = [_being_fetched(one) for one in list(state.recorder.threads.values())]
    is_frame = kind == "image" and any(one and one.kind == "video" for one in around)
    outer = _being_fetched(state)
    state.note("fetching", image)
    outcome = yield None
    state.note("fetching", outer)
    image.fetch_ns = state.recorder.clock() - span.start
    state.close(span, outcome.status, summary={"source": image.source_kind})
    if outcome.error is not None or is_frame:
        return
    result = outcome.result
    if isinstance(result, tuple) and isinstance(result[-1], int | float):
        result, image.helper_fps = result[0], float(result[-1])
    picture = result[0] if isinstance(result, tuple) else result
    image.helper_w, image.helper_h = _size_of(picture)
    if kind == "video" and image.helper_w is not None:
        image.frames = int(picture.shape[0])
    image.resizes = [
        dataclasses.replace(one, origin=_helper_origin(element, one)) for one in image.resizes
    ]
    _await_processor(state.recorder, picture, image)


def _helper_origin(element: dict[str, Any], resize: Resize) -> str:
    """Who set the limits of the helper's resize: the message, or nobody."""
    names = ("resized_height", "resized_width", "min_pixels", "max_pixels", "total_pixels")
    said = [name for name in names if name in element]
    return f"message ({', '.join(said)})" if said else "library"


def _await_processor(recorder: Recorder, picture: Any, image: Image) -> None:
    # The identity of the picture is how the processor's input is recognised; the list is emptied
    # by the next processor call, before another picture can take the same place.
    if image.helper_w is not None or image.original_w is not None:
        _waiting(recorder).append((id(picture), image))


def loaded(state: ThreadState, call: Call) -> Observer:
    """`load_image`, `load_video`: the library's own way from a path or address to a picture."""
    kind = "video" if call.target.attribute == "load_video" else "image"
    image = _given(call.argument(0, kind), kind)
    span = open_span(state, call)
    outcome = yield None
    image.fetch_ns = state.recorder.clock() - span.start
    state.close(span, outcome.status, summary={"source": image.source_kind})
    if outcome.error is not None:
        return
    picture = outcome.result[0] if isinstance(outcome.result, tuple) else outcome.result
    if image.original_w is None:
        image.original_w, image.original_h = _size_of(picture)
    if kind == "video" and hasattr(picture, "shape"):
        image.frames = int(picture.shape[0])
    # A processor that loads is inside its own call and has only the name to know it by.
    loads: list[Image] = state.recorder.notes.setdefault("loaded", [])
    loads.append(image)
    _await_processor(state.recorder, picture, image)


def converted(state: ThreadState, call: Call) -> Observer:
    """`to_rgb` inside the helper: it is handed the picture as it was opened."""
    own = _being_fetched(state)
    picture = call.argument(0, "pil_image")
    if own is not None:
        own.mode = _mode_of(picture)
        own.original_w, own.original_h = _size_of(picture)
    yield None


def resized(state: ThreadState, call: Call) -> Observer:
    """`smart_resize` inside the helper: it is handed a size and the limits."""
    own = _being_fetched(state)
    outcome = yield None
    if own is None or outcome.error is not None:
        return
    resize = resizes.of_call("helper", call, outcome.result)
    if own.original_w is None or own.original_h is None:
        # A video out of a file: its frames as they were decoded.
        own.original_w, own.original_h = resize.before
    elif own.kind == "image":  # where the message asked for a size, that one is rounded
        resize = dataclasses.replace(resize, before=(own.original_w, own.original_h))
    own.resizes.append(resize)


def configured(state: ThreadState, call: Call) -> Observer:
    """`from_dict` of an image or video processor: what its file and the caller say of it."""
    span = open_span(state, call)
    given, arguments = call.argument(1, "image_processor_dict"), dict(call.kwargs)
    given = dict(given) if isinstance(given, dict) else None  # the library takes entries out
    outcome = yield None
    state.close(span, outcome.status)
    made = outcome.result[0] if isinstance(outcome.result, tuple) else outcome.result
    if made is not None:
        resizes.note_configuration(state.recorder, made, given, arguments)


def _mode_of(picture: Any) -> str | None:
    """Colour mode of a PIL image; a tensor has a method of that name."""
    mode = getattr(picture, "mode", None)
    return mode if isinstance(mode, str) else None


def _size_of(picture: Any) -> tuple[int | None, int | None]:
    """Width and height of a PIL image, of frames (frame, channel, height, width), or unknown."""
    if _mode_of(picture) is not None:
        width, height = picture.size
        return int(width), int(height)
    if isinstance(picture, list | tuple) and len(picture):
        return _size_of(picture[0])
    shape = [int(size) for size in getattr(picture, "shape", ())]
    if len(shape) < 2:
        return None, None
    if len(shape) >= 3 and shape[-1] in (1, 3, 4) and shape[-3] not in (1, 3, 4):  # channels last
        shape.pop()
    return shape[-1], shape[-2]


def _given(picture: Any, kind: str) -> Image:
    """A new record of a picture as the user gave it."""
    image = Image(kind=kind, source_kind=_source_kind(picture), mode=_mode_of(picture))
    if not isinstance(picture, str | PurePath):
        image.original_w, image.original_h = _size_of(picture)
    if kind == "video" and isinstance(picture, list | tuple):
        image.frames, image.mode = len(picture), _mode_of(picture[0]) if picture else None
    elif kind == "video" and hasattr(picture, "shape"):
        image.frames = int(picture.shape[0])
    return image


def _source_kind(given: Any) -> str | None:
    if isinstance(given, str):
        for start, kind in (("http", "url"), ("data:", "base64"), ("file://", "file")):
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


def take(recorder: Recorder, pictures: list[Any], kind: str = "image") -> list[Image]:
    """The records of the pictures that a processor was given; new ones for pictures unknown."""
    waiting = _waiting(recorder)
    loads: list[Image] = recorder.notes.setdefault("loaded", [])
    taken = []
    for index, picture in enumerate(pictures):
        image = next((image for identity, image in waiting if identity == id(picture)), None)
        if image is None and isinstance(picture, str | PurePath):
            image = next((one for one in loads if one.kind == kind), None)
        if image is None:
            image = _given(picture, kind)
        loads[:] = [one for one in loads if one is not image]
        image.index = index
        taken.append(image)
    waiting[:] = [(one, image) for one, image in waiting if image.kind != kind]
    return taken


def flat_images(given: Any) -> list[Any]:
    """Single pictures out of one, a list, or a list a row."""
    if not isinstance(given, list | tuple):
        return [] if given is None else [given]
    return [one for inner in given for one in flat_images(inner)]


def flat_videos(given: Any) -> list[Any]:
    """Single videos: a tensor of frames, a path, or a list of frames each."""
    if given is None:
        return []
    if not isinstance(given, list | tuple) or (given and _is_frame(given[0])):
        return [given]
    return [one for inner in given for one in flat_videos(inner)]


def _is_frame(thing: Any) -> bool:
    return _mode_of(thing) is not None or len(getattr(thing, "shape", ())) == 3
