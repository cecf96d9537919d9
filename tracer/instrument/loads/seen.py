"""Wrappers for what a load calls once a tensor or oftener: they tell of each call that returned.

Those of `stages.py` make a span of each call, which would take longer than such a call itself.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tracer.instrument.loads.load_notes import Load
from tracer.instrument.patching import IsOn, Wrap
from tracer.spans import ACTIVE


class Seen(NamedTuple):
    """A call that has returned: times on the recorder's clock, arguments, result."""

    start: int
    end: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def argument(self, place: int, name: str) -> Any:
        """An argument by position or name; None when it was not given."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name)


# A NamedTuple's own constructor is a function of Python; this is the one below it.
_seen: Final = functools.partial(tuple.__new__, Seen)


def told(note: Callable[[Load, Seen], None]) -> Callable[[str], Wrap]:
    """Wrappers for a target that tell `note` of each call of this thread's load that returned."""

    def noted(load: Load, *seen: Any) -> None:
        note(load, _seen(seen))

    return told_briefly(noted)


def told_briefly(
    note: Callable[[Load, int, int, tuple[Any, ...], dict[str, Any], Any], None],
) -> Callable[[str], Wrap]:
    """The same with the fields of `Seen` as arguments, for what takes no longer than a clock.

    Five of them run for each tensor, so names are bound locally and nothing is done twice. Their
    own time is not clocked, which would take as long again: the manifest estimates it, as it does
    that of all stand-ins.
    """
    active, ident = ACTIVE.get, threading.get_ident

    def for_target(name: str) -> Wrap:
        def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                state = active(ident())
                if state is None or (load := state.load) is None or not is_on():
                    return original(*args, **kwargs)
                recorder = state.recorder
                clock = recorder.clock
                recorder.targets_seen[name] += 1
                start = clock()
                result = original(*args, **kwargs)
                try:
                    note(load, start, clock(), args, kwargs, result)
                except Exception as error:
                    recorder.failed(name, error)
                return result

            return wrapper

        return wrap

    return for_target
