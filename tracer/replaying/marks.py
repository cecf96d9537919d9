"""Stops that are worth going to: moments of the run, faults, broken checks, the doctor's findings.

What a mark says is there in every language, and so is what was recorded in English.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracer.errors import TracerError
from tracer.explain import LANGUAGES, audit_word, finding, finding_title, said_again, text
from tracer.explain.languages import words
from tracer.explain.sentences import Recorded
from tracer.replaying.index import Stops
from tracer.replaying.nodes import KINDS

if TYPE_CHECKING:
    from tracer.auditing.source import Finding
    from tracer.trace import Trace

Mark = dict[str, Any]
_UNREADABLE: Final = (
    *(TracerError, OSError, LookupError, ValueError, TypeError),
    *(AttributeError, ArithmeticError, pa.ArrowException),
)
_MOST_PLACES: Final = 50
"""Stops that are marked for one finding or check; its rows say how many there are."""


def quick_marks(trace: Trace, stops: Stops) -> list[Mark]:
    """Moments of the run and faults: found in a few columns."""
    found = [*_loads(trace, stops), *_first_tokens(stops), *_windows(trace, stops)]
    return sorted([*found, *_errors(stops), *_faults(trace, stops)], key=lambda mark: mark["stop"])


def slow_marks(trace: Trace, stops: Stops) -> tuple[list[Mark], list[str]]:
    """Checks of the audit that are broken, and findings of the doctor: they read the trace.

    A stranger's trace may hold what they can't read: the run is played all the same, and the
    reasons come along.
    """
    found, reasons = [], []
    for look in (_broken, _findings):
        try:
            found += look(trace, stops)
        except _UNREADABLE as error:
            reasons.append(f"{type(error).__name__}: {error}")
    return found, reasons


def _loads(trace: Trace, stops: Stops) -> list[Mark]:
    """The last stop inside each load of a model."""
    where = [("kind", "==", "from_pretrained"), ("stage", "==", "resolve")]
    rows = trace.arrow("calls", ["seq", "parent", "model"], where).to_pylist()
    rows = [row for row in rows if row["seq"] is not None]
    inner = {row["parent"] for row in rows}
    seqs = [row["seq"] for row in rows if row["model"] is not None or row["seq"] not in inner]
    return [
        _moment("load_end", int(stops.columns["last"][stop]))
        for stop in stops.of_seqs(seqs)
        if stop >= 0
    ]


def _first_tokens(stops: Stops) -> list[Mark]:
    tokens = stops.of_kind("token")
    _, first = np.unique(stops.columns["call"][tokens], return_index=True)
    return [_moment("first_token", int(stop)) for stop in tokens[np.sort(first)]]


def _windows(trace: Trace, stops: Stops) -> list[Mark]:
    """The first forward of each call after which a layer has seen more than it can hold."""
    names = ["call", "step", "tokens_seen", "capacity_tokens"]
    rows = trace.read("cache_layers", names)
    over = rows[(rows["tokens_seen"] > rows["capacity_tokens"]).fillna(False)]
    first = over.dropna(subset=["step"]).groupby("call")["step"].min()
    return [
        _moment("window", stop)
        for call, step in first.items()
        if (stop := _forward(stops, int(call), int(step))) >= 0
    ]


def _forward(stops: Stops, call: int, step: int) -> int:
    columns = stops.columns
    (place,) = stops.of_seqs([call])
    is_it = (columns["kind"] == KINDS.index("step")) & (columns["step"] == step)
    found = np.flatnonzero(is_it & (columns["call"] == place))
    return int(found[0]) if len(found) and place >= 0 else -1


def _errors(stops: Stops) -> list[Mark]:
    """The innermost stop of each chain that an exception left, and what never ended."""
    status = stops.columns["status"]
    failed = np.flatnonzero(status != 0)
    inner = set(stops.columns["parent"][failed].tolist())
    names = ("", "error", "interrupted")
    return [_moment(names[status[stop]], int(stop)) for stop in failed if int(stop) not in inner]


def _moment(key: str, stop: int) -> Mark:
    return _mark("moments", key, stop, lambda code: text(f"player_moments.{key}", code))


def _faults(trace: Trace, stops: Stops) -> list[Mark]:
    places = stops.of_kind("fault")
    rows = trace.arrow("faults", ["target", "reason"]).to_pylist()
    found = ((int(stop), rows[stops.columns["row"][stop]]) for stop in places)
    return [
        _mark("faults", row["target"] or "", stop, _always(row["target"]), _recorded(row["reason"]))
        for stop, row in found
    ]


def _broken(trace: Trace, stops: Stops) -> list[Mark]:
    found = []
    for one in trace.audit_findings():
        if one.verdict == "broken":
            places = [_named(stops, each) for each in one.evidence[:_MOST_PLACES]]
            found += _at_each(places, "audit", one.check, _check_title(one), _check_text(one))
    return found


def _check_title(one: Finding) -> Callable[[str], str]:
    return lambda code: audit_word(one.check, code)


def _check_text(one: Finding) -> Callable[[str], str]:
    return lambda code: f"{one.expected.said(code)} ≠ {one.found.said(code)}"


def _named(stops: Stops, evidence: Any) -> int:
    """The stop of a seq, or the first one of a name (`model-1: lm_head.weight`); -1 for none."""
    if isinstance(evidence, int | np.integer):
        return int(stops.of_seqs([evidence])[0])
    told = evidence.about if isinstance(evidence, Recorded) else str(evidence)
    name = told.rpartition(": ")[2]
    if name not in stops.names:
        return -1
    found = np.flatnonzero(stops.columns["name"] == stops.names.index(name))
    return int(found[0]) if len(found) else -1


def _findings(trace: Trace, stops: Stops) -> list[Mark]:
    """What the doctor finds, at every stop that shows it.

    By name: the doctor also looks at live models, of which nothing is loaded here.
    """
    if importlib.util.find_spec("tracer.diagnosis") is None:
        return []
    doctor = importlib.import_module("tracer.diagnosis.examine").doctor
    shown = importlib.import_module("tracer.diagnosis.finding").shown_value
    found = []
    for one in doctor(trace):
        values = {
            code: {name: shown(name, value, code) for name, value in one.values.items()}
            for code in LANGUAGES
        }
        places = [_shown_at(stops, row) for row in one.evidence[:_MOST_PLACES]]
        title, told = _finding_title(one.rule), _finding_text(one.rule, values)
        found += _at_each(places, "findings", one.rule, title, told)
    return found


def _finding_title(rule: str) -> Callable[[str], str]:
    return lambda code: finding_title(rule, code)


def _finding_text(rule: str, values: dict[str, dict[str, Any]]) -> Callable[[str], str]:
    """What is so and what to do, each in its sentence."""

    def told(code: str) -> str:
        found = finding(rule, code, **values[code])
        return str(words("phrases", code)["between_sentences"].join([found.text, found.fix]))

    return told


def _shown_at(stops: Stops, row: Any) -> int:
    """The stop of a row that shows a finding: its event, else the forward or call that it names."""
    key = {**row.cells, **row.key}
    if isinstance(key.get("seq"), int):
        (stop,) = stops.of_seqs([key["seq"]])
        if stop >= 0:
            return int(stop)
    call = key.get("call", key.get("event"))
    if not isinstance(call, int):
        return -1
    if isinstance(key.get("step"), int):
        forward = _forward(stops, call, key["step"])
        if forward >= 0:
            return forward
    return int(stops.of_seqs([call])[0])


def _at_each(
    places: Iterable[int],
    group: str,
    key: str,
    title: Callable[[str], str],
    told: Callable[[str], str],
) -> list[Mark]:
    """A mark at each distinct stop; one at the beginning where no stop shows it."""
    known = sorted({int(place) for place in places if place >= 0}) or [0]
    return [_mark(group, key, stop, title, told) for stop in known]


def _mark(
    group: str,
    key: str,
    stop: int,
    title: Callable[[str], str],
    told: Callable[[str], str] = lambda code: "",
) -> Mark:
    return {
        "group": group,
        "key": key,
        "stop": stop,
        "title": {code: title(code) for code in LANGUAGES},
        "text": {code: told(code) for code in LANGUAGES},
    }


def _always(name: Any) -> Callable[[str], str]:
    """A name is the same in every language."""
    return lambda code: str(name or "")


def _recorded(told: Any) -> Callable[[str], str]:
    """A sentence that was recorded in English."""
    return lambda code: said_again(str(told or ""), code)
