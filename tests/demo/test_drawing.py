"""Promises of the drawing: a small language, tidy errors, the same pixels each time."""

import pytest

from tracer.demo import EXAMPLES, SceneError, draw_movie, draw_scene
from tracer.demo.drawing import (
    COLOURS,
    FORMS,
    MOTIONS,
    PLACES,
    Movie,
    Scene,
    Shape,
    parse_movie,
    parse_scene,
)
from tracer.errors import TracerError

QUARTER_CENTRES = {
    "top left": (28, 28),
    "top right": (84, 28),
    "bottom left": (28, 84),
    "bottom right": (84, 84),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("colour", COLOURS)
def test_a_named_shape_is_drawn_in_its_colour_in_its_quarter_alone(colour, form, place):
    image = draw_scene(f"{colour} {form} {place}", size=112)
    pixels = {where: image.getpixel(centre) for where, centre in QUARTER_CENTRES.items()}
    assert pixels.pop(place) == COLOURS[colour]
    assert set(pixels.values()) == {(255, 255, 255)}


def test_the_four_forms_look_different():
    images = {draw_scene(f"red {form} top left").tobytes() for form in FORMS}
    assert len(images) == len(FORMS)


@pytest.mark.parametrize("description", EXAMPLES.values(), ids=EXAMPLES)
def test_each_example_draws_and_reads_back(description):
    assert draw_scene(description).size == (112, 112)
    assert str(parse_scene(description)) == description


@pytest.mark.parametrize(("size", "expected"), [(84, (84, 84)), ((140, 112), (140, 112))])
def test_the_size_is_a_side_or_width_and_height(size, expected):
    assert draw_scene("red star top left", size).size == expected


def test_a_seed_gives_the_same_pixels_and_another_seed_gives_others():
    first, again, other = (draw_scene("red star top left", seed=seed) for seed in (3, 3, 4))
    assert first.tobytes() == again.tobytes() != other.tobytes()


@pytest.mark.parametrize("seed", range(40))
def test_a_jittered_shape_stays_inside_its_quarter(seed):
    scene = Scene((Shape("top left", "red", "star"),))
    image = draw_scene(scene, 112, seed)
    background = image.getpixel((100, 100))
    outside = [image.getpixel((x, y)) for x in range(56, 112) for y in range(112)]
    assert set(outside) == {background}


def test_words_may_be_spaced_and_capitalised_freely():
    assert parse_scene(" Red  Circle TOP left ,blue star bottom right") == parse_scene(
        "red circle top left, blue star bottom right"
    )


@pytest.mark.parametrize(
    ("description", "word"),
    [
        ("pink circle top left", "pink"),
        ("red hexagon top left", "hexagon"),
        ("red circle upper left", "upper left"),
        ("red circle", "colour, form and place"),
        ("red circle top left, blue star top left", "Two shapes in one quarter"),
        ("red circle top left,", "not one shape"),
    ],
)
def test_an_unknown_word_is_named_with_what_is_known(description, word):
    with pytest.raises(SceneError, match=word) as caught:
        draw_scene(description)
    assert isinstance(caught.value, TracerError)


def test_a_picture_too_small_to_see_is_refused():
    with pytest.raises(SceneError, match="4 x 4"):
        draw_scene("red circle top left", size=4)


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_movie_moves_the_shape_the_way_it_says(motion):
    frames = draw_movie(Movie("red", "circle", motion), 112, frames=4)
    places = [red_centre(frame) for frame in frames]
    across = round(places[-1][0] - places[0][0])
    down = round(places[-1][1] - places[0][1])
    signs = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1), "still": (0, 0)}
    assert (sign(across), sign(down)) == signs[motion]


def red_centre(image):
    reds = [
        (x, y)
        for x in range(image.width)
        for y in range(image.height)
        if image.getpixel((x, y)) == COLOURS["red"]
    ]
    return tuple(sum(each) / len(reds) for each in zip(*reds, strict=True))


def sign(number):
    return (number > 0) - (number < 0)


def test_a_movie_reads_back_its_own_name():
    for motion in MOTIONS:
        movie = Movie("blue", "star", motion)
        assert parse_movie(str(movie)) == movie


@pytest.mark.parametrize(
    ("description", "word"),
    [("red circle moves sideways", "sideways"), ("a red circle", "'a'"), ("circle", "moving")],
)
def test_an_unknown_movie_is_refused_by_name(description, word):
    with pytest.raises(SceneError, match=word):
        draw_movie(description)
