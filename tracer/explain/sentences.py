"""Sentences that are put together where something is found, and said where the language is known.

A check of a trace or a problem of a folder is told in the language that holds when it is read, or
in both at once on a page that has no kernel to ask.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tracer.errors import TracerError
from tracer.explain.lookup import count, text
from tracer.explain.recorded import said_again


class Sentence:
    """What can be said in any language: `said(code)`; as text it is in the one that holds."""

    def said(self, code: str | None = None) -> str:
        """The sentence in a language, by default in the one that holds."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.said()


@dataclasses.dataclass(frozen=True)
class Phrase(Sentence):
    """A phrase of `text` with what stands in its braces, sentences among it."""

    phrase: str
    values: dict[str, Any]

    def said(self, code: str | None = None) -> str:
        """The phrase, and the sentences in its braces, in a language."""
        return text(self.phrase, code, **{key: say(one, code) for key, one in self.values.items()})


@dataclasses.dataclass(frozen=True)
class Counted(Sentence):
    """A number of things, as `count` says it."""

    noun: str
    number: int

    def said(self, code: str | None = None) -> str:
        """The number and its noun in a language."""
        return count(self.noun, self.number, code)


@dataclasses.dataclass(frozen=True)
class Joined(Sentence):
    """Sentences behind each other, with the marks that a language puts between them."""

    parts: tuple[Any, ...]
    between: str

    def said(self, code: str | None = None) -> str:
        """All of them in a language."""
        return text(f"joints.{self.between}", code).join(str(say(one, code)) for one in self.parts)


def phrase(name: str, /, **values: Any) -> Phrase:
    """A phrase by section and key, to be said later.

    Args:
        name: As `text` takes it.
        values: What stands in its braces: sentences, or what is the same in every language.
    """
    return Phrase(name, values)


def names(*parts: Any) -> Joined:
    """Names beside each other: `a, b`."""
    return Joined(parts, "names")


def clauses(*parts: Any) -> Joined:
    """Parts of one sentence: `a, b`."""
    return Joined(parts, "clauses")


def then(*parts: Any) -> Joined:
    """Sentences behind each other: `a; b`."""
    return Joined(parts, "parts")


def either(*parts: Any) -> Joined:
    """Names of which one is meant: `a or b`."""
    return Joined(parts, "choice")


@dataclasses.dataclass(frozen=True)
class Recorded(Sentence):
    """A sentence that a trace holds in English, behind a name where it is about one."""

    told: str
    about: str = ""

    def said(self, code: str | None = None) -> str:
        """The name and what is told of it, in a language."""
        said = said_again(self.told, code)
        return f"{self.about}: {said}" if self.about else said


def recorded(told: str, about: str = "") -> Recorded:
    """What a trace holds in English, to be said in the language that holds when it is read."""
    return Recorded(told, about)


def say(told: Any, code: str | None = None) -> Any:
    """A sentence in a language, and an error whose message is one; anything else as it is."""
    if isinstance(told, TracerError) and told.args:
        told = told.args[0]
    return told.said(code) if isinstance(told, Sentence) else told
