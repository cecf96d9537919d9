"""Promises of the training: pixels and logits of the library, and the same weights again."""

import random

import pytest
import torch
from transformers import AutoProcessor

from tracer.demo import checkpoint_folder
from tracer.demo.batches import Maker, to_patches
from tracer.demo.checkpoint import new_model
from tracer.demo.drawing import PLACES
from tracer.demo.examples import draw
from tracer.demo.optimiser import orthogonal, rate
from tracer.demo.probe import ORDER_LAYER, Probe, contents, meant, quarters
from tracer.demo.seeing_fast import answer
from tracer.demo.tokenizer import build_tokenizer
from tracer.demo.train import (
    PHASES,
    SEEING_STEPS,
    STEPS,
    TEXT_RATES,
    VISION_RATES,
    Training,
    initialise,
)

SORTS = ("pictures", "pairs", "movies", "texts")


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def processor():
    return AutoProcessor.from_pretrained(checkpoint_folder())


@pytest.fixture(scope="module")
def model():
    made = new_model(seed=2).eval()
    initialise(made, seed=2)
    generator = torch.Generator().manual_seed(3)
    for weight in made.parameters():  # no part may be silent, or it would not be compared
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.08, generator=generator)
    return made


def library_inputs(processor, example, question):
    """Give what the library makes of one message and its answer."""
    drawn = draw(example)
    sort = "video" if example.movie else "image"
    content = [*({"type": sort} for _ in drawn), {"type": "text", "text": question.text}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    media = {}
    if example.movie:
        media["videos"] = drawn
    elif drawn:
        media["images"] = [frame for (frame,) in drawn]
    text += f"{question.answer}<|im_end|>"
    return processor(text=[text], return_tensors="pt", **media)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sort", SORTS)
def test_a_batch_has_the_pixels_and_logits_of_the_library(sort, seed, model, tokenizer, processor):
    batch = getattr(Maker(seed, tokenizer), sort)(rows=2, questions=2)
    with torch.no_grad():
        outcome = answer(model, batch, interval=1 / 12)
    logits, labels = outcome.logits, outcome.labels
    frames = batch.grid[0] * batch.pictures
    done = 0
    for row, example in enumerate(batch.examples):
        for question in example.questions:
            inputs = library_inputs(processor, example, question)
            if frames:
                ours = batch.patches[row * frames : (row + 1) * frames].flatten(0, 1)
                theirs = inputs.get("pixel_values", inputs.get("pixel_values_videos"))
                assert torch.equal(ours, theirs)
            with torch.no_grad():
                whole = model(**inputs).logits[0]
            count = len(tokenizer.encode(question.answer).ids) + 1
            torch.testing.assert_close(
                logits[done : done + count], whole[-count - 1 : -1], atol=1e-4, rtol=1e-4
            )
            assert labels[done : done + count].tolist() == inputs["input_ids"][0, -count:].tolist()
            done += count
    assert done == len(labels)


def test_a_picture_that_is_resized_still_has_the_pixels_of_the_library(processor):
    chance = random.Random(0)
    example = Maker(0, build_tokenizer()).pictures(rows=1, questions=1).examples[0]
    for width, height in ((97, 120), (260, 180), (60, 90)):
        size = (width + chance.randint(0, 5), height)
        picture = draw(type(example)(example.pictures, None, size, 1, example.questions))[0][0]
        theirs = processor.image_processor(images=[picture], return_tensors="pt")
        _, rows, columns = theirs["image_grid_thw"][0].tolist()
        ours = to_patches([picture], (columns * 14, rows * 14), 1)[0]
        assert torch.equal(ours, theirs["pixel_values"])


def test_questions_of_one_row_do_not_see_each_other(model, tokenizer):
    batch = Maker(4, tokenizer).pictures(rows=1, questions=2)
    first = batch.branches[0] == 1
    counted = int((batch.labels[0][first] >= 0).sum())
    with torch.no_grad():
        before = answer(model, batch).logits
        batch.tokens[0][first] = 0
        after = answer(model, batch).logits
    assert not torch.allclose(before[:counted], after[:counted])
    assert torch.equal(before[counted:], after[counted:])


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_same_steps_give_the_same_weights_also_after_an_interruption(tmp_path):
    straight, broken, resumed = Training(), Training(), Training()
    straight.step = broken.step = SEEING_STEPS - 1  # a step of each sort
    for _ in range(2):
        straight.advance()
    broken.advance()
    broken.save(tmp_path / "state.pt")
    resumed.resume(tmp_path / "state.pt")
    resumed.advance()
    for one, other in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("one_thread")
def test_the_vision_tower_learns_alone_first():
    training = Training()
    before = {name: weight.clone() for name, weight in training.model.named_parameters()}
    training.advance()
    moved = {
        name
        for name, weight in training.model.named_parameters()
        if not torch.equal(weight, before[name])
    }
    assert moved
    assert all(name.startswith("model.visual.") for name in moved)


def test_every_step_belongs_to_a_phase():
    assert [phase.until for phase in PHASES] == sorted(phase.until for phase in PHASES)
    assert PHASES[0].until == SEEING_STEPS
    assert PHASES[-1].until == STEPS


@pytest.mark.parametrize(("rates", "start"), [(VISION_RATES, 0), (TEXT_RATES, SEEING_STEPS)])
def test_the_step_size_rises_holds_and_falls(rates, start):
    sizes = [rate(step, rates) for step in range(STEPS + 1)]
    assert not any(sizes[:start])
    assert max(sizes) == sizes[start + 40] == sizes[start + 300] == 1.0
    assert 0.0 < sizes[start + 1] < sizes[start + 20] < 1.0
    assert sizes[-400:] == sorted(sizes[-400:], reverse=True)
    assert sizes[STEPS] < 0.03


def test_a_later_line_of_step_sizes_ends_an_earlier_one():
    rates = ((10, 1.0, 30, 0.0), (20, 0.8, 40, 0.0))
    assert [rate(step, rates) for step in (5, 15, 20, 30)] == [0.0, 0.75, 0.8, 0.4]


def test_orthogonal_brings_singular_values_close_to_one():
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 16, 40), (2, 40, 16)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=generator)))
        assert values.min() > 0.5
        assert values.max() < 1.3


