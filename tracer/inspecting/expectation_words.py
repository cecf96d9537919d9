"""An expectation as text for a terminal and as a page for a notebook."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tracer import explain
from tracer.explain.sentences import names
from tracer.inspecting.words import folded, html_parts, one_line, problem_lines, problems_title
from tracer.views.labels import bytes_label, count_label

if TYPE_CHECKING:
    from tracer.inspecting.expectation import Expectation


def expectation_text(expectation: Expectation) -> str:
    """An expectation for a terminal."""
    lines = [expectation.class_name or _say("no_model")]
    for title, part in _expectation_parts(expectation):
        lines += ["", title, *(f"  {one_line(line)}" for line in part)]
    return "\n".join(lines)


def expectation_page(expectation: Expectation) -> str:
    """An expectation for a notebook."""
    from tracer.views.tables import styled

    parts = html_parts(_expectation_parts(expectation))
    shown = ("problems", "params", "keys", "placement")
    tables = "".join(
        folded(_say(f"table_{name}"), styled(expectation.frame(name))) for name in shown
    )
    title = html.escape(expectation.class_name or _say("no_model"))
    return f"<div><h3>{title}</h3>{parts}{tables}</div>"


def _expectation_parts(expectation: Expectation) -> Iterator[tuple[str, list[str]]]:
    if expectation.class_name is not None:
        yield _say("as_built"), list(_built(expectation))
        yield _say("placement"), [_placed_line(one) for one in expectation.placement]
    yield problems_title(expectation.problems), list(problem_lines(expectation.problems))


def _built(expectation: Expectation) -> Iterator[str]:
    own = [one for one in expectation.params if one.kind == "parameter" and one.tied_to is None]
    yield _say(
        "parameters_built",
        tensors=explain.count("parameter_tensor", len(own)),
        values=count_label(expectation.parameters),
        size=bytes_label(expectation.size_bytes),
        dtype=expectation.dtype,
    )
    for part, rows in (("params", expectation.params), ("keys", expectation.keys)):
        counts = Counter(one.status for one in rows)
        if counts:
            shown = names(*(_status(*each) for each in counts.most_common()))
            yield _say(f"statuses_{part}", statuses=shown)
    for one in expectation.params:
        if one.tied_to is not None:
            yield _say("tied", param=one.param, other=one.tied_to)


def _status(status: str, number: int) -> str:
    return _say("status", number=f"{number:,}", status=explain.text(f"statuses.{status}"))


def _placed_line(one: Any) -> str:
    room = _say("room_unknown")
    if one.room_bytes is not None:
        room = _say("room", size=bytes_label(one.room_bytes))
    verdict = {True: "fits", False: "does_not_fit", None: "not_judged"}[one.fits]
    size, judged = bytes_label(one.size_bytes), _say(f"verdict_{verdict}")
    return _say("placed", device=one.device, size=size, room=room, verdict=judged)


def _say(phrase: str, **values: Any) -> str:
    return explain.text(f"inspection.{phrase}", **values)
