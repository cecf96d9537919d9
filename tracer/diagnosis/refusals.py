"""Rules on calls of generate() that the library refused before it had set them up.

Nothing ran, so there are no settings and no steps to ask. How far the set-up came tells what it
refused: each of its functions leaves a span, and what it checks behind one is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.generating import Generating, generations
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_SETTINGS: Final = "_prepare_generation_config"
_INPUTS: Final = "_prepare_model_inputs"
_LENGTH: Final = "_prepare_generated_length"
_OF_SETUP: Final = "setup"
"""Stage of the set-up's spans; their names are the library's functions, in the order they ran."""


@rule("settings_refused", "fatal", "trace")
def settings_refused(trace: Trace) -> Iterator[Found]:
    """Settings that contradict each other, or a value that there is not."""
    for call, last in _refused(trace):
        if last["name"] == _SETTINGS and last["status"] == "error":
            yield _found(call, last)


@rule("arguments_refused", "fatal", "trace")
def arguments_refused(trace: Trace) -> Iterator[Found]:
    """Arguments that neither generate() nor the model knows, or that can't be used together."""
    for call, last in _refused(trace):
        if last["name"] == _SETTINGS and last["status"] != "error":
            yield _found(call, last)


@rule("inputs_refused", "fatal", "trace")
def inputs_refused(trace: Trace) -> Iterator[Found]:
    """Ids that are missing, are given twice, or are no tensor."""
    for call, last in _refused(trace):
        if last["name"] == _INPUTS:
            yield _found(call, last)


@rule("length_refused", "fatal", "trace")
def length_refused(trace: Trace) -> Iterator[Found]:
    """A limit on the whole length that the prompt alone reaches."""
    for call, last in _refused(trace):
        if last["name"] == _LENGTH:
            prompt = call.prompt.groupby("row").size()
            yield _found(call, last, prompt=int(prompt.max()) if len(prompt) else None)


@rule("setup_refused", "fatal", "trace")
def setup_refused(trace: Trace) -> Iterator[Found]:
    """Anything later in the set-up: the cache, the processors, the stopping criteria."""
    for call, last in _refused(trace):
        if last["name"] not in (_SETTINGS, _INPUTS, _LENGTH):
            yield _found(call, last, function=str(last["name"]))


def _refused(trace: Trace) -> Iterator[tuple[Generating, pd.Series[Any]]]:
    """Calls that ended in their set-up, each with the span of the last function that it came to."""
    spans = trace["spans"]
    for call in generations(trace):
        has_run = pd.notna(call.call["mode"]) or len(call.steps)
        own = spans[(spans["call"] == call.seq) & spans["stage"].eq(_OF_SETUP)].sort_values("seq")
        # The first is the whole set-up, which its functions lie in.
        whole, inside = own.head(1), own.iloc[1:]
        inside = inside[inside["parent"].isin(whole["seq"])]
        if call.call["status"] == "error" and not has_run and len(inside):
            yield call, inside.iloc[-1]


def _found(call: Generating, last: pd.Series[Any], **values: Any) -> Found:
    return Found(
        {"name": str(call.call["name"]), **values},
        call.call_row("status", "mode") + rows_of("spans", last.to_frame().T, "name", "status"),
    )
