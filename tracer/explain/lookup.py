"""Words by name: what a stage, table, column, term, finding or moved name is, in either language.

Everything takes `code`, a language other than the one that `language()` chose; a page in two
languages needs both. Sentences are data in the TOML files; here they are only found.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tracer.errors import UnknownNameError
from tracer.explain.languages import LANGUAGES, names, words
from tracer.schema import EVENTS, TABLES
from tracer.schema import Table as SchemaTable

_TABLES: Final = {**TABLES, EVENTS.name: EVENTS}
_PHRASES: Final = (
    "phrases",
    "charts",
    "audit",
    "machine",
    "asking",
    "folders",
    "errors",
    "verification",
    "reasons",
)
"""Files of sentences; no section is in two of them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a model's life in words.

    Attributes:
        title: A few words for a heading.
        text: What happens in it.
        lesson: What the library does here, what usually goes wrong, which tables show it.
        tables: Those tables, the most telling one first.
    """

    name: str
    title: str
    text: str
    lesson: str
    tables: tuple[str, ...]

    def __str__(self) -> str:
        """Heading, text and lesson, for print."""
        return f"{_heading(self.title, self.name)}\n{self.text}\n\n{self.lesson}"


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table in words: what a row is, what it is for, where to go next."""

    name: str
    title: str
    text: str

    def __str__(self) -> str:
        """Heading and text, for print."""
        return f"{_heading(self.title, self.name)}\n{self.text}"


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column in words.

    Attributes:
        label: A few words for a heading, without the unit.
        text: What a cell tells, typical values, what to do with it.
        unit: `ns`, `bytes`, `tokens`, or nothing.
        provenance: `measured`, `derived` or `estimated`.
    """

    table: str
    name: str
    label: str
    text: str
    unit: str
    provenance: str

    def __str__(self) -> str:
        """Heading and text, for print."""
        return f"{_heading(self.label, f'{self.table}.{self.name}')}\n{self.text}"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A finding of the doctor in words: what is so, why it matters, what to do."""

    rule: str
    title: str
    text: str
    why: str
    fix: str

    def __str__(self) -> str:
        """All of it, for print."""
        return f"{_heading(self.title, self.rule)}\n{self.text}\n{self.why}\n{self.fix}"


def stage(name: str, code: str | None = None) -> Stage:
    """A stage of `schema.STAGES` in words.

    Raises:
        UnknownNameError: There is no such stage or language.
    """
    found = _known("stage", name, words("stages", code))
    lesson = words("phrases", code)["between_sentences"].join(found["lesson"])
    tables = tuple(names("stages")[name]["tables"])
    return Stage(name, found["title"], found["text"], lesson, tables)


def table(name: str, code: str | None = None) -> Table:
    """A table of the schema in words, or `events`, their union.

    Raises:
        UnknownNameError: There is no such table or language.
    """
    return Table(name, **_known("table", name, words("tables", code)))


def column(table: str, name: str, code: str | None = None) -> Column:
    """A column of a table in words.

    Raises:
        UnknownNameError: There is no such table, column or language.
    """
    known = {one.name: one for one in _schema_of(table).columns}
    found = _known("column_of", name, known, table=table)
    texts = words("columns", code)
    text = texts.get(table, {}).get(name) or texts["shared"][name]
    return Column(table, name, label(name, code), text, found.unit, found.provenance)


def columns(table: str, code: str | None = None) -> list[dict[str, str]]:
    """All columns of a table in words, in the order of the schema: rows for a DataFrame.

    Returns:
        A row a column: `column`, `label`, `text`, `unit`, `provenance`.

    Raises:
        UnknownNameError: There is no such table or language.
    """
    found = [column(table, name, code) for name in _schema_of(table).column_names]
    return [
        {"column": one.name, "label": one.label, "text": one.text}
        | {"unit": one.unit, "provenance": one.provenance}
        for one in found
    ]


def label(name: str, code: str | None = None) -> str:
    """A few words for the head of a column or an axis, without the unit.

    A name that no table has is taken apart: `peak_bytes` becomes `peak`.
    """
    labels = words("labels", code)
    for part in ("columns", "computed"):
        if name in labels[part]:
            return str(labels[part][name])
    return name.removesuffix("_ns").removesuffix("_bytes").replace("_", " ")


