"""An expectation as text for a terminal and as a page for a notebook."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tracer.inspecting.words import folded, html_parts, one_line, problem_lines
from tracer.views.labels import bytes_label, count_label, plural

if TYPE_CHECKING:
    from tracer.inspecting.expectation import Expectation


def expectation_text(expectation: Expectation) -> str:
    """An expectation for a terminal."""
    lines = [expectation.class_name or "no model could be built"]
    for title, part in _expectation_parts(expectation):
        lines += ["", title, *(f"  {one_line(line)}" for line in part)]
    return "\n".join(lines)


def expectation_page(expectation: Expectation) -> str:
    """An expectation for a notebook."""
    from tracer.views.tables import styled

    parts = html_parts(_expectation_parts(expectation))
    names = ("problems", "params", "keys", "placement")
    tables = "".join(folded(name, styled(expectation.frame(name))) for name in names)
    title = html.escape(expectation.class_name or "no model could be built")
    return f"<div><h3>{title}</h3>{parts}{tables}</div>"


def _expectation_parts(expectation: Expectation) -> Iterator[tuple[str, list[str]]]:
    if expectation.class_name is not None:
        yield "As built, without weights", list(_built(expectation))
        title = "Placement (estimated: weights alone)"
        yield title, [_placed_line(one) for one in expectation.placement]
    found = expectation.problems
    title = plural(len(found), "problem") if found else "No problem found"
    yield title, list(problem_lines(found))


def _built(expectation: Expectation) -> Iterator[str]:
    own = [one for one in expectation.params if one.kind == "parameter" and one.tied_to is None]
    yield (
        f"{plural(len(own), 'parameter tensor')}, {count_label(expectation.parameters)} values, "
        f"{bytes_label(expectation.size_bytes)} in {expectation.dtype}"
    )
    for title, rows in (("parameters", expectation.params), ("tensors in files", expectation.keys)):
        counts = Counter(one.status for one in rows)
        if counts:
            shown = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
            yield f"{title}: {shown}"
    for one in expectation.params:
        if one.tied_to is not None:
            yield f"{one.param} is tied to {one.tied_to}"


def _placed_line(one: Any) -> str:
    room = "room unknown" if one.room_bytes is None else f"{bytes_label(one.room_bytes)} free"
    verdict = {True: "fits", False: "does not fit", None: "not judged"}[one.fits]
    return f"{one.device}: {bytes_label(one.size_bytes)}, {room}, {verdict}"
