"""What every check works with: the tables, read once each, and the finding that it gives.

Verdicts are decided here and nowhere else: evidence breaks a check, and a check that had nothing
to judge does not hold.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, Final

import pandas as pd

from tracer.explain.languages import words
from tracer.explain.sentences import Sentence, clauses, phrase, say
from tracer.shortcomings import loss

Read = Callable[[str], pd.DataFrame]

EVIDENCE_LIMIT: Final = 100


@dataclasses.dataclass(frozen=True)
class Finding:
    """One row of the answer.

    Attributes:
        found: What was found, to be said in any language.
        evidence: seqs of events, names of things that break the check, or sentences about them.
        judged: How many things could be judged; 0 with no evidence is `not applicable`.
        expects: Key of what is expected; by default the check's name.
    """

    check: str
    found: Sentence
    evidence: list[Any]
    judged: int
    expects: str = ""

    @property
    def expected(self) -> Sentence:
        """What is so where the check holds."""
        return phrase(f"audit_expected.{self.expects or self.check}")

    @property
    def verdict(self) -> str:
        """Whether the check `holds`, is `broken` or is `not applicable`."""
        return "broken" if self.evidence else "holds" if self.judged else "not applicable"

    def row(self) -> list[str]:
        """The cells of the answer, in the order of `audit.COLUMNS`."""
        shown = [say(one) for one in self.evidence[:EVIDENCE_LIMIT]]
        evidence = json.dumps(shown, ensure_ascii=False, default=int)
        return [self.check, self.verdict, str(self.expected), str(self.found), evidence]


class Source:
    """The tables of the trace, each read once, and what the manifest says of them."""

    def __init__(self, read: Read, manifest: dict[str, Any]) -> None:
        self._read = read
        self._frames: dict[str, pd.DataFrame] = {}
        self.manifest = manifest
        self.asked: set[str] = set()  # what the check at work has looked at
        self.dropped = frozenset(manifest.get("dropped", []))
        self.lost = {entry["table"]: loss(entry) for entry in manifest.get("lost", [])}
        options = manifest.get("options", {})
        self.is_redacted = bool(options.get("redact_text")) or "text" in manifest.get(
            "scrubbed", []
        )

    def __getitem__(self, table: str) -> pd.DataFrame:
        """A whole table, with all its columns."""
        self.asked.add(table)
        if table not in self._frames:
            self._frames[table] = self._read(table)
        return self._frames[table]

    def finished(self, table: str) -> pd.DataFrame:
        """Rows whose call came to its end: what a failed load left undone proves nothing."""
        calls, rows = self["calls"], self[table]
        return rows[~rows["call"].isin(calls.loc[~is_one_of(calls["status"], "ok"), "seq"])]


def is_one_of(column: pd.Series, *values: str) -> pd.Series:
    """A plain mask: a missing cell is none of the values."""
    return column.isin(values)


def is_true(column: pd.Series) -> pd.Series:
    """A plain mask: a missing claim is not true."""
    return column.fillna(False).astype(bool)


def tuples(rows: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows as plain tuples of the named columns; a missing cell is None, which equals itself."""
    cells = (rows[name].tolist() for name in columns)
    plain = ([None if cell is pd.NA else cell for cell in column] for column in cells)
    return list(zip(*plain, strict=True))


def counted(what: str, number: int, bad: int) -> Sentence:
    """Say how many there were and, if any, how many were in trouble.

    Args:
        what: Key of the words in `audit_found`; behind `_bad` stands what the trouble is.
        number: How many there were.
        bad: How many of them were in trouble.
    """
    whole = told(what, number=number)
    return clauses(whole, told(f"{what}_bad", bad=bad)) if bad else whole


def told(what: str, **values: Any) -> Sentence:
    """A sentence about what a check found, by its key in `audit_found`; of one thing its own."""
    if values.get("number") == 1 and f"{what}_one" in words("audit", "en")["audit_found"]:
        what = f"{what}_one"
    return phrase(f"audit_found.{what}", **values)
