"""What a rule answers: a finding with its rows, or what it can't tell and which run would.

Sentences are looked up when they are read, in the language that then holds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import pandas as pd

from tracer import explain
from tracer.export.text import storable_text
from tracer.schema import TABLES
from tracer.views import labels
from tracer.views.cells import told

Severity = Literal["fatal", "warning", "note"]

SEVERITIES: Final[tuple[Severity, ...]] = ("fatal", "warning", "note")
"""`fatal`: answers are wrong or a load fails. `warning`: it costs time or memory, or may be wrong.
`note`: harmless, and often asked about."""

MOST_ROWS: Final = 50
_NAMED: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One row that a finding rests on.

    Attributes:
        table: A table of the trace, a frame of the inspection, or `model` for a live one.
        key: The columns that name the row in its table, such as `{"seq": 17}`.
        cells: The columns that show what is so.
    """

    table: str
    key: Mapping[str, Any]
    cells: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What a rule saw.

    Attributes:
        values: What stands in the braces of its sentences, raw: numbers as numbers, bytes and
            nanoseconds under names that end so, lists of names as lists.
        evidence: The rows.
        severity: Another than the rule's own, where the case is worse or milder.
    """

    values: Mapping[str, Any]
    evidence: tuple[Row, ...] = ()
    severity: Severity | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Untold:
    """What a rule could not tell here.

    Attributes:
        needs: Which run or look would tell: a key of the section `doctor_needs` of the phrases.
    """

    needs: str


@dataclasses.dataclass(frozen=True, slots=True)
class Undecided:
    """A question that stayed open.

    Attributes:
        rule: The rule that asked.
        needs: As in `Untold`, or `rule_failed` where the rule itself could not look.
        reason: The error of a rule that failed; empty otherwise.
    """

    rule: str
    needs: str
    reason: str = ""

    @property
    def title(self) -> str:
        """The finding that it would be, in a few words."""
        return explain.finding_title(self.rule)

    @property
    def sentence(self) -> str:
        """Which run or look would tell, in the language in force."""
        return explain.text(f"doctor_needs.{self.needs}", reason=self.reason)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is so, with what shows it.

    Attributes:
        rule: Id of the rule.
        severity: fatal, warning or note.
        values: Numbers and names in its sentences, raw.
        evidence: The rows that show it, the first `MOST_ROWS`.
        reference: Where more is told about it: pages or threads, by address or `owner/name#number`.
    """

    rule: str
    severity: Severity
    values: Mapping[str, Any]
    evidence: tuple[Row, ...]
    reference: str

    @property
    def title(self) -> str:
        """A few words."""
        return self._told().title

    @property
    def sentence(self) -> str:
        """What is so, in one sentence with its numbers."""
        return self._told().text

    @property
    def why(self) -> str:
        """Why it matters."""
        return self._told().why

    @property
    def fix(self) -> str:
        """What to do."""
        return self._told().fix

    def _told(self) -> explain.Finding:
        shown = {name: shown_value(name, value) for name, value in self.values.items()}
        return explain.finding(self.rule, **shown)

    def row(self) -> dict[str, Any]:
        """All of it as plain values, in the language in force: a row for a frame or for JSON."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "title": self.title,
            "sentence": self.sentence,
            "why": self.why,
            "fix": self.fix,
            "values": {name: plain(value) for name, value in self.values.items()},
            "evidence": [
                {"table": one.table}
                | {"key": {name: plain(value) for name, value in one.key.items()}}
                | {"cells": {name: plain(value) for name, value in one.cells.items()}}
                for one in self.evidence
            ],
            "reference": self.reference,
        }


def plain(value: Any) -> Any:
    """A value as JSON can hold it: missing is None, half characters are written out."""
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if labels.is_missing(value):
        return None
    if isinstance(value, bool | int | str):
        return storable_text(value) if isinstance(value, str) else value
    if pd.api.types.is_bool(value):
        return bool(value)
    if pd.api.types.is_integer(value):
        return int(value)
    if pd.api.types.is_float(value):
        return float(value) if abs(float(value)) != float("inf") else str(float(value))
    return storable_text(str(value))


def shown_value(name: str, value: Any, code: str | None = None) -> str:
    """A value as people read it in a sentence; its unit is the end of its name.

    What was recorded in English, such as a reason, is told in a language, by default in the one
    that holds.
    """
    if isinstance(value, list | tuple):
        shown = ", ".join(shown_value("", one, code) for one in value[:_NAMED])
        rest = len(value) - _NAMED
        if rest <= 0:
            return shown
        return explain.text("doctor.and_more", code, shown=shown, count=rest)
    if labels.is_missing(value):
        return labels.MISSING
    if name.endswith("_bytes"):
        return labels.bytes_label(value)
    if name.endswith("_ns"):
        return labels.duration_label(value)
    if name.endswith("_share"):
        return labels.share_label(value, 1)
    if pd.api.types.is_integer(value) and not pd.api.types.is_bool(value):
        return str(int(value)) if name.endswith(("_id", "seq")) else f"{int(value):,}"
    if pd.api.types.is_float(value):
        return f"{float(value):.3g}"
    return storable_text(str(told(name, value, code)))


def rows_of(table: str, frame: pd.DataFrame, *columns: str) -> tuple[Row, ...]:
    """The first rows of a frame as evidence.

    Args:
        table: The table that they stand in; its key columns that the frame has name each row.
        frame: The rows.
        columns: The columns that show what is so; all that are no key where none is named.
    """
    key = [name for name in _key_of(table) if name in frame.columns]
    shown = list(columns) or [name for name in frame.columns if name not in key]
    return tuple(
        Row(table, {name: one[name] for name in key}, {name: one[name] for name in shown})
        for one in frame.head(MOST_ROWS).to_dict("records")
    )


def _key_of(table: str) -> tuple[str, ...]:
    # A fact's row is also found by the call that it belongs to.
    return (*TABLES[table].key, "call") if table in TABLES else ()


def cells(table: str, key: Mapping[str, Any], **shown: Any) -> Row:
    """One row by hand: of a live model, or of a folder."""
    return Row(table, dict(key), shown)


def items(text: object) -> list[Any]:
    """A list out of a JSON cell; empty where the cell is missing."""
    held = json.loads(text) if isinstance(text, str) else []
    return held if isinstance(held, list) else []


def in_order(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Worst first, otherwise in the order in which rules were asked."""
    yield from sorted(findings, key=lambda one: SEVERITIES.index(one.severity))
