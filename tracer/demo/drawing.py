"""Scenes as data, the small language that names them, and their drawing with PIL.

A scene is up to four coloured shapes, at most one in each quarter of the picture. Drawing is
deterministic: the same scene, size and seed give the same pixels. It knows no questions, no
tokens and no model; `questions` asks about scenes, `examples` draws the random ones.
"""

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image, ImageDraw

from tracer.errors import TracerError
from tracer.explain.sentences import phrase

RGB = tuple[int, int, int]
Point = tuple[float, float]

COLOURS: dict[str, RGB] = {
    "red": (220, 40, 40),
    "green": (40, 165, 70),
    "blue": (45, 85, 220),
    "yellow": (240, 215, 50),
    "purple": (140, 60, 180),
    "orange": (245, 135, 30),
}
FORMS = ("circle", "square", "triangle", "star")
PLACES = ("top left", "top right", "bottom left", "bottom right")
MOTIONS = ("left", "right", "up", "down", "still")

WHITE: RGB = (255, 255, 255)
SUPERSAMPLING = 3  # drawn three times as large and averaged, so that edges are smooth


class SceneError(TracerError):
    """A description of a scene that this small language does not know."""


@dataclass(frozen=True, order=True)
class Shape:
    """One coloured form in one quarter of a picture."""

    place: str
    colour: str
    form: str

    @property
    def name(self) -> str:
        """Colour and form, as in `red circle`."""
        return f"{self.colour} {self.form}"


@dataclass(frozen=True)
class Scene:
    """The shapes of a picture, in reading order."""

    shapes: tuple[Shape, ...]

    def __str__(self) -> str:
        """Give the description that `parse_scene` reads back."""
        return ", ".join(f"{shape.name} {shape.place}" for shape in self.shapes) or "empty"


@dataclass(frozen=True)
class Movie:
    """One shape that moves through a short video, or stays where it is."""

    colour: str
    form: str
    motion: str

    def __str__(self) -> str:
        """Give the description that `parse_movie` reads back."""
        return f"{self.colour} {self.form} moves {self.motion}".replace("moves still", "still")


@dataclass(frozen=True)
class Stroke:
    """A shape ready to be drawn: fractions of the picture's width and height, and a colour."""

    form: str
    x: float
    y: float
    radius: float  # fraction of the shorter side
    colour: RGB


def parse_scene(description: str) -> Scene:
    """Read `red circle top left, blue star bottom right`, or `empty`.

    Raises:
        SceneError: a word that is not known, or two shapes in one quarter.
    """
    text = " ".join(description.lower().split())
    if text in ("", "empty"):
        return Scene(())
    shapes = [_parse_shape(part.strip()) for part in text.split(",")]
    places = [shape.place for shape in shapes]
    for place in places:
        if places.count(place) > 1:
            raise SceneError(
                phrase(
                    "errors.two_in_a_quarter",
                    place=place,
                    scene=description,
                    known=", ".join(PLACES),
                )
            )
    return Scene(tuple(sorted(shapes, key=lambda shape: PLACES.index(shape.place))))


def _parse_shape(text: str) -> Shape:
    words = text.split()
    if len(words) != 4:
        raise SceneError(phrase("errors.no_shape", shape=text))
    colour, form, place = words[0], words[1], " ".join(words[2:])
    _require(colour, tuple(COLOURS), "colour")
    _require(form, FORMS, "form")
    _require(place, PLACES, "place")
    return Shape(place, colour, form)


def parse_movie(description: str) -> Movie:
    """Read `red circle moves left` (or right, up, down), or `red circle still`.

    Raises:
        SceneError: a word that is not known.
    """
    text = " ".join(description.lower().split())
    found = re.fullmatch(r"(\S+) (\S+) (?:moves )?(\S+)", text)
    if found is None:
        raise SceneError(phrase("errors.no_movie", scene=description))
    colour, form, motion = found.groups()
    _require(colour, tuple(COLOURS), "colour")
    _require(form, FORMS, "form")
    _require(motion, MOTIONS, "motion")
    return Movie(colour, form, motion)


def _require(word: str, known: tuple[str, ...], what: str) -> None:
    if word not in known:
        raise SceneError(phrase(f"errors.unknown_{what}", word=word, known=", ".join(known)))


def draw_scene(
    description: str | Scene, size: int | tuple[int, int] = 112, seed: int | None = None
) -> Image.Image:
    """Draw a scene such as `red circle top left, blue star bottom right`.

    Args:
        description: the scene, in words or as data.
        size: the side in pixels of a square picture, or (width, height).
        seed: None centres each shape in its quarter on white; a number jitters place, size,
            colour and background, always in the same way for the same number.

    Raises:
        SceneError: a word that is not known, or two shapes in one quarter.
    """
    scene = parse_scene(description) if isinstance(description, str) else description
    jitter = Jitter(seed)
    background = jitter.background()
    strokes = [jitter.quarter(shape) for shape in scene.shapes]
    return paint(strokes, background, _pixels(size))


