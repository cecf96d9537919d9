"""Calls of generate() that the library refuses before it has set them up, each for real."""

import contextlib

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault, healthy

IDS = torch.tensor([[11, 12, 13, 14, 15, 16]])
MASK = torch.ones_like(IDS)


def _refused(bench: Bench, *inputs, family="llama", **settings):
    """The trace of a call that ends in an error of the library, which the user's code catches."""
    given = {"max_new_tokens": 3, "do_sample": False} | settings
    with bench.recorded() as recording, contextlib.suppress(ValueError, AttributeError):
        bench.model(family).generate(*inputs, **given)
    return recording.trace


@fault("settings_refused")
def more_answers_than_greedy_decoding_has(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, num_return_sequences=3)


@fault("settings_refused")
def more_answers_than_beams(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, num_return_sequences=3, num_beams=2)


@fault("settings_refused")
def no_new_token_at_all(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, max_new_tokens=0)


@fault("settings_refused")
def a_kind_of_cache_that_there_is_not(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, cache_implementation="nonsense")


@clean("settings_refused", "setup_refused")
def as_many_answers_as_beams(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, num_return_sequences=2, num_beams=2)


@fault("arguments_refused")
def a_misspelt_setting(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, max_tokens=5)


@fault("arguments_refused")
def ids_of_a_kind_that_a_text_model_does_not_take(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, pixel_values=torch.zeros(1, 3, 8, 8))


@clean("arguments_refused")
def a_setting_that_is_spelt_right(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, max_new_tokens=5)


@fault("inputs_refused")
def ids_given_twice(bench: Bench):
    return _refused(bench, IDS, input_ids=IDS)


@fault("inputs_refused")
def ids_in_a_list(bench: Bench):
    return _refused(bench, [[11, 12, 13]])


@fault("inputs_refused")
def nothing_to_read_for_an_encoder(bench: Bench):
    return _refused(bench, family="t5")


@clean("inputs_refused")
def ids_given_by_name(bench: Bench):
    return _refused(bench, input_ids=IDS, attention_mask=MASK)


@fault("length_refused")
def a_whole_length_that_the_prompt_alone_exceeds(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, max_length=4, max_new_tokens=None)


@fault("length_refused")
def a_whole_length_that_the_prompt_alone_fills(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, max_length=6, max_new_tokens=None)


@clean("length_refused")
def a_whole_length_with_room_for_one_token(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, max_length=7, max_new_tokens=None)


@fault("setup_refused")
def a_negative_temperature(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, do_sample=True, temperature=-1.0)


@fault("setup_refused")
def a_text_to_stop_at_without_a_tokenizer(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, stop_strings=["."])


def _failing(ids, scores):
    raise ValueError("a processor of the user's own")


@healthy()
def an_error_of_the_users_own_while_tokens_are_chosen(bench: Bench):
    return _refused(bench, IDS, attention_mask=MASK, logits_processor=[_failing])