def test_the_guide_is_told_what_lies_in_each_quarter(tokenizer):
    batch = Maker(1, tokenizer).pictures(rows=8, questions=1)
    colours, forms = contents(batch)
    filled = [len(example.pictures[0].shapes) for example in batch.examples]
    assert (colours > 0).sum(1).tolist() == (forms > 0).sum(1).tolist() == filled


def test_the_guide_is_told_of_both_pictures_of_a_message(tokenizer):
    batch = Maker(1, tokenizer).pairs(rows=4, questions=1)
    colours, forms = contents(batch)
    filled = [len(scene.shapes) for example in batch.examples for scene in example.pictures]
    assert (colours > 0).sum(1).tolist() == (forms > 0).sum(1).tolist() == filled


def test_the_guide_is_told_where_the_shapes_are_that_a_question_names(tokenizer):
    batch = Maker(2, tokenizer).pictures(rows=16, questions=6, kinds={"where": 1, "side": 1})
    wanted, known = meant(batch)
    questions = [question for example in batch.examples for question in example.questions]
    for question, places, names in zip(questions, wanted, known, strict=True):
        assert names.sum() == len(question.about)
        if question.kind == "where" and question.about[0]:
            (place,) = question.about[0]
            assert places[0].nonzero().tolist() == [[PLACES.index(place)]]
            if question.language == "en":
                assert question.answer == f"In the {place}."


def after_order_layer(state):
    """Give the states of all layers, of which one is asked for what its pictures' tokens hold."""
    states = [torch.zeros_like(state) for _ in range(5)]
    states[ORDER_LAYER] = state
    return tuple(states)


def test_the_guide_wants_each_picture_to_know_its_number(tokenizer):
    batch = Maker(1, tokenizer).pairs(rows=2, questions=1)
    probe = Probe(width=64, seed=0)
    length = len(batch.beginning)
    middle = (batch.beginning.index(batch.pad) + length) // 2
    state = torch.zeros(2, length, 64)
    state[:, :middle] = probe.order[:, 0]
    state[:, middle:] = probe.order[:, 1]
    assert probe.order_loss(batch, after_order_layer(state)) < 0.01
    assert probe.order_loss(batch, after_order_layer(state.flip(1))) > 1.0


def test_the_guide_wants_each_part_of_two_pictures_to_know_its_quarter(tokenizer):
    batch = Maker(1, tokenizer).pairs(rows=2, questions=1)
    probe = Probe(width=64, seed=0)
    height, width = batch.grid[1] // 2, batch.grid[2] // 2
    columns = [place for place, token in enumerate(batch.beginning) if token == batch.pad]
    places = quarters(height, width).argmax(0).tolist()
    state = torch.zeros(2, len(batch.beginning), 64)
    for number, place in enumerate([*places, *(4 + place for place in places)]):
        state[:, columns[number]] = probe.spots[:, place]
    assert probe.spot_loss(batch, after_order_layer(state)) < 0.1
    assert probe.spot_loss(batch, after_order_layer(state.flip(1))) > 1.0


@pytest.mark.parametrize(("height", "width", "cells"), [(4, 4, 16), (3, 3, 4), (3, 4, 8)])
def test_cells_in_the_middle_belong_to_no_quarter(height, width, cells):
    members = quarters(height, width)
    assert members.sum() == cells
    assert members.sum(0).max() == 1
