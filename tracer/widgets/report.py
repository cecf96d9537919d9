"""What the tabs show of an answer: escaped HTML made from its trace, one function a tab.

Charts are pictures inside the page (figures of their own, never pyplot, so any thread may draw).
Also the static copy that stays in the notebook's file. Knows no widget.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from tracer.analysis import generation, inputs
from tracer.analysis.answer import answer_tokens
from tracer.analysis.latency import token_times
from tracer.explain import text
from tracer.views import charts
from tracer.views.tables import styled
from tracer.widgets.inherited import segments_of, tokens_of

if TYPE_CHECKING:
    from tracer.lab import Answer
    from tracer.trace import Trace
    from tracer.views.figure import Chart
    from tracer.widgets.runs import Mark, Run

_DOTS: Final = 90  # an inch of a chart on the page
_ORIGINS: Final = ("template", "system", "user", "assistant", "tool", "generated")
_STRONG: Final = 0.45  # the most that a token's colour covers: text on it stays readable
_LONGEST_KEPT: Final = 400  # tokens of the copy in the notebook's file
_MOST_GRIDS: Final = 4
_LONGEST_TEXT: Final = 20_000  # characters of a rendered prompt


def tokens_page(run: Run, trace: Trace) -> str:
    """Each token as a bar, then as a row."""
    frame = answer_tokens(trace)
    columns = ["step", "token_id", "text", "probability", "raw_rank", "entropy", "finish"]
    columns += ["cache_tokens", "forward_ns", "step_ns"]
    return _chart(charts.token_probabilities(frame)) + _table(frame[columns])


def prompt_page(run: Run, trace: Trace) -> str:
    """The rendered template with who wrote what, the pictures' way, and runs of tokens."""
    segments, rendered = segments_of(run.answer)
    pieces = "".join(
        f'<span class="explorer-origin-{_origin(row.origin)}" title="{_author(row.origin)}">'
        f"{html.escape(_bounded(row.text))}</span>"
        for row in segments.itertuples()
    )
    if segments.empty:
        pieces = html.escape(_bounded(run.answer.prompt))
    keys = " ".join(
        f'<span class="explorer-origin-{name}">{_author(name)}</span>'
        for name in _ORIGINS
        if name in set(segments["origin"])
    )
    note = ""
    if rendered is not run.answer:
        note = html.escape(text("explorer.inherited", number=rendered.number))
    images = inputs.call_images(rendered.trace or trace)
    columns = ["kind", "original_w", "original_h", "processor_w", "processor_h", "grid_t"]
    columns += ["grid_h", "grid_w", "patches", "expected_tokens", "replaced_embeddings"]
    return _joined(
        f'<p class="explorer-faint">{keys} {note}</p><pre class="explorer-prompt">{pieces}</pre>',
        "" if images.empty else _heading("images") + _table(images[columns]),
        _grids(run, images),
        _heading("token_runs")
        + _table(inputs.folded_tokens(tokens_of(run.answer)).drop(columns="row")),
    )


def _grids(run: Run, images: pd.DataFrame) -> str:
    """Each picture as its patches and placeholders; the question has the picture, no trace does."""
    asked = [image for message in run.answer.messages for image in message.images]
    stills = [place for place, kind in enumerate(images["kind"]) if kind == "image"]
    pairs = list(zip(stills, asked, strict=False))[:_MOST_GRIDS]
    return "".join(
        _chart(charts.image_grid(images, place, np.asarray(image), len(run.answer.prompt_ids)))
        for place, image in pairs
    )


def settings_page(run: Run, trace: Trace) -> str:
    """Settings in force with their origins, and the chain that they made."""
    chain = trace.read("chain", ["kind", "index", "class_name", "parameters"])
    return _joined(_table(generation.settings_in_force(trace)), _heading("chain") + _table(chain))


def timing_page(run: Run, trace: Trace) -> str:
    """Where the time went."""
    return _joined(
        _chart(charts.token_latency(token_times(trace))),
        _chart(charts.step_times(trace["steps"])),
        _table(generation.time_split(trace)),
    )


def memory_page(run: Run, trace: Trace) -> str:
    """The cache as it grew, and what it holds in the end."""
    columns = ["start_ns", "rss_bytes", "anonymous_bytes", "file_bytes", "device_allocated_bytes"]
    memory = trace.read("memory", columns)
    return _joined(
        _chart(charts.cache_growth(trace["cache_layers"])),
        _chart(charts.cache_by_layer(trace["cache_layers"])),
        _table(generation.cache_account(trace)),
        "" if memory.empty else _heading("memory") + _table(memory),
    )


def log_page(run: Run, trace: Trace) -> str:
    """What the library said, and what could not be observed."""
    answer = run.answer
    notes = [one for one in (answer.error, answer.note) if one]
    lines = "".join(f"<p>{html.escape(one)}</p>" for one in notes)
    messages = trace.read("messages", ["level", "source", "text"])
    faults = trace.read("faults", ["target", "reason"])
    return _joined(
        lines,
        _heading("messages") + _table(messages),
        _heading("faults") + _table(faults),
    )


