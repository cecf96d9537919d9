"""Sentences that a trace holds in English, said again in the language that holds.

A recording puts reasons down in English, so that a trace is the same whoever makes it. Here such a
sentence is found among the English words by what stands round their braces, what stands in the
braces is looked at in the same way, and both are said in another language. What is not found stays.
"""

from __future__ import annotations

import functools
import re
import string
from typing import Final

from tracer.explain.languages import language, words
from tracer.explain.lookup import text

_SECTION: Final = "verification"
_SPAN: Final = r"\d+(?: to \d+)?"
_PATTERNS: Final = {
    "shape": r"\[[\d, ]*\]",
    "dtype": r"\w+",
    "count": r"\d+",
    "total": r"\d+",
    "size": r"\d+",
    "dimension": r"\d+",
    "first": r"\d+",
    "last": r"\d+",
    "rest": r"\d+",
    "span": _SPAN,
    "ranges": rf"none|{_SPAN}(?:, {_SPAN})*",
    "quantiser": r"\S+",
}
"""What may stand in braces of these names, with `other_` before it or not; else anything."""
_SENTENCE: Final = "reason"
"""In braces of this name stands a sentence that must be found itself."""
_JOINTS: Final = {"; ": "parts", ", ": "names"}


def said_again(told: str, code: str | None = None) -> str:
    """A recorded sentence in a language, by default in the one that holds."""
    code = code or language()
    return told if code == "en" else _again(told, code) or told


def _again(told: str, code: str) -> str | None:
    return _whole(told, code) or _listed(told, code)


def _whole(told: str, code: str) -> str | None:
    for key, form in _forms():
        found = form.fullmatch(told)
        if found is None:
            continue
        values = {name: _again(value, code) for name, value in found.groupdict().items()}
        if all(values[name] for name in values if name == _SENTENCE):
            kept = {name: value or found[name] for name, value in values.items()}
            return text(f"{_SECTION}.{key}", code, **kept)
    return None


def _listed(told: str, code: str) -> str | None:
    """Several sentences or names behind each other, of which at least one is found."""
    for joint, between in _JOINTS.items():
        parts = told.split(joint)
        said = [_whole(part, code) for part in parts]
        if len(parts) > 1 and any(said):
            both = zip(said, parts, strict=True)
            return text(f"joints.{between}", code).join(one or part for one, part in both)
    return None


@functools.cache
def _forms() -> list[tuple[str, re.Pattern[str]]]:
    """English sentences as patterns; those with the most words of their own first."""
    known = words(_SECTION, "en")[_SECTION]
    ordered = sorted(known, key=lambda key: -len(re.sub(r"\{.*?\}", "", known[key])))
    return [(key, re.compile(_pattern(known[key]), re.DOTALL)) for key in ordered]


def _pattern(sentence: str) -> str:
    return "".join(
        re.escape(literal) + (f"(?P<{field}>{_allowed(field)})" if field else "")
        for literal, field, _, _ in string.Formatter().parse(sentence)
    )


def _allowed(field: str) -> str:
    return _PATTERNS.get(field.removeprefix("other_"), ".+?")
