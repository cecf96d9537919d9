"""Raise an error at the n-th call of a function of the lab: what a bug or Ctrl-C there would do."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tracer

_LAB = Path(tracer.__file__).parent
RECORDER = tuple(
    str(_LAB / room)
    for room in ("instrument/", "recorder.py", "spans.py", "places.py", "rows.py", "journal.py")
)
"""The rooms that run inside the user's calls."""


class Injected(RuntimeError):
    """An error that nobody but a test raises."""


def is_of_the_recorder(code: CodeType) -> bool:
    """Whether a function belongs to the part of the lab that runs inside the user's calls."""
    return code.co_filename.startswith(RECORDER)


# What tells of a module that has run, but for its own entry; the error boundary itself; questions
# such as whether a session lasts, and comparisons; and generators, which are also called to be
# closed, when nobody can hear them raise.
_UNGUARDED = ("ended", "guard", "__enter__", "__exit__", "failed", "fault", "is_on", "<genexpr>")


def _is_inner(frame: FrameType) -> bool:
    """Called by the lab itself: a stand-in that the library calls can't guard its own entry."""
    above = frame.f_back
    return (
        is_of_the_recorder(frame.f_code)
        and above is not None
        and is_of_the_recorder(above.f_code)
        and frame.f_code.co_name not in _UNGUARDED
    )


class Calls:
    """Counts calls of the lab's functions and raises at one of them."""

    def __init__(
        self, at: int, error: BaseException | None, wanted: Callable[[FrameType], bool]
    ) -> None:
        self.at, self.error, self.wanted = at, error, wanted
        self.count = 0
        self.place: str | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """What the interpreter tells of each call."""
        if event != "call" or not self.wanted(frame):
            return
        self.count += 1
        if self.count == self.at and self.error is not None:
            self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"
            raise self.error


@contextmanager
def injected(
    at: int = 0,
    error: BaseException | None = None,
    wanted: Callable[[FrameType], bool] = _is_inner,
) -> Iterator[Calls]:
    """Raise `error` at call number `at` inside the block; 0 counts the calls and raises nothing."""
    calls = Calls(at, error, wanted)
    sys.setprofile(calls)
    try:
        yield calls
    finally:
        sys.setprofile(None)


class Lines:
    """Counts lines of the lab as they run, and the ends of its functions; raises at one of them."""

    def __init__(self, at: int, error: BaseException | None, returns: bool) -> None:
        self.at, self.error = at, error
        self.kinds = {"line", "return"} if returns else {"line"}
        self.count = 0
        self.place: str | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """What the interpreter tells of each call, line and return."""
        if not frame.f_code.co_filename.startswith(str(_LAB)):
            return None
        if event in self.kinds:
            self.count += 1
            if self.count == self.at and self.error is not None:
                file = Path(frame.f_code.co_filename).name
                self.place = f"{file}:{frame.f_lineno} {frame.f_code.co_qualname} {event}"
                raise self.error
        return self


@contextmanager
def interrupted_at_line(
    at: int = 0, error: BaseException | None = None, *, returns: bool = True
) -> Iterator[Lines]:
    """Raise `error` at line number `at` of the lab inside the block, or as a function returns.

    This is where Ctrl-C strikes: between two lines, or when a function is over and its caller has
    not yet taken what it gave. 0 counts and raises nothing.
    """
    lines = Lines(at, error, returns)
    before = sys.gettrace()
    sys.settrace(lines)
    try:
        yield lines
    finally:
        sys.settrace(before)
