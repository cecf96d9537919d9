"""A chart's own words, in the language that holds; in English where no font here could draw it.

Sentences are data (`explain/*/charts.toml`); here they are found and put together.
"""

from __future__ import annotations

import functools
from typing import Any

from tracer import explain
from tracer.explain.languages import words
from tracer.schema import STAGES
from tracer.views.fonts import lacks_font


def spoken() -> str:
    """The language of charts: the one chosen, or English where it would be boxes."""
    code = explain.language()
    return "en" if lacks_font(explain.LANGUAGES[code]) else code


def say(phrase: str, **values: Any) -> str:
    """A phrase of `charts.toml`, by section and key: `axis.step`."""
    return explain.text(phrase, spoken(), **values)


def many(noun: str, number: int) -> str:
    """`1 tensor`, `2,000 tensors`; a noun of `[counts]`."""
    return explain.count(noun, int(number), spoken())


def then(*parts: str) -> str:
    """Findings behind each other, those that are empty left out: `a; b`."""
    return _joined("figure.then", parts)


def listed(*parts: str) -> str:
    """Things beside each other, those that are empty left out: `a, b`."""
    return _joined("figure.list", parts)


def stage_name(stage: str, phrase: str = "figure.stage") -> str:
    """A stage as charts name it; where there is little room ask for `figure.block`."""
    if stage not in STAGES:
        return stage
    return say(phrase, name=stage, title=explain.stage(stage, spoken()).title)


def place_name(place: str) -> str:
    """Where a tensor lies: a device by its name, what is offloaded in words."""
    return str(words("charts", spoken())["places"].get(place, place))


def _joined(phrase: str, parts: tuple[str, ...]) -> str:
    told = [part for part in parts if part]
    if not told:
        return ""
    return functools.reduce(lambda first, second: say(phrase, first=first, second=second), told)