def draw_movie(
    description: str | Movie,
    size: int | tuple[int, int] = 112,
    frames: int = 4,
    seed: int | None = None,
) -> list[Image.Image]:
    """Draw the frames of one moving shape, such as `red circle moves left`.

    Raises:
        SceneError: a word that is not known.
    """
    movie = parse_movie(description) if isinstance(description, str) else description
    jitter = Jitter(seed)
    background = jitter.background()
    path = jitter.path(movie, frames)
    return [paint([stroke], background, _pixels(size)) for stroke in path]


def _pixels(size: int | tuple[int, int]) -> tuple[int, int]:
    width, height = (size, size) if isinstance(size, int) else size
    if min(width, height) < 8:
        raise SceneError(phrase("errors.too_small", width=width, height=height))
    return width, height


class Jitter:
    """The small random differences between two pictures of one scene; none without a seed."""

    def __init__(self, seed: int | None) -> None:
        """Start at a seed; None means the tidy picture."""
        self._random = None if seed is None else random.Random(seed)

    def between(self, low: float, high: float) -> float:
        """Give a number of the range, or its middle without a seed."""
        if self._random is None:
            return (low + high) / 2
        return self._random.uniform(low, high)

    def background(self) -> RGB:
        """Give white without a seed, else a light (mostly) or dark colour with a slight tint."""
        if self._random is None:
            return WHITE
        level = self.between(0, 45) if self._random.random() < 0.2 else self.between(205, 255)
        return self._tinted((level, level, level), 10)

    def colour(self, name: str) -> RGB:
        """Give a colour close to the named one."""
        return COLOURS[name] if self._random is None else self._tinted(COLOURS[name], 18)

    def _tinted(self, rgb: tuple[float, float, float], spread: float) -> RGB:
        red, green, blue = (
            min(255, max(0, round(part + self.between(-spread, spread)))) for part in rgb
        )
        return red, green, blue

    def quarter(self, shape: Shape) -> Stroke:
        """Place a shape inside its quarter."""
        radius = self.between(0.14, 0.21)
        left = 0.5 if shape.place.endswith("right") else 0.0
        top = 0.5 if shape.place.startswith("bottom") else 0.0
        slack = 0.23 - radius
        x = left + 0.25 + self.between(-slack, slack)
        y = top + 0.25 + self.between(-slack, slack)
        return Stroke(shape.form, x, y, radius, self.colour(shape.colour))

    def path(self, movie: Movie, frames: int) -> Iterator[Stroke]:
        """Give the strokes of a movie, one a frame."""
        radius, colour = self.between(0.13, 0.19), self.colour(movie.colour)
        across = self.between(0.3, 0.7)
        start, end = self.between(0.22, 0.30), self.between(0.70, 0.78)
        if movie.motion in ("left", "up"):
            start, end = end, start
        if movie.motion == "still":
            start = end = self.between(0.3, 0.7)
        for index in range(frames):
            along = start + (end - start) * index / max(1, frames - 1)
            x, y = (across, along) if movie.motion in ("up", "down") else (along, across)
            yield Stroke(movie.form, x, y, radius, colour)


def paint(strokes: list[Stroke], background: RGB, size: tuple[int, int]) -> Image.Image:
    """Draw strokes on a background; `size` is (width, height) in pixels."""
    width, height = (side * SUPERSAMPLING for side in size)
    image = Image.new("RGB", (width, height), background)
    pencil = ImageDraw.Draw(image)
    for stroke in strokes:
        radius = stroke.radius * min(width, height)
        x, y = stroke.x * width, stroke.y * height
        if stroke.form == "circle":
            pencil.ellipse((x - radius, y - radius, x + radius, y + radius), fill=stroke.colour)
        else:
            pencil.polygon(_corners(stroke.form, x, y, radius), fill=stroke.colour)
    return image.reduce(SUPERSAMPLING)


def _corners(form: str, x: float, y: float, radius: float) -> list[Point]:
    if form == "square":
        side = radius * 0.88  # looks as large as a circle of that radius
        signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
        return [(x + side * right, y + side * down) for right, down in signs]
    points = 3 if form == "triangle" else 10
    corners = []
    for index in range(points):
        is_notch = form == "star" and index % 2 == 1
        length = radius * 1.12 * (0.45 if is_notch else 1.0)
        angle = math.tau * index / points - math.pi / 2
        corners.append((x + length * math.cos(angle), y + length * math.sin(angle)))
    return corners
