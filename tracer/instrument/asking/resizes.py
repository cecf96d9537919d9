"""Resizes of a picture: sizes before and after, the limit that acted, and who set that limit.

What a processor's fields say of its limits is not asked: after an assignment some releases go on
showing the old ones. The function that computes the new size is met where it is called, with the
limits that it is handed.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any, Final

from tracer.instrument.installer import INSTALLER
from tracer.instrument.patching import IsOn
from tracer.instrument.stages import Call, Observer
from tracer.instrument.targets import RESIZE
from tracer.ledger import Guard
from tracer.recorder import Recorder
from tracer.spans import ThreadState

_EDGES: Final = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}
"""Each limit under its later name, as a part of `size`."""
_MISSING: Final = object()


@dataclasses.dataclass(frozen=True, slots=True)
class Resize:
    """One resize; sizes are (width, height), limits are pixels in all."""

    by: str
    before: tuple[int, int]
    after: tuple[int, int]
    min_pixels: int | None
    max_pixels: int | None
    acted: str | None
    """min_pixels or max_pixels; None where only the multiple of the patch counted."""
    origin: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As a cell of `images.resizes` holds it."""
        return dataclasses.asdict(self)

    def limits(self) -> str:
        """The limits in words, and which of them acted."""
        known = [("min_pixels", self.min_pixels), ("max_pixels", self.max_pixels)]
        said = ", ".join(f"{name}={value}" for name, value in known if value is not None)
        if not said:
            return f"{self.by}: multiples of the patch only"
        return f"{self.by}: {said}; {self.acted or 'none'} acted"


def of_call(by: str, call: Call, result: Any, origin: str | None = None) -> Resize:
    """A resize out of a call of the function that computes sizes: height and width first."""
    bound = inspect.signature(call.function).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    given = bound.arguments
    height, width = (int(size) for size in result[-2:])
    before = int(given["width"]), int(given["height"])
    limits = {name: _whole(given.get(name)) for name in _EDGES}
    acted = _acted(before, (width, height), given.get("factor"), limits)
    return Resize(by, before, (width, height), **limits, acted=acted, origin=origin)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _acted(
    before: tuple[int, int], after: tuple[int, int], factor: Any, limits: dict[str, int | None]
) -> str | None:
    """The limit without which the size would only have been rounded to multiples."""
    if factor is None or not any(limits.values()):
        return None
    width, height = (max(1, round(size / factor)) * factor for size in before)
    if (width, height) == after:
        return None
    return "max_pixels" if after[0] * after[1] < width * height else "min_pixels"


def watch(part: Any) -> None:
    """Meet the size function that this image processor's own file, or its base's, looks up."""

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        return INSTALLER.observed(RESIZE, original)

    for kind in type(part).__mro__:
        home = sys.modules.get(kind.__module__)
        if home is not None and inspect.isfunction(vars(home).get(RESIZE.attribute)):
            INSTALLER.place(home, RESIZE.attribute, wrap)


def processed(state: ThreadState, call: Call) -> Observer:
    """The size function inside an image processor; pictures of one size are asked for once."""
    outcome = yield None
    if outcome.error is None:
        made = of_call("processor", call, outcome.result)
        state.note("resizes", [*state.notes.get("resizes", ()), made])


def taken(state: ThreadState) -> list[Resize]:
    """What this thread's image processor has computed since it was asked the last time."""
    seen: list[Resize] = state.notes.get("resizes", [])
    state.note("resizes", [])
    return seen


def note_configuration(
    recorder: Recorder, part: Any, given: Any, arguments: dict[str, Any]
) -> None:
    """Remember what a file and the arguments of `from_pretrained` said of a processor's part."""
    known: list[tuple[Any, dict[str, Any], dict[str, Any]]] = recorder.notes.setdefault(
        "configured", []
    )
    known.append((part, dict(given) if isinstance(given, dict) else {}, dict(arguments)))


def configuration_of(recorder: Recorder, part: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What file and arguments said; None for a part not loaded in this recording."""
    for known, given, arguments in recorder.notes.get("configured", ()):
        if known is part:
            return given, arguments
    return None


def origin_of(recorder: Recorder, part: Any, asked: dict[str, Any], name: str, value: Any) -> str:
    """Who set a setting of an image or video processor; limits count under both their names.

    `asked` is what the user gave to the call at hand.
    """
    if _says(asked, name, value):
        return "call"
    configuration = configuration_of(recorder, part)
    if configuration is not None:
        given, arguments = configuration
        if _says(arguments, name, value):
            return "from_pretrained"
        if _says(given, name, value):
            return "preprocessor_config.json"
    if _says(_defaults(recorder, part), name, value):
        return "library"
    return "processor after load" if configuration is not None else "processor"


def _says(values: dict[str, Any], name: str, value: Any) -> bool:
    if name in _EDGES and values.get(name) is None:
        return bool(edges_of(values.get("size")).get(name, _MISSING) == value)
    return name in values and same(values[name], value)


def edges_of(size: Any) -> dict[str, int]:
    """Pixel limits in a `size`, under the names of the limits; empty for sizes of another kind."""
    values = size if isinstance(size, dict) else getattr(size, "__dict__", {})
    edges = {name: values.get(edge) for name, edge in _EDGES.items()}
    return {name: int(one) for name, one in edges.items() if one is not None}


def same(one: Any, other: Any) -> bool:
    """Whether two values of a setting are equal; a list equals a tuple of the same."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return bool(one == other)


def _defaults(recorder: Recorder, part: Any) -> dict[str, Any]:
    """What the class does without being told: the attributes of a new one, where it can be made.

    Some releases write their defaults into the body of `__init__`, where nothing else shows them.
    """
    made: dict[type, dict[str, Any]] = recorder.notes.setdefault("defaults of parts", {})
    kind = type(part)
    if kind not in made:
        values: dict[str, Any] = {}
        for home in reversed(kind.__mro__):
            values |= {name: one for name, one in vars(home).items() if not callable(one)}
        with Guard(recorder, kind.__name__, is_quiet=True):
            values |= vars(kind())
        made[kind] = {name: value for name, value in values.items() if value is not None}
    return made[kind]