def doctor_page(run: Run, trace: Trace) -> str:
    """What the doctor finds in the answer; rules on several answers are asked of a whole trace."""
    from tracer.diagnosis.examine import (
        doctor,  # its rules bring along what the panel waits not for
    )

    return doctor(trace)._repr_html_()


PAGES: Final[dict[str, Callable[[Run, Any], str]]] = {
    "tokens": tokens_page,
    "prompt": prompt_page,
    "settings": settings_page,
    "timing": timing_page,
    "memory": memory_page,
    "log": log_page,
    "doctor": doctor_page,
}
"""Tabs that show one answer, by name."""


def page(name: str, run: Run) -> str:
    """What a tab shows of an answer; of one without a trace, why there is nothing."""
    trace = run.answer.trace
    if trace is None:
        return f"<p>{html.escape(run.answer.error)}</p>"
    return PAGES[name](run, trace)


def history_page(runs: Iterable[Run]) -> str:
    """A row an answer, the newest first."""
    rows = [
        {
            "number": run.answer.number,
            "question": next(
                (one.text for one in reversed(run.answer.messages) if one.role == "user"), ""
            ),
            "answer": _whole(run.answer) or run.answer.error,
            "ended": text(f"explorer.ended_{run.answer.ended}"),
            "settings": _given(run),
            "tokens": len(run.answer.ids),
            "time_ns": round(run.answer.seconds * 1e9),
            "note": run.answer.note,
        }
        for run in reversed(list(runs))
    ]
    return _table(pd.DataFrame(rows)) if rows else f"<p>{html.escape(text('explorer.empty'))}</p>"


def static_copy(run: Run | None) -> str:
    """The last answer and its tables, for a notebook that is opened without a kernel.

    Styles stand in the tags: no style sheet of ours is there then.
    """
    if run is None:
        return f"<p>{html.escape(text('explorer.kept_nothing'))}</p>"
    shown = html.escape(run.answer.answer_begins)
    shown += "".join(_kept_token(mark) for mark in run.marks[:_LONGEST_KEPT])
    facts = " · ".join(
        f"{html.escape(text('explorer.' + name))} {html.escape(value)}"
        for name, value in run.facts.items()
    )
    head = f"<p>{html.escape(text('explorer.kept'))}<br><b>{html.escape(run.name)}</b></p>"
    if run.answer.trace is None:
        return head + f"<p>{html.escape(run.answer.error)}</p>"
    tables = "".join(
        f"<details><summary>{html.escape(text('explorer.tab_' + name))}</summary>{content}"
        "</details>"
        for name, content in _kept_tables(run.answer.trace).items()
    )
    return f'{head}<p style="white-space:pre-wrap">{shown}</p><p>{facts}</p>{tables}'


def _kept_tables(trace: Trace) -> dict[str, str]:
    columns = ["step", "token_id", "text", "probability", "raw_rank", "entropy", "step_ns"]
    return {
        "tokens": _table(answer_tokens(trace)[columns]),
        "settings": _table(generation.settings_in_force(trace)),
        "timing": _table(generation.time_split(trace)),
        "memory": _table(generation.cache_account(trace)),
    }


def _kept_token(mark: Mark) -> str:
    doubt = 0.0 if mark.probability is None else (1 - mark.probability) * _STRONG
    chance = "" if mark.probability is None else f"{100 * mark.probability:.1f} %"
    return (
        f'<span style="background-color:rgba(213, 94, 0, {doubt:.2f})" title="{chance}">'
        f"{html.escape(mark.text)}</span>"
    )


def _whole(answer: Answer) -> str:
    """What the answer reads as, with the beginning that it was given."""
    return answer.answer_begins + answer.text if answer.text else ""


def _given(run: Run) -> str:
    given = run.answer.settings.arguments()
    if run.answer.settings.seed is not None:
        given["seed"] = run.answer.settings.seed
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _origin(name: Any) -> str:
    return name if name in _ORIGINS else "unknown"


def _author(name: Any) -> str:
    """Who wrote a piece of the prompt, as escaped words."""
    return html.escape(text(f"roles.{name}") if name in _ORIGINS else str(name))


def _bounded(words: str) -> str:
    if len(words) <= _LONGEST_TEXT:
        return words
    half = _LONGEST_TEXT // 2
    left_out = text("explorer.left_out", count=f"{len(words) - 2 * half:,}")
    return f"{words[:half]}\n[… {left_out} …]\n{words[-half:]}"


def _chart(chart: Chart) -> str:
    content = base64.b64encode(chart.png()).decode("ascii")
    width = round(chart.get_figwidth() * _DOTS)
    height = round(chart.get_figheight() * _DOTS)
    return (
        f'<img class="explorer-chart" src="data:image/png;base64,{content}" width="{width}" '
        f'height="{height}" alt="{html.escape(chart.alt_text)}">'
    )


def _table(frame: pd.DataFrame) -> str:
    return styled(frame)._repr_html_()


def _heading(name: str) -> str:
    return f"<h4>{html.escape(text('explorer.head_' + name))}</h4>"


def _joined(*parts: str) -> str:
    return "".join(part for part in parts if part)
