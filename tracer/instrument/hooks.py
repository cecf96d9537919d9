"""Hooks that stay behind: a copied or pickled model takes along nothing of the lab."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any


class InertInCopies(functools.partial[None]):
    """A hook; its deep copy and its pickle do nothing. Calling it costs next to nothing.

    The standard library's own do-nothing stands in for it, so that a model that was pickled while
    a recording was on is read where the lab is not installed.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class AbsentFromCopies(functools.partial[Any]):
    """A function that stays with its object: a deep copy or a pickle has None in its place.

    It counts as false, as None does: who asks whether a module has a compiled call hears no.
    """

    def __bool__(self) -> bool:
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def every_module(model: Any) -> Iterator[Any]:
    """Each module once, parents first, children in their order.

    torch's own `modules()` is a generator in a generator for each level, which takes longer with
    a deep model than the placing of all hooks.
    """
    waiting, met = [model], set()
    while waiting:
        module = waiting.pop()
        if id(module) in met:
            continue
        met.add(id(module))
        yield module
        if module._modules:
            waiting.extend(
                child for child in reversed(module._modules.values()) if child is not None
            )
