"""What an observer is, and the plainest one: a function of the library is one span of its stage."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Generator
from typing import Any

from tracer.instrument.targets import Target
from tracer.spans import Span, ThreadState

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """An observed call as it begins: the target, the library's own function, its arguments."""

    target: Target
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, place: int, name: str) -> Any:
        """An argument by position or name; None when it was not given."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name)


@dataclasses.dataclass(slots=True)
class Outcome:
    """How an observed call ended; an observer may put a stand-in in the place of its result."""

    result: Any
    error: BaseException | None

    @property
    def status(self) -> str:
        """The status that its row bears."""
        if self.error is None:
            return "ok"
        return "error" if isinstance(self.error, Exception) else "interrupted"


Observer = Generator[Arguments | None, Outcome, None]
"""Runs to its only `yield` before the call, from there on after it; may yield other arguments."""


def open_span(state: ThreadState, call: Call, name: str | None = None, **columns: Any) -> Span:
    """A span of the target's stage, with the source of the function and the way to it."""
    places = state.recorder.places
    return state.open(
        "spans",
        call.target.stage,
        name or call.target.attribute,
        function=call.target.name,
        source=places.source(call.function),
        stack=places.stack(sys._getframe()),
        **columns,
    )


def open_call(state: ThreadState, call: Call, name: str, kind: str, **columns: Any) -> Span:
    """A row of `calls`, with the source of the function and the way to it."""
    places = state.recorder.places
    return state.open(
        "calls",
        call.target.stage,
        name,
        kind=kind,
        source=places.source(call.function),
        stack=places.stack(sys._getframe()),
        **columns,
    )


def span(state: ThreadState, call: Call) -> Observer:
    """One span named after the function."""
    opened = open_span(state, call)
    outcome = yield None
    state.close(opened, outcome.status)
