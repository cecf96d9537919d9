"""Sentences that a trace holds in English, said again in the language that holds.

A recording puts reasons down in English, so that a trace is the same whoever makes it. Here such a
sentence is found among the English words by what stands round their braces, what stands in the
braces is looked at in the same way, and both are said in another language. What is not found stays.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Iterable
from typing import Final

from tracer.explain.languages import language
from tracer.explain.lookup import section_words, text

_SECTIONS: Final = ("reasons", "verification", "folders", "formats", "unread", "limits")
"""Sections whose sentences a trace may hold."""
_SPAN: Final = r"\d+(?: to \d+)?"
_WORD: Final = r"[\w.]+"
_NAME: Final = r"\S+"
_NUMBER: Final = r"-?\d+"
_ANYTHING: Final = ".+?"
_PATTERNS: Final = {
    "shape": r"\[[\d, ]*\]",
    "dtype": r"\w+",
    "part": r"[\w.]+|its data",
    "difference": r"(?:differs|has|holds|is) .+?",
    "span": _SPAN,
    "ranges": rf"none|{_SPAN}(?:, {_SPAN})*",
    "params": r"[^\s,]+(?:, [^\s,]+)*",
    "operations": rf"{_WORD}(?:, {_WORD})*",
    "limits": r"\w+=\d+(?:, \w+=\d+)*",
    **dict.fromkeys(("param", "main", "quantiser", "owner", "attribute", "kernel"), _NAME),
    **dict.fromkeys(("by", "acted", "step", "method"), _WORD),
    **dict.fromkeys(("count", "total", "size", "dimension", "first", "last", "rest"), _NUMBER),
    **dict.fromkeys(("call", "rank"), _NUMBER),
}
"""What may stand in braces of these names, with `other_` before it or not; else anything."""
_SENTENCES: Final = {"reason", "difference"}
"""In braces of these names stands a sentence that must be found itself."""
_SHORT: Final = {*_SENTENCES, "ranges", "basis"}
"""In braces of these names one word may be a sentence; in others it is a name, and stays."""
_JOINTS: Final = {". ": "sentences", "; ": "parts", ", ": "names"}
_LONGEST: Final = 1_000
"""Characters; what is longer holds another's text, in which there is nothing to find."""
_DEEPEST: Final = 5
"""Sentences within sentences; the lab's own go three deep, a stranger's might have no end."""


class _AsToldThere(str):
    """What stood in braces, quotes included where the sentence puts some round it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def said_again(told: str, code: str | None = None) -> str:
    """A recorded sentence in a language, by default in the one that holds."""
    code = code or language()
    return told if code == "en" or len(told) > _LONGEST else _again(told, code) or told


@functools.lru_cache(maxsize=1 << 12)
def _again(told: str, code: str, depth: int = 0, *, whole: bool = False) -> str | None:
    """A sentence, or several behind each other of which one is found; all where `whole`."""
    if depth > _DEEPEST:
        return None
    return _one(told, code, depth) or _listed(told, code, depth, all if whole else any)


def _one(told: str, code: str, depth: int) -> str | None:
    for phrase, form in _forms():
        found = form.fullmatch(told)
        if found is None:
            continue
        held = found.groupdict()
        values = {name: _inside(name, value, code, depth) for name, value in held.items()}
        if all(values[name] for name in _SENTENCES & values.keys()):
            kept = {name: _AsToldThere(value or held[name]) for name, value in values.items()}
            return text(phrase, code, **kept)
    return None


def _inside(name: str, value: str, code: str, depth: int) -> str | None:
    """What stands in braces, where it is a sentence itself."""
    if " " in value or name.removeprefix("other_") in _SHORT:
        return _again(value, code, depth + 1, whole=name in _SENTENCES)
    return None


def _listed(
    told: str, code: str, depth: int, wanted: Callable[[Iterable[object]], bool]
) -> str | None:
    for joint, between in _JOINTS.items():
        parts = told.split(joint)
        said = [_again(part, code, depth + 1) for part in parts] if len(parts) > 1 else []
        if said and wanted(said):
            both = zip(said, parts, strict=True)
            return text(f"joints.{between}", code).join(one or part for one, part in both)
    return None


@functools.cache
def _forms() -> list[tuple[str, re.Pattern[str]]]:
    """English sentences as patterns; those with the most words of their own first."""
    known = {name: told for section in _SECTIONS for name, told in _told_in(section)}
    ordered = sorted(known, key=lambda name: -len(re.sub(r"\{.*?\}", "", known[name])))
    return [(name, re.compile(_pattern(known[name]), re.DOTALL)) for name in ordered]


def _told_in(section: str) -> list[tuple[str, str]]:
    """The sentences of a section, each under the name that `text` takes."""
    return [(f"{section}.{key}", told) for key, told in section_words(section, "en").items()]


def _pattern(sentence: str) -> str:
    pattern, seen = "", set[str]()
    for literal, field, _, conversion in string.Formatter().parse(sentence):
        pattern += re.escape(literal)
        if field in seen:
            pattern += f"(?P={field})"  # what is said twice is the same both times
        elif field:
            is_quoted = conversion is not None
            allowed = _PATTERNS.get(field.removeprefix("other_"), _ANYTHING)
            pattern += f"(?P<{field}>{_ANYTHING if is_quoted else allowed})"
            seen.add(field)
    return pattern
