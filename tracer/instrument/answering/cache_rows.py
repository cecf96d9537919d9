"""What becomes of a cache between forwards: rows put in another order, taken out or repeated.

What the library's own methods do is followed. Where the keys were exchanged in another way, nobody
knows which ids are behind them: they are forgotten. Keeps no tensor, reads none on a device.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Final

from tracer.instrument.answering import caches
from tracer.instrument.stages import Call, Observer
from tracer.recorder import Recorder
from tracer.spans import ThreadState

_REPEATING: Final = "batch_repeat_interleave"
_CUTTING: Final = "crop"


@dataclasses.dataclass(slots=True)
class Picked:
    """Rows that go on from those before: by their places, or each so many times."""

    places: Any = None  # a list, or an own copy of a tensor: (rows,), or a mask of the rows before
    times: int = 1

    def of(self, rows: list[Any]) -> list[Any]:
        """The rows that are left, in their order."""
        if self.places is None:
            return [list(row) for row in rows for _ in range(self.times)]
        places = self.places if isinstance(self.places, list) else self.places.tolist()
        if any(isinstance(one, bool) for one in places):
            places = [place for place, stays in enumerate(places) if stays]
        return [list(rows[place]) for place in places] if rows else []


def _keys(recorder: Recorder) -> dict[str, weakref.ref[Any]]:
    left: dict[str, weakref.ref[Any]] = recorder.notes.setdefault("cache_keys", {})
    return left


def note(recorder: Recorder, name: str, cache: Any) -> None:
    """Remember which tensor holds a cache's first keys now, behind a forward."""
    _moves(recorder).pop(name, None)
    _hold(recorder, name, cache)


def _hold(recorder: Recorder, name: str, cache: Any) -> None:
    keys = caches.keys_held(cache)
    if keys is None:
        _keys(recorder).pop(name, None)
    else:
        _keys(recorder)[name] = weakref.ref(keys)


def _moves(recorder: Recorder) -> dict[str, list[Picked | None]]:
    moves: dict[str, list[Picked | None]] = recorder.notes.setdefault("cache_moves", {})
    return moves


def places(recorder: Recorder, name: str, cache: Any, rows: int) -> list[int] | None:
    """Where each row of a cache stood when the last forward ended; None where nobody knows."""
    if not is_as_left(recorder, name, cache):
        return None
    found = [[row] for row in range(rows)]
    for picked in _moves(recorder).get(name, ()):
        if picked is None:
            return None
        found = picked.of(found)
    return [row for (row,) in found]


def is_as_left(recorder: Recorder, name: str, cache: Any) -> bool:
    """Whether a cache holds what the last forward that was seen left in it."""
    left = _keys(recorder).get(name)
    return left is None or left() is caches.keys_held(cache)


def moved(state: ThreadState, call: Call) -> Observer:
    """A method of a cache that arranges its rows anew, or cuts their ends off."""
    cache, recorder = call.args[0], state.recorder
    is_between = state.run is None and recorder.caches.knows(cache)
    before = is_between and is_as_left(recorder, recorder.caches.of(cache), cache)
    outcome = yield None
    if not is_between or outcome.error is not None:
        return
    name = recorder.caches.of(cache)
    if before:
        _hold(recorder, name, cache)
    if call.target.attribute == _CUTTING:
        return  # what is left begins as it did
    picked = _picked(call.target.attribute, next(iter((*call.args[1:], *call.kwargs.values()))))
    _moves(recorder).setdefault(name, []).append(picked)
    ids: dict[str, dict[str, list[Any]]] = recorder.notes.get("cached_ids", {})
    for known in ids.values():
        if name in known and picked is not None:
            known[name].append(picked)
        else:
            known.pop(name, None)


def _picked(method: str, given: Any) -> Picked | None:
    """What a method was asked to do with the rows; None where its argument has another form."""
    if method == _REPEATING:
        return Picked(times=given) if isinstance(given, int) else None
    if isinstance(given, list):
        return Picked(list(given))
    return Picked(given.detach().clone()) if getattr(given, "ndim", 0) == 1 else None
