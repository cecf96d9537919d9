"""Readable ids of objects, kept without keeping the objects."""

from __future__ import annotations

import itertools
import weakref
from typing import Any


class ShortIds:
    """Ids of one kind of objects, by their first meeting: model-1, model-2, ..."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._numbers = itertools.count(1)
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def of(self, thing: Any) -> str:
        """The id of an object, the same for the same object throughout the trace."""
        name = self._known.get(thing)
        if name is None:
            name = self._known[thing] = f"{self._word}-{next(self._numbers)}"
        return name

    def knows(self, thing: Any) -> bool:
        """Whether the object was named before."""
        return thing in self._known

    def alive(self) -> list[Any]:
        """The named objects that still exist."""
        return list(self._known)
