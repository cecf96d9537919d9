"""Hooks that stay behind: a copied or pickled model takes along functions that do nothing."""

from __future__ import annotations

import functools
from typing import Any


class InertInCopies(functools.partial[None]):
    """A hook; its deep copy and its pickle are `inert`. Calling it costs next to nothing."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return inert

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_inert, ()


def inert(*args: Any, **kwargs: Any) -> None:
    """What becomes of a hook in a copy of its model."""


def _make_inert() -> Any:
    return inert
