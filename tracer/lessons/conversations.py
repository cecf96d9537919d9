"""One conversation held in several ways: what is sent each turn, and whether a cache goes with it.

The ways differ in what a service hands to `generate`: the history encoded anew, a cache that is
kept, a window of the last turns, a summary; and a window *together with* a kept cache, which looks
like the best of both and is wrong. Who records the conversation reads the rest in the trace.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, Literal

import pandas as pd

from tracer.analysis.answer import answer_text
from tracer.analysis.generation import generate_calls
from tracer.analysis.turns import turns
from tracer.demo.drawing import COLOURS, FORMS, PLACES
from tracer.errors import UnknownNameError
from tracer.explain.sentences import phrase
from tracer.instrument.answering import caches
from tracer.trace import Trace

Way = Literal["history", "cache", "window", "summary", "window and cache"]
WAYS: Final[dict[str, str]] = {
    "history": "all messages rendered and encoded anew, no cache handed on",
    "cache": "the ids so far with the new ones behind, and the cache of the call before",
    "window": "the last turns only, encoded anew, no cache handed on",
    "summary": "the first words of each earlier message in one line, then the question",
    "window and cache": "the last turns only, and the cache of the call before: a mistake",
}
_SUMMARY_WORDS: Final = 6
_MARK: Final = "ANSWER"


def long_questions(tokenizer: Any, turns: int, tokens: int) -> list[str]:
    """Questions for a conversation: a greeting, then notes on pictures of about so many tokens."""
    chance = random.Random(0)
    asked = ["Hello!", "Which shapes do you know?", "Who are you?", "Which colours do you know?"]
    questions = [asked[turn % len(asked)] for turn in range(turns)]
    for turn in range(1, turns):
        notes = ""
        while len(tokenizer(notes + questions[turn])["input_ids"]) < tokens:
            colour, form = chance.choice(list(COLOURS)), chance.choice(FORMS)
            notes += f"There is a {colour} {form} in the {chance.choice(PLACES)}. "
        questions[turn] = notes + questions[turn]
    return questions


def converse(
    model: Any,
    tokenizer: Any,
    questions: Sequence[str],
    way: Way = "history",
    *,
    window: int = 2,
    new_tokens: int = 12,
) -> list[list[int]]:
    """Hold a conversation, greedily, a `generate` a question.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer, with a chat template.
        questions: What the user says, in order.
        way: What is handed over each turn, see `WAYS`.
        window: Earlier turns that a window keeps.
        new_tokens: Largest length of an answer.

    Returns:
        The ids of each answer.

    Raises:
        UnknownNameError: There is no such way.
    """
    if way not in WAYS:
        raise UnknownNameError(phrase("errors.no_way", way=way, known=", ".join(WAYS)))
    said: list[dict[str, str]] = []
    answers: list[list[int]] = []
    ids: list[int] = []
    cache: dict[str, Any] = {}
    for question in questions:
        said.append({"role": "user", "content": question})
        if way == "cache" and ids:
            ids = ids + _next_turn(tokenizer, ids, question)
        else:
            ids = _encoded(tokenizer, _sent(said, way, window))
        output = _generate(model, ids, cache, new_tokens)
        cache = _kept(output) if way in ("cache", "window and cache") else {}
        new = output.sequences[0, len(ids) :].tolist()
        ids = ids + new
        answers.append(new)
        said.append(
            {"role": "assistant", "content": tokenizer.decode(new, skip_special_tokens=True)}
        )
    return answers


def _sent(said: list[dict[str, str]], way: Way, window: int) -> list[dict[str, str]]:
    if way in ("window", "window and cache"):
        return said[-(2 * window + 1) :]
    if way == "summary" and len(said) > 1:
        earlier = " / ".join(
            " ".join(one["content"].split()[-_SUMMARY_WORDS:]) for one in said[:-1]
        )
        return [{"role": "user", "content": f"({earlier}) {said[-1]['content']}"}]
    return said


def _encoded(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    # The template has written every special token already.
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _next_turn(tokenizer: Any, ids: list[int], question: str) -> list[int]:
    """The ids that come behind an answer: nothing before them is encoded again."""
    turn = [{"role": "user", "content": ""}, {"role": "assistant", "content": _MARK}]
    turn.append({"role": "user", "content": question})
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    behind = text[text.index(_MARK) + len(_MARK) :]
    if ids[-1] == tokenizer.eos_token_id:  # the model has said it itself
        behind = behind.removeprefix(tokenizer.eos_token)
    added: list[int] = tokenizer(behind, add_special_tokens=False)["input_ids"]
    return added


def _generate(model: Any, ids: list[int], cache: dict[str, Any], new_tokens: int) -> Any:
    import torch

    given = torch.tensor([ids], device=model.device)
    return model.generate(
        input_ids=given,
        attention_mask=torch.ones_like(given),
        max_new_tokens=new_tokens,
        do_sample=False,
        return_dict_in_generate=True,
        **cache,
    )


def _kept(output: Any) -> dict[str, Any]:
    """The cache of a call under the name by which this release takes it."""
    # Generation 5 gives it under both names, and takes it under either, not both.
    name = next(name for name in caches.NAMES if name in output)
    return {name: output[name]}


def beside(trace: Trace, right: Trace) -> pd.DataFrame:
    """A conversation beside the one that encoded everything it sent anew.

    Returns:
        A row a turn: turn, prompt_tokens (as handed to the call), fed_tokens, cached_tokens (which
        need not add up to the prompt when a cache is not its beginning), prefix_tokens (leading ids
        of the prompt that the passed cache was built from; missing without one), recomputed_tokens,
        is_same, answer, right_answer (missing where a call failed).
    """
    calls = trace.read("calls", ["seq", "cache_prefix_tokens", "recomputed_tokens"])
    reuse = calls.set_index("seq")
    frame = turns(trace)[["turn", "call", "prompt_tokens", "fed_tokens", "cached_tokens"]]
    frame["prefix_tokens"] = frame["call"].map(reuse["cache_prefix_tokens"]).astype("Int64")
    frame["recomputed_tokens"] = frame["call"].map(reuse["recomputed_tokens"]).astype("Int64")
    rows = zip(generate_calls(trace), generate_calls(right), strict=False)
    pairs = [(_answer(trace, mine), _answer(right, other)) for mine, other in rows]
    frame["is_same"] = [mine[0] == other[0] for mine, other in pairs]
    # Ids put together out of two encodings have no tokenizer; but same ids are the same text.
    frame["answer"] = [other[1] if mine[0] == other[0] else mine[1] for mine, other in pairs]
    frame["right_answer"] = [other[1] for _, other in pairs]
    return frame.drop(columns="call")


def _answer(trace: Trace, call: int) -> tuple[list[int], str | None]:
    where = [("call", "==", call), ("row", "==", 0)]
    ids = trace.read("choices", ["step", "token_id"], where).sort_values("step")["token_id"]
    return ids.dropna().astype(int).tolist(), answer_text(trace, call).get(0)
