"""Faults of lengths: positions, truncation, counting."""

import contextlib

import torch
from diagnosis.bench import MESSAGES, Bench, encoded, rendered
from diagnosis.cases import clean, fault

GREEDY = {"do_sample": False, "eos_token_id": []}


def _continued(bench: Bench, family, tokens, new):
    model = bench.model(family)
    ids = (torch.arange(tokens) % 50 + 5)[None]
    with bench.recorded() as recording, contextlib.suppress(IndexError):
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, **GREEDY)
    return recording.trace


@fault("beyond_positions")
def a_prompt_beyond_rotary_positions(bench: Bench):
    return _continued(bench, "llama", 40, 2)


@fault("beyond_positions")
def an_answer_that_grows_beyond_rotary_positions(bench: Bench):
    return _continued(bench, "llama", 28, 10)


@clean("beyond_positions", "budget_over_limit", "positions_exhausted")
def a_prompt_and_an_answer_that_just_fit(bench: Bench):
    return _continued(bench, "llama", 28, 4)


@fault("positions_exhausted")
def a_prompt_beyond_learned_positions(bench: Bench):
    return _continued(bench, "gpt2", 40, 2)


@fault("positions_exhausted")
def an_answer_that_grows_beyond_learned_positions(bench: Bench):
    return _continued(bench, "gpt2", 28, 10)


@clean("positions_exhausted")
def learned_positions_that_suffice(bench: Bench):
    return _continued(bench, "gpt2", 28, 4)


@fault("budget_over_limit")
def an_answer_that_ended_before_the_positions_did(bench: Bench):
    model = bench.model("llama")
    ids = torch.arange(5, 13)[None]
    given = {"attention_mask": torch.ones_like(ids), "do_sample": False}
    first = int(model.generate(ids, max_new_tokens=1, **given)[0, -1])
    with bench.recorded() as recording:
        model.generate(ids, max_new_tokens=100, eos_token_id=first, **given)
    return recording.trace


def _encoded(bench: Bench, **settings):
    return bench.answered(lambda tokenizer: encoded(tokenizer, **settings))


@fault("prompt_cut")
def a_prompt_that_is_cut_on_the_right(bench: Bench):
    return _encoded(bench, truncation=True, max_length=12)


@clean("prompt_cut", "limit_not_applied")
def a_limit_that_the_prompt_keeps(bench: Bench):
    return _encoded(bench, truncation=True, max_length=200)


@fault("limit_not_applied")
def a_limit_without_truncation(bench: Bench):
    return _encoded(bench, truncation=False, max_length=12)


def _counted(bench: Bench, count):
    """A prompt before which a function has counted some text."""

    def ask(tokenizer):
        count(tokenizer)
        return encoded(tokenizer)

    return bench.answered(ask)


WORDS = MESSAGES[1]["content"]


@fault("counted_without_template")
def a_message_counted_by_itself(bench: Bench):
    return _counted(bench, lambda tokenizer: tokenizer(WORDS))


@fault("counted_without_template")
def a_message_encoded_by_itself(bench: Bench):
    return _counted(bench, lambda tokenizer: tokenizer.encode(WORDS))


@clean("counted_without_template")
def the_rendered_prompt_counted(bench: Bench):
    return _counted(bench, lambda tokenizer: tokenizer(rendered(tokenizer)))


_MARKED = "<|vision_start|><|image_pad|><|vision_end|>What is at the top left?"


def _picture(bench: Bench, **settings):
    from tracer.demo import draw_scene

    model, processor = bench.seeing_model()
    picture = draw_scene("red circle top left")
    with bench.recorded() as recording, contextlib.suppress(ValueError):
        inputs = processor(text=[_MARKED], images=[picture], return_tensors="pt", **settings)
        model.generate(**inputs, max_new_tokens=2, do_sample=False)
    return recording.trace


@fault("image_cut")
def a_limit_inside_a_picture(bench: Bench):
    return _picture(bench, truncation=True, max_length=9)


@clean("image_cut", "prompt_cut")
def a_limit_behind_a_picture_and_its_question(bench: Bench):
    return _picture(bench, truncation=True, max_length=100)
