"""Faults of the KV cache."""

import contextlib
import copy

import torch
from diagnosis.bench import Bench
from diagnosis.cases import GENERATION, clean, fault

from tracer.instrument.installer import release
from tracer.instrument.targets import LATE_FOUR

CACHE = "cache" if GENERATION >= 5 else "past_key_values"
# Before, they made generate() feed the whole sequence again instead.
TAKING_NO_CACHE = (4, 5) if release() >= LATE_FOUR else (5,)
PROMPT = [11, 12, 13, 14, 15, 16, 17, 18]


def _ask(model, ids, new=4, cache=None):
    ids = torch.tensor([ids])
    given = {} if cache is None else {CACHE: cache}
    return model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False,
        eos_token_id=[], return_dict_in_generate=True, **given,
    )  # fmt: skip


def _generated(bench: Bench, **settings):
    model = bench.model("llama")
    ids = torch.tensor([PROMPT])
    with bench.recorded() as recording:
        model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False, **settings
        )
    return recording.trace


@fault("cache_off")
def a_call_without_a_cache(bench: Bench):
    return _generated(bench, use_cache=False)


@clean("cache_off")
def a_call_with_a_cache(bench: Bench):
    return _generated(bench)


def _checkpointed(bench: Bench, family, training):
    model = bench.fresh(family)
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable()  # the first is its name since late in generation 5
    ids = torch.tensor([PROMPT])
    with bench.recorded() as recording:
        model.train(training).generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False
        )
    return recording.trace


@fault("cache_unfilled", also=("dropout_on",), generations=TAKING_NO_CACHE)
def an_answer_between_two_steps_of_training(bench: Bench):
    return _checkpointed(bench, "gpt2", training=True)


@clean("cache_unfilled")
def an_answer_in_evaluation_mode_between_them(bench: Bench):
    return _checkpointed(bench, "gpt2", training=False)


@clean("cache_unfilled", generations=(5,))
def a_model_that_keeps_its_cache_while_it_is_trained(bench: Bench):
    return _checkpointed(bench, "llama", training=True)


@fault("cache_not_reused")
def a_conversation_that_encodes_everything_anew(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording:
        first = _ask(model, PROMPT).sequences[0].tolist()
        _ask(model, [*first, 20, 21])
    return recording.trace


@clean("cache_not_reused", "cache_not_prefix", "cache_grown")
def a_conversation_that_keeps_its_cache(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording:
        first = _ask(model, PROMPT)
        second = _ask(model, [*first.sequences[0].tolist(), 20, 21], cache=first[CACHE])
        _ask(model, [*second.sequences[0].tolist(), 22], cache=second[CACHE])
    return recording.trace


@clean("cache_not_reused")
def one_question_asked_twice(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording:
        _ask(model, PROMPT)
        _ask(model, PROMPT)
    return recording.trace


@clean("cache_not_reused")
def two_questions_that_begin_alike(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording:
        _ask(model, [*PROMPT, 30])
        _ask(model, [*PROMPT, 31, 32])
    return recording.trace


@fault("cache_not_prefix")
def an_answer_that_was_encoded_otherwise(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording:
        first = _ask(model, PROMPT)
        turn = first.sequences[0].tolist()
        turn[len(PROMPT) + 1] = 39 if turn[len(PROMPT) + 1] != 39 else 38
        _ask(model, [*turn, 20], cache=first[CACHE])
    return recording.trace


def _shared(bench: Bench, copies):
    model = bench.model("llama")
    with bench.recorded() as recording, contextlib.suppress(IndexError), torch.no_grad():
        cache = model(input_ids=torch.tensor([PROMPT]), use_cache=True)[CACHE]
        for own in (copy.deepcopy(cache), copy.deepcopy(cache)) if copies else (cache, cache):
            _ask(model, [*PROMPT, 20], cache=own)
    return recording.trace


@fault("cache_grown")
def one_cache_for_two_questions(bench: Bench):
    return _shared(bench, copies=False)


@clean("cache_grown", "cache_not_prefix")
def a_copy_of_the_cache_for_each_question(bench: Bench):
    return _shared(bench, copies=True)


@clean("cache_grown", "cache_not_prefix")
def a_cache_cut_back_before_it_is_passed_again(bench: Bench):
    """As the advice says; the first call's answer is taken off again."""
    model = bench.model("llama")
    with bench.recorded() as recording, torch.no_grad():
        cache = model(input_ids=torch.tensor([PROMPT]), use_cache=True)[CACHE]
        for word in (20, 21):
            _ask(model, [*PROMPT, word], cache=cache)
            cache.crop(-(cache.get_seq_length() - len(PROMPT)))
    return recording.trace
