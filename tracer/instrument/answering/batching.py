"""Continuous batching: the call, what was asked and what came back.

A thread of the library's own packs pieces of many prompts into each forward. These forwards are
calls of that thread, with their modules; of a request its prompt, choices and answer are told.
"""

from __future__ import annotations

from typing import Any

from tracer.instrument.answering import batch_choices
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
        "own: forwards and modules are told, with generate_batch() the choices of a request too, "
        "its steps, effects of processors and cache are not",
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
    batching = batch_choices.begin(recorder)
    outcome = yield None
    batch_choices.end(recorder, batching)
    if outcome.result is not None:
        with state.own_work("tokens of the answers"), recorder.guard(call.target.name):
            span.columns["finish"] = [
                _tell_answer(recorder, span.seq, model, row, answer, batching)
                for row, answer in enumerate(outcome.result.values())
            ]
    if batching.untold:
        recorder.fault(
            "choices",
            f"continuous batching: the scores of {batching.untold} requests were not seen, "
            "since they are on a device or are made in another way",
        )
    state.close(span, outcome.status)
    recorder.flush_if_due(state)


def _tell_answer(
    recorder: Recorder,
    event: int,
    model: Any,
    row: int,
    answer: Any,
    batching: batch_choices.Batching,
) -> str:
    """Prompt, answer and choices of a request; gives why it ended."""
    ids = [int(one) for one in answer.prompt_ids]
    encoding = encodings.find(recorder, [ids])
    tokenizer = encoding.tokenizer if encoding else None
    if encoding is not None:
        encoding.consume()
    marks = tokens.Placeholders.of(model.config)
    prompt = tokens.Prompt([ids], None, encoding, marks, tokenizer, first_row=row)
    tokens.tell(recorder, event, prompt)
    vocabulary = tokens.vocabulary_of(recorder, tokenizer)
    assembler = TextAssembler(vocabulary, after=ids) if vocabulary else None
    chosen = [int(one) for one in answer.generated_tokens]
    told = [tokens.identity(one, vocabulary, assembler) for one in chosen]
    for place, columns in enumerate(told, len(ids)):
        own = {"row": row, "index": place, "position": place, "origin": "generated"}
        recorder.add_fact("tokens", event, event, **own, **columns)
    made = batching.of(answer.request_id, len(chosen))
    stops = made[-1].stops["token_id"] if made else []
    finish = "unknown" if not made else "eos" if chosen and chosen[-1] in stops else "length"
    if [one.columns["token_id"] for one in made] == chosen:
        texts = [columns.get("text") for columns in told]
        batch_choices.tell(recorder, event, row, made, texts, vocabulary, finish)
    else:
        batching.untold += 1
    return finish
