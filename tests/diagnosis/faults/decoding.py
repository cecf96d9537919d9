"""Faults of how answers end, and of what is made of their ids."""

import torch
from diagnosis.bench import Bench, encoded
from diagnosis.cases import clean, fault

IDS = torch.tensor([[11, 12, 13, 14, 15, 16]])
GIVEN = {"attention_mask": torch.ones_like(IDS), "do_sample": False}


def _rigged(bench: Bench, order, **settings):
    """A model that says these ids one after the other, whatever it is asked."""
    model = bench.fresh("gpt2")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        embeddings = model.transformer.wte.weight  # tied: id to vector, and vector to score
        embeddings.copy_(torch.eye(64, 16) * 0)
        model.transformer.ln_f.bias.fill_(0)
    positions = model.transformer.wpe.weight
    with torch.no_grad():
        axes = {token: axis for axis, token in enumerate(dict.fromkeys(order))}
        for place, token in enumerate(order):
            axis = axes[token]
            positions[IDS.shape[1] - 1 + place, axis] = (
                30  # louder than the token that stands there
            )
            embeddings[token, axis] = 10
        model.transformer.ln_f.weight.fill_(1)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return model


def _asked(bench: Bench, model, **settings):
    with bench.recorded() as recording:
        model.generate(IDS, **(GIVEN | {"max_new_tokens": 8, "pad_token_id": 0} | settings))
    return recording.trace


SAID = [20, 21, 7, 22, 23, 24, 25, 26]


@fault("end_token_no_stop")
def one_end_token_in_place_of_the_models_list(bench: Bench):
    return _asked(bench, _rigged(bench, SAID, eos_token_id=[2, 7]), eos_token_id=2)


@fault("end_token_no_stop")
def an_end_token_that_config_json_alone_has(bench: Bench):
    model = _rigged(bench, SAID, eos_token_id=3)
    model.config.eos_token_id = 7
    return _asked(bench, model)


@clean("end_token_no_stop")
def the_models_own_list_of_end_tokens(bench: Bench):
    return _asked(bench, _rigged(bench, SAID, eos_token_id=[2, 7]))


@fault("end_token_no_stop")
def a_chat_whose_turns_end_with_a_token_that_is_no_stop(bench: Bench):
    return bench.answered(encoded, max_new_tokens=40, eos_token_id=615)


@clean("end_token_no_stop", "repetition_loop", "cut_at_hidden_limit")
def a_chat_that_ends(bench: Bench):
    return bench.answered(encoded, max_new_tokens=60)


@fault("no_stop_id")
def a_model_without_an_end_token(bench: Bench):
    model = _rigged(bench, SAID, eos_token_id=None)
    model.config.eos_token_id = None
    return _asked(bench, model)


@clean("no_stop_id")
def a_caller_who_wants_no_end(bench: Bench):
    return _asked(bench, _rigged(bench, SAID), eos_token_id=[])


@fault("cut_at_hidden_limit")
def no_limit_given(bench: Bench):
    return _asked(bench, bench.model("llama"), max_new_tokens=None, eos_token_id=[])


@clean("cut_at_hidden_limit")
def a_limit_given_and_reached(bench: Bench):
    return _asked(bench, bench.model("llama"), eos_token_id=[])


@fault("repetition_loop")
def a_model_that_says_three_words_for_ever(bench: Bench):
    return _asked(bench, _rigged(bench, [20, 21, 22] * 9), max_new_tokens=26)


@clean("repetition_loop")
def a_model_that_says_one_word_a_few_times(bench: Bench):
    return _asked(bench, _rigged(bench, [20, 21, 22, 22, 22, 22, 22, 23]))


def _decoded(bench: Bench, decode):
    """A prompt, its answer, and what a function makes of the ids with the tokenizer."""
    model, tokenizer = bench.chat_model()
    with bench.recorded() as recording:
        inputs = encoded(tokenizer)
        output = model.generate(**inputs, do_sample=False, max_new_tokens=5)
        decode(tokenizer, output, inputs["input_ids"].shape[1])
    return recording.trace


@fault("prompt_decoded")
def a_whole_sequence_decoded(bench: Bench):
    return _decoded(
        bench, lambda tokenizer, ids, _: tokenizer.batch_decode(ids, skip_special_tokens=True)
    )


@clean("prompt_decoded")
def an_answer_decoded(bench: Bench):
    return _decoded(
        bench,
        lambda tokenizer, ids, length: tokenizer.batch_decode(
            ids[:, length:], skip_special_tokens=True
        ),
    )


@fault("prompt_decoded")
def each_row_decoded_whole_with_its_marks(bench: Bench):
    return _decoded(bench, lambda tokenizer, ids, _: [tokenizer.decode(one) for one in ids])


@fault("prompt_decoded")
def the_first_row_decoded_whole(bench: Bench):
    return _decoded(
        bench, lambda tokenizer, ids, _: tokenizer.decode(ids[0], skip_special_tokens=True)
    )


@fault("repetition_loop")
def a_model_that_says_one_word_for_ever(bench: Bench):
    return _asked(bench, _rigged(bench, [20] + [21] * 25), max_new_tokens=26)
