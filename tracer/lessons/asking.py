"""Short questions put to a text model, one by one or as a batch, and what a trace tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tracer.analysis.answer import answer_text
from tracer.analysis.generation import generate_calls
from tracer.trace import Trace


def ask(
    model: Any,
    tokenizer: Any,
    questions: str | Sequence[str],
    *,
    new_tokens: int = 12,
    **given: Any,
) -> list[str]:
    """Put questions to a model as one batch, greedily.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer, with a chat template; pads on the side that it is set to.
        questions: One, or those of a batch.
        new_tokens: Largest length of an answer.
        given: Further arguments of the tokenizer, such as `max_length`.

    Returns:
        The answers, without the prompt and without special tokens.
    """
    asked = [questions] if isinstance(questions, str) else list(questions)
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        for question in asked
    ]
    # The template has written every special token already.
    given = {"padding": len(asked) > 1, "add_special_tokens": False} | given
    inputs = tokenizer(texts, return_tensors="pt", **given).to(model.device)
    output = model.generate(**inputs, max_new_tokens=new_tokens, do_sample=False)
    new = output[:, inputs["input_ids"].shape[1] :]
    answers: list[str] = tokenizer.batch_decode(new, skip_special_tokens=True)
    return answers


def answers(trace: Trace) -> pd.DataFrame:
    """What each generate call answered.

    Returns:
        A row a row of a call: call, row, answer (missing where no tokenizer was seen).
    """
    rows: list[list[Any]] = []
    for call in generate_calls(trace):
        told = answer_text(trace, call)
        rows += [[call, row, text] for row, text in told.items()] or [[call, 0, None]]
    return pd.DataFrame(rows, columns=["call", "row", "answer"])
