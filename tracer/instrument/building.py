"""Building a class without weights, as the lab does by itself, beside what other threads do.

accelerate's `init_empty_weights` and the default dtype change the whole process: another thread's
parameters would lose their values meanwhile, and of two blocks that overlap the later one would
put the other's change back for good. So parameters are taken to meta in this thread alone, builds
of the lab go one at a time, and no load of the recording begins during one.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tracer.instrument import patching
from tracer.instrument.patching import IsOn
from tracer.spans import ACTIVE, ThreadState

LOCK = threading.RLock()
"""Held by a thread that builds a class, and for a moment where a load begins."""


def renew_lock() -> None:
    """In a forked child: whoever held it in the parent is not here to let go of it."""
    global LOCK
    LOCK = threading.RLock()


def others_load() -> bool:
    """Whether a recorded load goes on in another thread."""
    own = threading.get_ident()
    return any(_loads(state) for ident, state in list(ACTIVE.items()) if ident != own)


def _loads(state: ThreadState | None) -> bool:
    while state is not None:
        if state.load is not None:
            return True
        state = state.below
    return False


@contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    """Another default dtype, for the whole process, as a load sets it; nobody else builds here."""
    torch = sys.modules["torch"]
    with LOCK:
        before = torch.get_default_dtype()
        try:
            if before != dtype:
                torch.set_default_dtype(dtype)
            yield
        finally:
            if torch.get_default_dtype() != before:
                torch.set_default_dtype(before)


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Every parameter that this thread registers goes to meta; buffers stay real."""
    torch = sys.modules["torch"]
    ours = [threading.get_ident()]
    wrap = functools.partial(_registering, ours)
    placed = patching.prepare(torch.nn.Module, "register_parameter", wrap, ours.__len__)
    try:
        patching.put(placed)
        yield
    finally:
        ours.clear()  # whoever kept the wrapper has an inert one
        patching.undo(placed)


def _registering(
    ours: list[int], original: Callable[..., Any], is_on: IsOn
) -> Callable[[Any, str, Any], None]:
    torch = sys.modules["torch"]

    @functools.wraps(original)
    def register_parameter(module: Any, name: str, param: Any) -> None:
        original(module, name, param)
        kept = module._parameters.get(name)
        if kept is None or kept.is_meta or threading.get_ident() not in ours:
            return
        away = kept.detach().to("meta")
        made = torch.Tensor._make_subclass(type(kept), away, kept.requires_grad)
        made.__dict__.update(vars(kept))
        module._parameters[name] = made

    return register_parameter
