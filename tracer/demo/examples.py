"""One message about pictures: the scenes in it, how they are drawn, what is asked.

`batches` trains on many of them at once, `check` hands each to the library. No torch here.
"""

from dataclasses import dataclass

from PIL import Image

from tracer.demo.drawing import Movie, Scene, draw_movie, draw_scene
from tracer.demo.questions import Question

FRAMES = 4  # of a video: two temporal patches


@dataclass(frozen=True)
class Example:
    """Pictures, or the one video, of a message, and what is asked about them."""

    pictures: tuple[Scene, ...]
    movie: Movie | None
    size: tuple[int, int]  # width and height in pixels, before the processor's resizing
    seed: int  # of the jitter
    questions: tuple[Question, ...]


def draw(example: Example) -> list[list[Image.Image]]:
    """Draw an example's pictures, each a list of one frame, or the frames of its video."""
    if example.movie is not None:
        return [draw_movie(example.movie, example.size, FRAMES, example.seed)]
    return [
        [draw_scene(scene, example.size, example.seed + number)]
        for number, scene in enumerate(example.pictures)
    ]
