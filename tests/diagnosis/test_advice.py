"""Code that a finding gives as advice is run, on the fault that it was given for, and helps.

Which advice is code stands in `explain/names/advice.toml`; all other advice is words.
"""

import contextlib
import string
import textwrap

import pytest
import torch
from diagnosis.cases import GENERATION, asked
from diagnosis.faults import live, padding

from tracer.diagnosis import examine  # noqa: F401  (enters the rules)
from tracer.diagnosis.rules import RULES
from tracer.explain.languages import LANGUAGES, names, words

ADVICE = {rule: told["run"] for rule, told in names("advice").items()}
CODE = {rule: code for rule, code in ADVICE.items() if code}
CACHE = "past_key_values" if GENERATION < 5 else "cache"
GREEDY = {"max_new_tokens": 3, "do_sample": False}
PROMPT = [11, 12, 13, 14, 15, 16]


class Advice:
    """A rule's code, run where it is followed, and left out where it is not."""

    def __init__(self, code, is_followed):
        self.code, self.is_followed = code, is_followed

    def run(self, **values):
        """Run it as a user would type it, with what stands in its braces."""
        if self.is_followed:
            exec(self.filled(**values), {"torch": torch, **values})

    def gives(self, other, **values):
        """The value of its expression, or `other` where it is not followed."""
        return (
            eval(self.filled(**values), {"torch": torch, **values}) if self.is_followed else other
        )

    def filled(self, **values):
        fields = {name for _, name, _, _ in string.Formatter().parse(self.code) if name in values}
        return self.code.format(**values) if fields else self.code


def of_live(make):
    """A live model and its tokenizer, with the advice run on both."""

    def made(bench, advice):
        subject = make(bench)
        model, tokenizer = subject if isinstance(subject, tuple) else (subject, None)
        advice.code = advice.code.replace("[...]", "[3, tokenizer.eos_token_id]")
        advice.run(model=model, tokenizer=tokenizer)
        return subject

    return made


def recorded(bench, ask):
    with bench.recorded() as recording, contextlib.suppress(ValueError, IndexError, RuntimeError):
        ask()
    return recording.trace


def answered(bench, model, ids):
    mask = torch.ones_like(ids)
    return recorded(bench, lambda: model.generate(ids, attention_mask=mask, **GREEDY))


def in_training_mode(bench, advice):
    model = bench.fresh("gpt2").train()
    advice.run(model=model)
    return answered(bench, model, torch.tensor([PROMPT]))


def checkpointed_in_training_mode(bench, advice):
    model = bench.fresh("gpt2").train()
    model.gradient_checkpointing_enable()
    advice.run(model=model)
    return answered(bench, model, torch.tensor([PROMPT]))


def with_gradients(bench, advice):
    model, ids = bench.model("llama"), torch.tensor([PROMPT])
    if not advice.is_followed:
        return recorded(bench, lambda: model(ids))
    code = f"{advice.code}\n    model(ids)"
    return recorded(bench, lambda: exec(code, {"torch": torch, "model": model, "ids": ids}))


def batch_of_texts(bench, advice):
    """Texts of two lengths, padded by the tokenizer, whose mask is handed on."""
    model, tokenizer = live.chat(bench)
    tokenizer.padding_side = "right"
    advice.run(tokenizer=tokenizer)
    inputs = tokenizer(["Hello there, what is this?", "Hello!"], padding=True, return_tensors="pt")
    return recorded(bench, lambda: model.generate(**inputs, **GREEDY))


def batch_without_mask(bench, advice):
    """The same with the ids alone; the mask goes along as the words before the code say."""
    model, tokenizer = live.chat(bench)
    tokenizer.padding_side = "right"
    advice.run(tokenizer=tokenizer)
    inputs = tokenizer(["Hello there, what is this?", "Hello!"], padding=True, return_tensors="pt")
    if not advice.is_followed:
        inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
    return recorded(bench, lambda: model.generate(**inputs, **GREEDY))


def batch_with_its_mask(ids, given, pad=0):
    """Ids of a batch, handed over with `given`; `inputs` has the mask that a tokenizer makes."""

    def made(bench, advice):
        model = bench.fresh("llama")
        model.generation_config.update(**GREEDY, pad_token_id=pad)
        inputs = {"input_ids": ids, "attention_mask": padding._mask(ids, pad)}
        if not advice.is_followed:
            return recorded(bench, lambda: model.generate(input_ids=ids, **given))
        return recorded(bench, lambda: advice.run(model=model, inputs=inputs))

    return made


def tokenizer_without_pad(bench, advice):
    tokenizer = padding._words()
    advice.run(tokenizer=tokenizer)
    texts = ["a", "a b"]
    return recorded(bench, lambda: tokenizer(texts, padding=True, return_tensors="pt"))


def ids_in_a_list(bench, advice):
    model, tokenizer = bench.chat_model()

    def ask():
        with contextlib.suppress(AttributeError):
            if not advice.is_followed:
                model.generate([PROMPT], **GREEDY)
        advice.run(model=model, tokenizer=tokenizer, text="Hello there")

    before = model.generation_config.max_new_tokens
    model.generation_config.max_new_tokens = 2
    try:
        return recorded(bench, ask)
    finally:
        model.generation_config.max_new_tokens = before


