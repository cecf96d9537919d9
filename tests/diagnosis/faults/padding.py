"""Faults of padding: its side, its mask, its token."""

import contextlib

import torch
from diagnosis.bench import Bench
from diagnosis.cases import GENERATION, clean, fault
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

LEFT = torch.tensor([[11, 12, 13, 14, 15, 16], [0, 0, 21, 22, 23, 24]])
RIGHT = torch.tensor([[11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 0, 0]])
GREEDY = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}


def _asked(bench: Bench, ids, family="llama", **settings):
    model = bench.model(family)
    with bench.recorded() as recording:
        model.generate(input_ids=ids, **(GREEDY | settings))
    return recording.trace


def _mask(ids, pad=0):
    return (ids != pad).long()


@fault("padding_on_the_right")
def a_batch_padded_on_the_right(bench: Bench):
    return _asked(bench, RIGHT, attention_mask=_mask(RIGHT))


@fault("padding_on_the_right")
def a_batch_padded_on_the_right_with_learned_positions(bench: Bench):
    return _asked(bench, RIGHT, "gpt2", attention_mask=_mask(RIGHT))


@clean("padding_on_the_right", "padding_attended")
def a_batch_padded_on_the_left(bench: Bench):
    return _asked(bench, LEFT, attention_mask=_mask(LEFT))


@clean("padding_on_the_right", "padding_attended", "pad_equals_end")
def prompts_that_end_in_the_pad_token_without_any_padding(bench: Bench):
    ids = torch.tensor([[11, 12, 13, 2], [21, 22, 23, 2]])
    return _asked(bench, ids, attention_mask=torch.ones_like(ids), pad_token_id=2)


@clean("padding_on_the_right")
def padding_between_two_turns_of_a_row(bench: Bench):
    ids = torch.tensor([[11, 12, 13, 14, 15, 16], [21, 22, 0, 23, 24, 25]])
    return _asked(bench, ids, attention_mask=_mask(ids))


@fault("padding_attended")
def a_mask_of_ones_over_padding(bench: Bench):
    return _asked(bench, LEFT, attention_mask=torch.ones_like(LEFT))


@fault("padding_attended")
def a_mask_of_ones_over_padding_that_is_the_begin_token_too(bench: Bench):
    model = bench.fresh("llama")
    model.generation_config.bos_token_id = 0
    with bench.recorded() as recording:
        model.generate(input_ids=LEFT, attention_mask=torch.ones_like(LEFT), **GREEDY)
    return recording.trace


@fault("padding_attended", "pad_equals_end")
def padding_with_the_end_token_where_no_pad_token_is_set(bench: Bench):
    model = bench.fresh("llama")
    model.generation_config.pad_token_id = None
    model.generation_config.eos_token_id = 2
    ids = torch.where(LEFT == 0, 2, LEFT)
    with bench.recorded() as recording:
        model.generate(input_ids=ids, **(GREEDY | {"pad_token_id": None}))
    return recording.trace


@fault("padding_attended")
def a_mask_of_ones_over_an_encoders_padding(bench: Bench):
    return _asked(bench, RIGHT, "t5", attention_mask=torch.ones_like(RIGHT))


@clean("padding_attended", "padding_on_the_right")
def an_encoders_padding_hidden_by_its_mask(bench: Bench):
    return _asked(bench, RIGHT, "t5", attention_mask=_mask(RIGHT))


@clean("padding_attended", "padding_on_the_right")
def an_encoders_padding_without_a_mask(bench: Bench):
    return _asked(bench, RIGHT, "t5")


@clean("padding_attended", "pad_equals_end")
def prompts_that_begin_with_their_end_token_once(bench: Bench):
    model = bench.fresh("llama")
    model.generation_config.bos_token_id = 1
    ids = torch.tensor([[2, 12, 13, 14]])
    ends = {"pad_token_id": 2, "eos_token_id": 2}
    with bench.recorded() as recording:
        model.generate(ids, attention_mask=torch.ones_like(ids), **(GREEDY | ends))
    return recording.trace


@clean("padding_attended")
def a_prompt_that_begins_with_a_marker_that_is_the_pad_token_too(bench: Bench):
    model = bench.fresh("llama")
    model.generation_config.bos_token_id = 0
    with bench.recorded() as recording:
        model.generate(torch.tensor([[0, 11, 12, 13]]), **GREEDY, eos_token_id=0)
    return recording.trace


@fault("padding_on_the_right", "mask_inferred")
def a_batch_padded_on_the_right_without_a_mask(bench: Bench):
    return _asked(bench, RIGHT)


@fault("mask_inferred")
def a_padded_batch_without_a_mask(bench: Bench):
    return _asked(bench, LEFT)


@fault("mask_inferred")
def a_prompt_without_a_mask_that_holds_the_pad_id_as_content(bench: Bench):
    return _asked(bench, torch.tensor([[11, 12, 0, 13, 14]]))


@clean("mask_inferred")
def a_prompt_without_a_mask_and_without_padding(bench: Bench):
    return _asked(bench, LEFT[:1])


@fault("pad_equals_end", "padding_attended")
def a_padded_batch_without_a_mask_whose_pad_ends_answers(bench: Bench):
    return _asked(bench, torch.where(LEFT == 0, 2, LEFT), pad_token_id=2)


@clean("pad_equals_end")
def a_padded_batch_whose_pad_ends_answers_with_its_mask(bench: Bench):
    ids = torch.where(LEFT == 0, 2, LEFT)
    return _asked(bench, ids, pad_token_id=2, attention_mask=_mask(ids, 2))


def _words(**special):
    made = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<end>": 2}, "a"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", **special)


@fault("pad_unset")
def a_tokenizer_that_shall_pad_and_cannot(bench: Bench):
    tokenizer = _words()
    with bench.recorded() as recording, contextlib.suppress(ValueError):
        tokenizer(["a", "a b"], padding=True, return_tensors="pt")
    return recording.trace


@clean("pad_unset")
def a_tokenizer_that_can_pad(bench: Bench):
    tokenizer = _words(pad_token="<end>")
    with bench.recorded() as recording:
        tokenizer(["a", "a b"], padding=True, return_tensors="pt")
    return recording.trace


@fault("mask_of_another_length")
def the_mask_of_a_shorter_prompt(bench: Bench):
    ids = LEFT[:1]
    with contextlib.suppress(IndexError, RuntimeError, ValueError):
        return _asked(bench, ids, attention_mask=torch.ones_like(ids[:, :4]))
    return bench.last.trace


@clean("mask_of_another_length", "mask_hides_words")
def a_mask_as_long_as_prompt_and_cache(bench: Bench):
    model = bench.model("llama")
    name = "past_key_values" if GENERATION < 5 else "cache"
    with bench.recorded() as recording, torch.no_grad():
        ids = LEFT[:1]
        cache = model(input_ids=ids[:, :4], use_cache=True)[name]
        model.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY, **{name: cache})
    return recording.trace


@fault("mask_hides_words")
def a_row_that_its_mask_hides_whole(bench: Bench):
    ids = torch.tensor([[11, 12, 13, 14], [21, 22, 23, 24]])
    return _asked(bench, ids, attention_mask=torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0]]))


@fault("mask_hides_words", "padding_on_the_right", "padding_attended")
def the_mask_of_the_other_side(bench: Bench):
    return _asked(bench, LEFT, attention_mask=_mask(LEFT).flip(1))


@clean("mask_hides_words")
def padding_with_an_id_that_the_model_does_not_know_as_such(bench: Bench):
    ids = torch.where(LEFT == 0, 9, LEFT)
    return _asked(bench, ids, attention_mask=_mask(LEFT))
