"""Continuous batching: the call, what was asked and what came back.

A thread of the library's own packs pieces of many prompts into each forward. These forwards are
calls of that thread, with their modules; which request a row belongs to is not told to anybody.
"""

from __future__ import annotations

from typing import Any

from tracer.instrument.asking import encodings, tokens
from tracer.instrument.asking.vocabulary import TextAssembler
from tracer.instrument.stages import Call, Observer, open_call
from tracer.recorder import Recorder
from tracer.spans import ThreadState


def began(state: ThreadState, call: Call) -> Observer:
    """`init_continuous_batching`: from now on a thread of the library's runs the model."""
    state.recorder.fault(
        "steps",
        "continuous batching packs pieces of many prompts into one forward, in a thread of its "
        "own: forwards and modules are told, steps, choices and caches of a request are not",
    )
    yield None


def batch(state: ThreadState, call: Call) -> Observer:
    """`generate_batch`: from the ids of the prompts to those of the answers."""
    model, recorder = call.args[0], state.recorder
    asked = call.argument(1, "inputs") or ()
    span = open_call(
        state,
        call,
        f"{type(model).__name__}.generate_batch",
        "generate_batch",
        model=recorder.models.of(model),
        mode="continuous batching",
        rows=len(asked),
    )
    if state.run is not None and state.run.model is model:  # generate() was asked for pages
        state.run.delegates = True
        state.run.mode = "continuous batching"
        state.run.span.columns["mode"] = "continuous batching, by a generate_batch() within"
    outcome = yield None
    if outcome.result is not None:
        with state.own_work("tokens of the answers"), recorder.guard(call.target.name):
            _tell_answers(recorder, span.seq, model, list(outcome.result.values()))
    state.close(span, outcome.status)
    recorder.flush_if_due(state)


def _tell_answers(recorder: Recorder, event: int, model: Any, answers: list[Any]) -> None:
    marks = tokens.Placeholders.of(model.config)
    for row, answer in enumerate(answers):
        ids = [int(one) for one in answer.prompt_ids]
        encoding = encodings.find(recorder, [ids])
        tokenizer = encoding.tokenizer if encoding else None
        if encoding is not None:
            encoding.consume()
        prompt = tokens.Prompt([ids], None, encoding, marks, tokenizer, first_row=row)
        tokens.tell(recorder, event, prompt)
        vocabulary = tokens.vocabulary_of(recorder, tokenizer)
        assembler = TextAssembler(vocabulary, after=ids) if vocabulary else None
        for place, token_id in enumerate(answer.generated_tokens, len(ids)):
            recorder.add_fact(
                "tokens",
                event,
                event,
                row=row,
                index=place,
                position=place,
                origin="generated",
                **tokens.identity(int(token_id), vocabulary, assembler),
            )
