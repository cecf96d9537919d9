"""Random scenes: what the model is trained on, and what it is examined on.

One scene in ten is held out by its content, so a scene of the examination (whatever its size,
jitter and wording) never occurred in training. No torch here.
"""

import math
import random
import zlib

from tracer.demo.drawing import COLOURS, FORMS, MOTIONS, PLACES, Movie, Scene, Shape

HELD_OUT_OF = 10  # one scene of so many is kept for the examination
SHAPE_COUNTS = (0, 1, 2, 3)
SHAPE_SHARES = (0.03, 0.25, 0.36, 0.36)
PAIR_SHARES = (0.0, 0.6, 0.4, 0.0)
TWIN_SHARE = 0.25  # of the shapes of a twin that its model has too

# Width and height in merged patches of 28 pixels: 9 to 25 image tokens.
GRIDS = (
    *[(4, 4)] * 8,
    *[(3, 3), (5, 5), (3, 4), (4, 3), (4, 5), (5, 4), (3, 5), (5, 3), (4, 6), (6, 4)],
)
MOVIE_GRIDS = ((4, 4), (4, 4), (3, 3), (3, 4), (4, 3))
UNIT = 28
SMALLEST_PIXELS, LARGEST_PIXELS = 84 * 84, 140 * 140  # the processor's limits


def is_held_out(scene: Scene | Movie) -> bool:
    """Say whether a scene is kept for the examination; the empty one is always trained on."""
    text = str(scene)
    return text != "empty" and zlib.crc32(text.encode()) % HELD_OUT_OF == 0


def random_scene(
    chance: random.Random, held_out: bool, shares: tuple[float, ...] = SHAPE_SHARES
) -> Scene:
    """Draw a scene of the training set, or (never an empty one) of the examination."""
    while True:
        (count,) = chance.choices(SHAPE_COUNTS, shares)
        places = sorted(chance.sample(PLACES, count), key=PLACES.index)
        shapes = (Shape(p, chance.choice(tuple(COLOURS)), chance.choice(FORMS)) for p in places)
        scene = Scene(tuple(shapes))
        if is_held_out(scene) == held_out:
            return scene


def random_twin(chance: random.Random, held_out: bool, first: Scene) -> Scene:
    """Draw a scene with shapes in the same places as another's, some of them the same ones."""
    while True:
        shapes = []
        for shape in first.shapes:
            colour, form = chance.choice(tuple(COLOURS)), chance.choice(FORMS)
            if chance.random() < TWIN_SHARE:
                colour, form = chance.choice(first.shapes).name.split()
            shapes.append(Shape(shape.place, colour, form))
        scene = Scene(tuple(shapes))
        if is_held_out(scene) == held_out:
            return scene


def random_movie(chance: random.Random, held_out: bool) -> Movie:
    """Draw a moving shape of the training set, or of the examination."""
    while True:
        movie = Movie(chance.choice(tuple(COLOURS)), chance.choice(FORMS), chance.choice(MOTIONS))
        if is_held_out(movie) == held_out:
            return movie


def random_size(chance: random.Random, grid: tuple[int, int]) -> tuple[int, int]:
    """Draw a picture's width and height that the processor brings to the grid's size."""
    width, height = wanted = (grid[0] * UNIT, grid[1] * UNIT)
    if chance.random() < 0.4:
        return wanted
    for _ in range(20):
        scale = chance.choice((1.0, 1.0, chance.uniform(0.6, 2.2)))
        size = (
            round(width * scale) + chance.randint(-13, 13),
            round(height * scale) + chance.randint(-13, 13),
        )
        if processed_size(*size) == wanted:
            return size
    return wanted


def processed_size(width: int, height: int) -> tuple[int, int]:
    """Give the width and height that the family's processor resizes a picture to."""
    sides = [round(side / UNIT) * UNIT for side in (width, height)]
    area = sides[0] * sides[1]
    if area > LARGEST_PIXELS:
        shrink = math.sqrt(width * height / LARGEST_PIXELS)
        sides = [max(1, math.floor(side / shrink / UNIT)) * UNIT for side in (width, height)]
    elif area < SMALLEST_PIXELS:
        grow = math.sqrt(SMALLEST_PIXELS / (width * height))
        sides = [math.ceil(side * grow / UNIT) * UNIT for side in (width, height)]
    return sides[0], sides[1]
