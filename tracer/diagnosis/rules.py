"""How a rule is written, and how all rules of a subject are asked.

A rule is a small pure function: it takes a subject (an `Inspection`, a `Trace` or a `Live`), and
yields what it `Found` or what stayed `Untold`. It never says more than its rows. The decorator
puts it into `RULES`; its words stand under its id in `explain/LANGUAGE/findings/STAGE.toml`. An id
may look at several subjects, with a function for each. A rule that fails hides no other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from tracer.diagnosis.finding import MOST_ROWS, Finding, Found, Severity, Undecided, Untold
from tracer.diagnosis.held import HeldTrace

LookedAt = Literal["folder", "trace", "live"]
Answers = Iterable[Found | Untold]
Look = Callable[[Any], Answers]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One known trouble.

    Attributes:
        name: Its id.
        severity: How bad it is where a `Found` says nothing else.
        looks_at: `folder` (an `Inspection`), `trace` (a `Trace`) or `live` (a `Live`).
        reference: Where more is told about it.
        look: The function.
    """

    name: str
    severity: Severity
    looks_at: LookedAt
    reference: str
    look: Look


RULES: Final[list[Rule]] = []
"""Every rule, stage by stage, once the files of the stages are imported (`examine` does)."""


def rule(
    name: str, severity: Severity, looks_at: LookedAt, reference: str = ""
) -> Callable[[Look], Look]:
    """Enter a function into `RULES`; it stays what it was.

    Args:
        name: Id, under which its words stand.
        severity: fatal, warning or note.
        looks_at: folder, trace or live.
        reference: Page or threads about it, as `owner/name#number` or an address.
    """

    def enter(look: Look) -> Look:
        RULES.append(Rule(name, severity, looks_at, reference, look))
        return look

    return enter


def ask(looks_at: LookedAt, subject: Any) -> tuple[list[Finding], list[Undecided]]:
    """Ask every rule of a kind of subject; a rule that fails becomes an open question."""
    found: list[Finding] = []
    open_questions: list[Undecided] = []
    for one in RULES:
        if one.looks_at == looks_at:
            findings, undecided = _ask(one, subject)
            found += findings
            open_questions += undecided
    return found, open_questions


def _ask(one: Rule, subject: Any) -> tuple[list[Finding], list[Undecided]]:
    is_trace = isinstance(subject, HeldTrace)
    if is_trace:
        subject.asked.clear()
    try:
        answers = list(one.look(subject))
    except Exception as error:  # whatever a stranger's trace or folder brings, others still look
        return [], [Undecided(one.name, "rule_failed", f"{type(error).__name__}: {error}")]
    if is_trace and subject.asked & subject.not_whole:
        # What is no longer there could have said the contrary.
        return [], [Undecided(one.name, "whole_tables")]
    findings = [_finding(one, answer) for answer in answers if isinstance(answer, Found)]
    untold = dict.fromkeys(answer.needs for answer in answers if isinstance(answer, Untold))
    return findings, [Undecided(one.name, needs) for needs in untold]


def _finding(one: Rule, found: Found) -> Finding:
    severity = found.severity or one.severity
    return Finding(one.name, severity, found.values, found.evidence[:MOST_ROWS], one.reference)
