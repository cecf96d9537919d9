"""Counts of the functions that rotate queries and keys, and of the one that gives positions."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from tracer.instrument.hooks import every_module
from tracer.instrument.installer import INSTALLER, tracing_test
from tracer.instrument.patching import IsOn, Wrap
from tracer.instrument.targets import ROPE_INDEX_METHOD, ROTARY_FUNCTIONS
from tracer.spans import ACTIVE


def count(model: Any, is_model_class: Callable[[type], bool]) -> None:
    """Count the functions that rotate and the method that computes three-axis positions."""
    for kind in {type(module) for module in every_module(model)}:
        if not is_model_class(kind):
            continue
        home = sys.modules.get(kind.__module__)
        for name, what in ROTARY_FUNCTIONS.items():
            if home is not None and callable(vars(home).get(name)):
                INSTALLER.place(home, name, _counter(what))
        for owner in kind.__mro__:
            if ROPE_INDEX_METHOD in vars(owner):
                INSTALLER.place(owner, ROPE_INDEX_METHOD, _counter("rope_index_calls"))


def _counter(what: str) -> Wrap:
    is_traced = tracing_test()

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if is_traced():
                return original(*args, **kwargs)
            state = ACTIVE.get(threading.get_ident())
            if state is not None and is_on():
                state.counts[what] = state.counts.get(what, 0) + 1
            return original(*args, **kwargs)

        return counted

    return wrap