def temperature_without_sampling(bench, advice):
    model, ids = bench.fresh("llama"), torch.tensor([PROMPT])
    model.generation_config.temperature = 0.7
    advice.run(model=model)
    given = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 3}
    return recorded(bench, lambda: model.generate(ids, **given))


def one_cache_for_two_questions(bench, advice):
    """What the first answer added is taken off again before the cache is passed on."""
    model = bench.model("llama")

    def ask():
        with torch.no_grad():
            cache = model(input_ids=torch.tensor([PROMPT]), use_cache=True)[CACHE]
            for word in (20, 21):
                ids = torch.tensor([[*PROMPT, word]])
                model.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY, **{CACHE: cache})
                advice.run(cache=cache, back=cache.get_seq_length() - len(PROMPT))

    return recorded(bench, ask)


def cache_of_another_prompt(bench, advice):
    """The cache of a prompt that ends otherwise; what differs is taken off."""
    model, ids = bench.model("llama"), torch.tensor([[*PROMPT[:5], 21, 22, 23, 24]])

    def ask():
        with torch.no_grad():
            cache = model(input_ids=torch.tensor([PROMPT]), use_cache=True)[CACHE]
            advice.run(cache=cache, back=1)
            model.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY, **{CACHE: cache})

    return recorded(bench, ask)


def prompt_in_the_answer(bench, advice):
    model, tokenizer = bench.chat_model()

    def ask():
        inputs = tokenizer("Hello there, what is this?", return_tensors="pt")
        output = model.generate(**inputs, **GREEDY)
        tokenizer.decode(advice.gives(output, output=output, inputs=inputs)[0])

    return recorded(bench, ask)


def question_without_template(bench, advice):
    model, tokenizer = bench.chat_model()

    def ask():
        text = "What is this, and what is it for?"
        plain = tokenizer(text, return_tensors="pt")
        model.generate(**advice.gives(plain, tokenizer=tokenizer, text=text), **GREEDY)

    return recorded(bench, ask)


def ids_of_added_tokens(bench, advice):
    """A tokenizer that was given tokens, and a model whose embedding was not."""
    from transformers import AutoTokenizer

    model, tokenizer = bench.fresh("llama"), AutoTokenizer.from_pretrained(bench.chat())
    tokenizer.add_tokens(["<new>"])
    advice.run(model=model, tokenizer=tokenizer)
    ids = torch.tensor([[11, tokenizer.convert_tokens_to_ids("<new>")]])
    return recorded(
        bench, lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY)
    )


MADE = {
    "model_untied": of_live(live.a_head_copied_from_its_embedding),
    "model_in_training": of_live(live.a_model_that_was_left_training),
    "model_mixes_dtypes": of_live(live.a_head_in_another_dtype),
    "model_pads_on_the_right": of_live(live.a_tokenizer_that_pads_on_the_right),
    "model_stops_elsewhere": of_live(live.an_end_that_stops_nothing),
    "model_without_pad": of_live(live.a_tokenizer_without_a_pad),
    "dropout_on": in_training_mode,
    "gradients_on": with_gradients,
    "padding_on_the_right": batch_of_texts,
    "padding_attended": batch_without_mask,
    "mask_inferred": batch_with_its_mask(padding.LEFT, {}),
    "pad_equals_end": batch_with_its_mask(torch.where(padding.LEFT == 0, 2, padding.LEFT), {}, 2),
    "mask_of_another_length": batch_with_its_mask(
        padding.LEFT[:1], {"attention_mask": torch.ones(1, 4, dtype=torch.long)}
    ),
    "pad_unset": tokenizer_without_pad,
    "inputs_refused": ids_in_a_list,
    "file_flags_unused": temperature_without_sampling,
    "cache_unfilled": checkpointed_in_training_mode,
    "cache_not_prefix": cache_of_another_prompt,
    "cache_grown": one_cache_for_two_questions,
    "prompt_decoded": prompt_in_the_answer,
    "template_missing": question_without_template,
    "ids_without_row": ids_of_added_tokens,
}


# What the library itself says of a fault, and of a name that it will change, is not asked here.
@pytest.mark.filterwarnings("default::UserWarning", "default::FutureWarning")
@pytest.mark.parametrize("rule", CODE)
def test_a_finding_is_gone_once_its_advice_was_run(rule, bench):
    with_it = asked(MADE[rule](bench, Advice(CODE[rule], is_followed=False)))
    without = asked(MADE[rule](bench, Advice(CODE[rule], is_followed=True)))
    assert rule in [one.rule for one in with_it]
    assert rule not in [one.rule for one in without], str(without)


def test_every_rule_says_whether_its_advice_is_code():
    assert sorted(ADVICE) == sorted({rule.name for rule in RULES})
    assert set(MADE) == set(CODE)
    assert len(CODE) > 20


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_code_that_is_run_is_the_code_that_is_read(code):
    told = words("findings", code)
    for rule, run in CODE.items():
        # Braces of code are doubled in words; those of values are not.
        assert run in told[rule]["fix"].replace("{{", "{").replace("}}", "}"), rule


def test_code_is_a_statement_of_python():
    for run in CODE.values():
        body = f"{run} pass" if run.endswith(":") else run
        compile(textwrap.dedent(body.replace("{back}", "back")), "advice", "exec")
