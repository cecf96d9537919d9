"""What a manifest's fields hold, and one sentence for a field that holds something else.

A manifest is JSON that may have been edited, damaged or made by a stranger. Its fields are checked
here once, so that whoever reads one may rely on its type. Fields that nobody reads are let be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tracer.errors import TraceFormatError
from tracer.explain.sentences import phrase


@dataclasses.dataclass(frozen=True, slots=True)
class _Plain:
    words: str
    kinds: tuple[type, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _ListOf:
    item: Shape
    words: str = "a list"


@dataclasses.dataclass(frozen=True, slots=True)
class _ObjectOf:
    """An object with any names, all of whose values have one shape."""

    value: Shape
    words: str = "an object"


@dataclasses.dataclass(frozen=True, slots=True)
class _Record:
    """An object with known names, of which some must be there."""

    fields: Mapping[str, Shape]
    required: tuple[str, ...] = ()
    words: str = "an object"


Shape: TypeAlias = "_Plain | _ListOf | _ObjectOf | _Record"

_TEXT: Final = _Plain("text", (str,))
_TEXT_OR_NOTHING: Final = _Plain("text or null", (str, type(None)))
_NUMBER: Final = _Plain("a whole number", (int,))
_NUMBER_OR_NOTHING: Final = _Plain("a whole number or null", (int, type(None)))
_CLAIM: Final = _Plain("true or false", (bool,))
_ANYTHING: Final = _Plain("anything", (object,))
_ANY_OBJECT: Final = _ObjectOf(_ANYTHING)

_OF_A_RANK: Final[dict[str, Shape]] = {
    "schema_version": _NUMBER,
    "state": _TEXT,
    "ended": _TEXT_OR_NOTHING,
    "started": _TEXT_OR_NOTHING,
    "duration_ns": _NUMBER_OR_NOTHING,
    "storage_failure": _TEXT_OR_NOTHING,
    "versions": _ANY_OBJECT,
    "machine": _ANY_OBJECT,
    "options": _ANY_OBJECT,
    "recorder": _ANY_OBJECT,
    "dropped": _ListOf(_TEXT),
    "scrubbed": _ListOf(_TEXT),
    "index_only": _ObjectOf(_ListOf(_TEXT)),
    "targets": _ListOf(
        _Record(
            {"target": _TEXT, "expected": _CLAIM, "seen": _NUMBER}, ("target", "expected", "seen")
        )
    ),
    "clock": _Record({"wall_ns": _NUMBER, "monotonic_ns": _NUMBER, "origin_ns": _NUMBER}),
    "rank": _NUMBER,
    "world_size": _NUMBER,
    "launch": _TEXT,
    "missing_ranks": _ListOf(_NUMBER),
    "time_line": _TEXT,
    "provenance": _ObjectOf(_TEXT),
    "disagreements": _ListOf(_TEXT),
    "rows": _ObjectOf(_NUMBER),
    "lost": _ListOf(
        _Record(
            {"table": _TEXT, "written": _NUMBER, "found": _NUMBER, "rank": _NUMBER},
            ("table", "written", "found"),
        )
    ),
}
_FIELDS: Final[dict[str, Shape]] = {
    **_OF_A_RANK,
    "ranks": _ListOf(_Record({**_OF_A_RANK, "shift_ns": _NUMBER}, ("rank", "shift_ns"))),
}


def check_manifest(manifest: Mapping[str, Any], where: str) -> None:
    """Hold every field that the lab reads against what it must hold.

    Args:
        manifest: The manifest; absent fields are no fault.
        where: The file or trace, named in the error.

    Raises:
        TraceFormatError: A field holds something else; the message names it.
    """
    found = _misfit(manifest, _MANIFEST, "")
    if found is not None:
        field, words, value = found
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
        raise TraceFormatError(
            phrase(
                "errors.damaged_field",
                file=where,
                field=field,
                found=shown,
                wanted=phrase(f"shapes.{words}"),
            )
        )


def _misfit(value: Any, shape: Shape, name: str) -> tuple[str, str, Any] | None:
    """The first place that does not fit: its name, what was expected, what is there."""
    if isinstance(shape, _Plain):
        # True is a whole number to Python, and to nobody else.
        is_claim = isinstance(value, bool) and bool not in shape.kinds and object not in shape.kinds
        fits = isinstance(value, shape.kinds) and not is_claim
        return None if fits else (name, shape.words, value)
    if not isinstance(value, list if isinstance(shape, _ListOf) else Mapping):
        return name, shape.words, value
    for inner, item, wanted in _parts(value, shape, name):
        found = _misfit(item, wanted, inner)
        if found is not None:
            return found
    return None


def _parts(value: Any, shape: Shape, name: str) -> list[tuple[str, Any, Shape]]:
    if isinstance(shape, _ListOf):
        return [(f"{name}[{index}]", item, shape.item) for index, item in enumerate(value)]
    dot = f"{name}." if name else ""
    if isinstance(shape, _ObjectOf):
        return [(f"{dot}{key}", item, shape.value) for key, item in value.items()]
    assert isinstance(shape, _Record)
    return [
        (f"{dot}{key}", value.get(key), wanted)
        for key, wanted in shape.fields.items()
        if key in value or key in shape.required
    ]


_MANIFEST: Final = _Record(_FIELDS, ("schema_version",))