def glossary(code: str | None = None) -> list[dict[str, str]]:
    """The terms of the field in the order in which a reader meets them: rows for a DataFrame.

    Returns:
        A row a term: `term` in the language, the term in each language under its code, `text`.
    """
    terms = {one: words("glossary", one) for one in LANGUAGES}
    return [
        {"term": found["term"], **{one: terms[one][key]["term"] for one in LANGUAGES}}
        | {"text": found["text"]}
        for key, found in words("glossary", code).items()
    ]


def moved_names(code: str | None = None) -> list[dict[str, str]]:
    """Names of transformers that differ between supported releases: rows for a DataFrame.

    Returns:
        A row a thing: `what` it is, its name in each release (empty where that one has no such
        thing), and `text`, what changed.
    """
    titles = words("moved", code)
    return [
        {"what": titles[key]["title"]}
        | {release: there["name"] for release, there in releases.items()}
        | {"text": titles[key]["text"]}
        for key, releases in names("moved").items()
    ]


def finding(rule: str, code: str | None = None, **values: Any) -> Finding:
    """A finding of the doctor in words.

    Args:
        rule: Its id, a key of a file in `findings/`.
        code: A language; by default the one that holds.
        values: What stands in the braces of its sentences, formatted already.

    Raises:
        UnknownNameError: There is no such rule or language.
    """
    found = _known("rule", rule, words("findings", code))
    return Finding(rule, **{part: text.format(**values) for part, text in found.items()})


def finding_title(rule: str, code: str | None = None) -> str:
    """A finding's title alone, which has no braces.

    Raises:
        UnknownNameError: There is no such rule or language.
    """
    return str(_known("rule", rule, words("findings", code))["title"])


def text(phrase: str, code: str | None = None, **values: Any) -> str:
    """A sentence or heading of a view or a chart, by its key, such as `summary.faults`.

    Args:
        phrase: Section and key in a file of sentences, with a dot between them.
        code: A language; by default the one that holds.
        values: What stands in its braces, formatted already.

    Raises:
        UnknownNameError: There is no such phrase or language.
    """
    section, _, key = phrase.partition(".")
    found = _known("phrase", key, section_words(section, code), section=section)
    return str(found.format(**values))


def section_words(section: str, code: str | None = None) -> dict[str, str]:
    """The phrases of a section by key, of whichever file has it; none where there is no such."""
    sections = (words(kind, code).get(section, {}) for kind in _PHRASES)
    return next(filter(None, sections), {})


def audit_word(name: str, code: str | None = None) -> str:
    """A check of the audit, or a verdict of it or of `check()`; what has no words is as it is."""
    return str(words("audit", code)["audit"].get(name, name))


def count(noun: str, number: int, code: str | None = None) -> str:
    """A number of things: `1 row`, `2,000 rows`, `2,000 行`.

    Args:
        noun: Its key in the section `counts` of `phrases.toml`.
        number: How many.
        code: A language; by default the one that holds.

    Raises:
        UnknownNameError: There is no such noun or language.
    """
    forms = _known("noun", noun, words("phrases", code)["counts"])
    form = forms["one"] if number == 1 and "one" in forms else forms["other"]
    return str(form.format(number=f"{number:,}"))


def _schema_of(table: str) -> SchemaTable:
    found: SchemaTable = _known("table", table, _TABLES)
    return found


def unknown_name(what: str, name: str, known: Iterable[str], **values: Any) -> UnknownNameError:
    """An error that names the close matches, or all names where nothing is close.

    Args:
        what: Key of what it would be, in the section `unknown` of `errors.toml`.
        name: What was asked for.
        known: What there is.
        values: What stands in the braces of what it would be.
    """
    close = difflib.get_close_matches(str(name), list(known)) or sorted(known)
    kind = text(f"unknown.{what}", **values)
    return UnknownNameError(text("errors.unknown", what=kind, name=name, close=", ".join(close)))


def _known(what: str, name: str, among: Mapping[str, Any], **values: Any) -> Any:
    if name not in among:
        raise unknown_name(what, name, among, **values)
    return among[name]


def _heading(title: str, name: str) -> str:
    return title if title == name else f"{title} · {name}"
