"""Pictures and videos on their way into a question: read, checked, with a small preview.

A file that is none of these, is broken, or is too large to be safe is refused in one sentence.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import importlib.util
import io
import warnings
from collections.abc import Sequence
from typing import Any, Final

from PIL import Image, ImageSequence, UnidentifiedImageError

from tracer.errors import TracerError
from tracer.explain import text

MOST_PIXELS: Final = 200_000_000
"""Beyond it a picture is refused: decoded it would take more than half a gigabyte."""
MOST_BYTES: Final = 200_000_000
LARGE_PIXELS: Final = 16_000_000
MOST_FRAMES: Final = 16
"""Of a longer video so many frames are taken, evenly."""
_VIDEO_ENDS: Final = (".mp4", ".mov", ".webm", ".mkv", ".avi", ".m4v")
_PREVIEW: Final = (72, 72)


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """What a question is asked about: an image, or a video with several frames.

    Attributes:
        name: Of the file or the scene.
        frames: PIL images; one for an image.
        note: What to know about it; empty where there is nothing.
    """

    name: str
    frames: tuple[Any, ...]
    is_video: bool = False
    note: str = ""
    preview: str = dataclasses.field(default="", compare=False)

    @property
    def size(self) -> str:
        """Width, height, and the number of frames of a video."""
        width, height = self.frames[0].size
        return f"{width} × {height}" + (f" × {len(self.frames)}" if self.is_video else "")


def drawn(name: str, frames: Sequence[Any], *, is_video: bool = False) -> Picture:
    """A picture out of what is in memory already."""
    return Picture(name, tuple(frames), is_video, preview=_preview(frames[0]))


def read(name: str, content: bytes) -> Picture:
    """A picture out of the bytes of a file.

    Raises:
        TracerError: It is empty, broken, too large, or of a kind that can't be read here.
    """
    if not content:
        raise TracerError(text("explorer.file_empty", name=name))
    if name.lower().endswith(_VIDEO_ENDS):
        return _video(name, content)
    try:
        return _image(name, content)
    except UnidentifiedImageError:
        raise TracerError(text("explorer.file_unknown", name=name)) from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # each format has its own
        raise TracerError(text("explorer.file_broken", name=name, why=str(error))) from error


def _image(name: str, content: bytes) -> Picture:
    with warnings.catch_warnings():
        # What is too large is decided below, with a number that people understand.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(io.BytesIO(content))
        except Image.DecompressionBombError as error:
            raise TracerError(
                text("explorer.file_huge", name=name, most=MOST_PIXELS // 1_000_000)
            ) from error
    pixels = image.width * image.height
    if pixels > MOST_PIXELS:
        raise TracerError(text("explorer.file_huge", name=name, most=MOST_PIXELS // 1_000_000))
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format in ("GIF", "WEBP", "PNG"):
        taken = _evenly(frames)
        found = [
            frame.convert("RGB")
            for number, frame in enumerate(ImageSequence.Iterator(image))
            if number in taken
        ]
        return Picture(name, tuple(found), True, _frames_note(frames), _preview(found[0]))
    plain = image.convert("RGB")  # which decodes it all: what is broken fails here
    note = ""
    if pixels > LARGE_PIXELS:
        note = text("explorer.file_large", megapixels=f"{pixels / 1e6:.0f}")
    return Picture(name, (plain,), False, note, _preview(plain))


def _video(name: str, content: bytes) -> Picture:
    if importlib.util.find_spec("av") is None:
        raise TracerError(text("explorer.no_decoder", name=name))
    av: Any = importlib.import_module("av")  # not one of our own requirements
    try:
        with av.open(io.BytesIO(content), mode="r") as container:
            frames = [frame.to_image() for frame in container.decode(video=0)]
    except (av.FFmpegError, IndexError, ValueError) as error:
        raise TracerError(text("explorer.file_broken", name=name, why=str(error))) from error
    if not frames:
        raise TracerError(text("explorer.file_broken", name=name, why=text("explorer.no_frames")))
    found = [frame for number, frame in enumerate(frames) if number in _evenly(len(frames))]
    return Picture(name, tuple(found), True, _frames_note(len(frames)), _preview(found[0]))


def _evenly(count: int) -> set[int]:
    taken = min(count, MOST_FRAMES)
    return {round(number * (count - 1) / max(taken - 1, 1)) for number in range(taken)}


def _frames_note(count: int) -> str:
    if count <= MOST_FRAMES:
        return ""
    return text("explorer.frames_taken", taken=MOST_FRAMES, count=count)


def _preview(image: Any) -> str:
    small = image.copy() if max(image.size) < 2000 else image.reduce(max(image.size) // 500)
    small.thumbnail(_PREVIEW)
    content = io.BytesIO()
    small.convert("RGB").save(content, "PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode("ascii")
