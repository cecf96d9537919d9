"""What the doctor answers: findings, worst first, and what it could not tell; as text or cards.

All that comes from a trace, a folder or a model is escaped: names in files are a stranger's.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pandas as pd

from tracer import explain
from tracer.diagnosis.finding import Finding, Row, Undecided, in_order, plain
from tracer.export.text import visible_text
from tracer.views import cells

_WIDEST_CELL: Final = 120
_COLUMNS: Final = ["rule", "severity", "title", "sentence", "why", "fix", "evidence", "reference"]
_COLOURS: Final = {"fatal": "#b3261e", "warning": "#8a5a00", "note": "#33608c"}
_THREAD: Final = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)")
_CODE: Final = re.compile("`([^`]+)`")
_ADDRESS: Final = re.compile(r"https://[^\s,]+")


class Findings(list[Finding]):
    """The findings, worst first.

    Attributes:
        undecided: Questions that stayed open, each with the run that would tell.
        subject: What was looked at, in words.
    """

    def __init__(
        self, found: Iterable[Finding], undecided: Iterable[Undecided] = (), subject: str = ""
    ) -> None:
        super().__init__(in_order(found))
        self.undecided: list[Undecided] = list(undecided)
        self.subject = subject

    def frame(self) -> pd.DataFrame:
        """One row a finding, in the language in force.

        Returns:
            Columns rule, severity, title, sentence, why, fix, evidence (JSON), reference.
        """
        rows = [one.row() for one in self]
        for row in rows:
            row["evidence"] = json.dumps(row["evidence"], ensure_ascii=False)
        return pd.DataFrame(rows, columns=_COLUMNS).convert_dtypes()

    def content(self) -> dict[str, Any]:
        """All of it as plain values for JSON, in the language in force."""
        return {
            "subject": plain(self.subject),
            "findings": [one.row() for one in self],
            "undecided": [
                {"rule": one.rule, "title": one.title, "needs": one.needs}
                | {"sentence": plain(one.sentence)}
                for one in self.undecided
            ],
        }

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return _page(self)


def _lines(findings: Findings) -> Iterator[str]:
    yield _line(findings.subject)
    if not findings:
        yield explain.text("doctor.healthy")
    for one in findings:
        yield ""
        severity = explain.text(f"doctor.{one.severity}")
        yield f"[{severity}] {_line(one.title)} · {one.rule}"
        yield f"  {_line(one.sentence)}"
        yield f"  {_labelled('why', _line(one.why))}"
        yield f"  {_labelled('fix', _line(one.fix))}"
        for row in one.evidence[:3]:
            yield f"    {_line(_row_text(row))}"
        if len(one.evidence) > 3:
            yield f"    {explain.text('doctor.more_rows', count=len(one.evidence) - 3)}"
        if one.reference:
            yield f"  {_labelled('reference', one.reference)}"
    if findings.undecided:
        yield ""
        yield explain.text("doctor.undecided")
    for sentence, titles, names in _questions(findings.undecided):
        yield f"  {_line(', '.join(titles))} · {', '.join(names)}: {_line(sentence)}"


def _questions(undecided: Iterable[Undecided]) -> Iterator[tuple[str, list[str], list[str]]]:
    """What would tell, with the titles and the rules of all questions that it answers."""
    by_sentence: dict[str, list[Undecided]] = {}
    for one in undecided:
        by_sentence.setdefault(one.sentence, []).append(one)
    for sentence, questions in by_sentence.items():
        yield (
            sentence,
            list(dict.fromkeys(one.title for one in questions)),
            [one.rule for one in questions],
        )


def _labelled(name: str, text: str) -> str:
    return explain.text("doctor.labelled", label=explain.text(f"doctor.{name}"), text=text)


def _row_text(row: Row) -> str:
    key = ", ".join(f"{name}={_cell(name, value)}" for name, value in row.key.items())
    shown = ", ".join(f"{name} {_cell(name, value)}" for name, value in row.cells.items())
    return f"{row.table}[{key}]: {shown}"


def _cell(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        value = json.dumps(plain(value), ensure_ascii=False)
    return cells.cell(name, cells.told(name, value), _WIDEST_CELL)


def _line(text: str) -> str:
    return visible_text(text).replace("\n", "\\n").replace("\t", "\\t")


def _page(findings: Findings) -> str:
    head = f"<h3>{_labelled('title', _safe(findings.subject))}</h3>"
    if not findings:
        head += f"<p>{explain.text('doctor.healthy')}</p>"
    parts = [head, *(_card(one) for one in findings)]
    if findings.undecided:
        lines = "".join(
            f"<li><b>{_safe(', '.join(titles))}</b> <code>{_safe(', '.join(names))}</code>: "
            f"{_with_code(sentence)}</li>"
            for sentence, titles, names in _questions(findings.undecided)
        )
        summary = f"{explain.text('doctor.undecided')} ({len(findings.undecided)})"
        parts.append(f"<details><summary>{summary}</summary><ul>{lines}</ul></details>")
    return "".join(parts)


def _card(one: Finding) -> str:
    colour = _COLOURS[one.severity]
    style = f"border-left:4px solid {colour};padding:4px 12px;margin:10px 0"
    badge = f"<b style='color:{colour}'>{explain.text(f'doctor.{one.severity}')}</b>"
    parts = [f"<p>{badge} · <b>{_safe(one.title)}</b> <code>{_safe(one.rule)}</code></p>"]
    parts.append(f"<p>{_safe(one.sentence)}</p>")
    for name, text in (("why", one.why), ("fix", one.fix)):
        label = f"<i>{explain.text(f'doctor.{name}')}</i>"
        told = explain.text("doctor.labelled", label=label, text=_with_code(text))
        parts.append(f"<p>{told}</p>")
    if one.evidence:
        parts.append(_rows(one))
    if one.reference:
        parts.append(f"<p><small>{_labelled('reference', _linked(one.reference))}</small></p>")
    return f"<div style='{style}'>{''.join(parts)}</div>"


def _rows(one: Finding) -> str:
    tables: dict[str, list[Row]] = {}
    for row in one.evidence:
        tables.setdefault(row.table, []).append(row)
    summary = f"{explain.text('doctor.rows')} ({len(one.evidence)})"
    body = "".join(_table(name, rows) for name, rows in tables.items())
    return f"<details><summary>{summary}</summary>{body}</details>"


def _table(name: str, rows: list[Row]) -> str:
    """Rows of one table under its name, keys first; a reader asks for the rest by them."""
    columns = list(dict.fromkeys(column for row in rows for column in (*row.key, *row.cells)))
    head = "".join(f"<th>{_safe(column)}</th>" for column in columns)
    body = ""
    for row in rows:
        held = {**row.key, **row.cells}
        line = "".join(
            f"<td>{_safe(_cell(column, held[column])) if column in held else ''}</td>"
            for column in columns
        )
        body += f"<tr>{line}</tr>"
    return (
        f"<p><code>{_safe(name)}</code></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _safe(text: str) -> str:
    return html.escape(_line(text))


def _with_code(text: str) -> str:
    """Escaped, and what stands in backticks set as code."""
    return _CODE.sub(r"<code>\1</code>", _safe(text))


def _linked(reference: str) -> str:
    """Threads and addresses as links; references are the lab's own words, escaped all the same."""
    safe = html.escape(reference)
    safe = _ADDRESS.sub(lambda found: f'<a href="{found[0]}">{found[0]}</a>', safe)
    return _THREAD.sub(r'<a href="https://github.com/\1/issues/\2">\1#\2</a>', safe)
