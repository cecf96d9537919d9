"""Promises of the questions: answers follow from scenes; nothing trained on is examined."""

import random

import pytest
from demo.answers import expected, expected_of_movie, expected_of_pair

from tracer.demo.check import exam
from tracer.demo.questions import (
    LANGUAGES,
    SCENE_KINDS,
    ask,
    ask_movie,
    ask_pair,
    small_talk,
)
from tracer.demo.scenes import (
    GRIDS,
    PAIR_SHARES,
    UNIT,
    is_held_out,
    processed_size,
    random_movie,
    random_scene,
    random_size,
    random_twin,
)
from tracer.demo.words import CHAT, WITHOUT_IMAGE


def plain(scene):
    return [(shape.place, shape.colour, shape.form) for shape in scene.shapes]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", SCENE_KINDS)
def test_an_answer_about_a_picture_follows_from_the_scene(kind, language):
    chance = random.Random(f"{kind}{language}")
    for _ in range(600):
        scene = random_scene(chance, held_out=False)
        question = ask(scene, kind, language, chance)
        assert question.answer == expected(question.text, plain(scene)), question.text


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_answer_about_two_pictures_follows_from_both(language):
    chance = random.Random(language)
    for _ in range(600):
        scenes = [random_scene(chance, False, PAIR_SHARES) for _ in range(2)]
        question = ask_pair(*scenes, language, chance)
        assert question.answer == expected_of_pair(question.text, *map(plain, scenes))


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_answer_about_a_video_follows_from_its_motion(language):
    chance = random.Random(language)
    for _ in range(600):
        movie = random_movie(chance, held_out=False)
        question = ask_movie(movie, language, chance)
        truth = expected_of_movie(question.text, movie.colour, movie.form, movie.motion)
        assert question.answer == truth


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_question_without_a_picture_says_so_or_is_small_talk(language):
    chance = random.Random(language)
    for _ in range(200):
        question = small_talk(random_scene(chance, held_out=False), language, chance)
        assert question.answer in (dict(CHAT[language]).get(question.text), WITHOUT_IMAGE[language])


@pytest.mark.parametrize("held_out", [False, True])
def test_scenes_of_training_and_of_the_examination_never_meet(held_out):
    chance = random.Random(held_out)
    scenes = [random_scene(chance, held_out) for _ in range(2000)]
    movies = [random_movie(chance, held_out) for _ in range(300)]
    assert {is_held_out(each) for each in [*scenes, *movies]} == {held_out}


@pytest.mark.parametrize("held_out", [False, True])
def test_a_twin_has_shapes_in_the_same_places_and_some_of_the_same(held_out):
    chance = random.Random(held_out)
    common = 0
    for _ in range(300):
        first = random_scene(chance, held_out, PAIR_SHARES)
        twin = random_twin(chance, held_out, first)
        assert is_held_out(twin) == held_out
        assert [shape.place for shape in twin.shapes] == [shape.place for shape in first.shapes]
        names = {shape.name for shape in first.shapes}
        common += any(shape.name in names for shape in twin.shapes)
    assert 0 < common < 300


def test_the_examination_asks_every_kind_in_both_languages_about_held_out_scenes():
    examples = list(exam(100))
    shown = [each for example in examples for each in (*example.pictures, example.movie) if each]
    assert all(map(is_held_out, shown))
    kinds = {(e.questions[0].kind, e.questions[0].language) for e in examples}
    assert len(kinds) == 2 * (len(SCENE_KINDS) + 3)


def test_the_examination_is_the_same_each_time():
    assert list(exam(20)) == list(exam(20))


@pytest.mark.parametrize("grid", sorted(set(GRIDS)))
def test_a_random_size_is_brought_to_the_grid_that_was_asked(grid):
    chance = random.Random(0)
    sizes = [random_size(chance, grid) for _ in range(50)]
    assert {processed_size(*size) for size in sizes} == {(grid[0] * UNIT, grid[1] * UNIT)}
    assert len(set(sizes)) > 10
