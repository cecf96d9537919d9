"""One token of an answer or a prompt: everything that its trace says of it.

Gives rows for bars and escaped HTML; reads traces, knows no widget and no model.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from tracer.analysis.what_if import first_unknown, what_if
from tracer.explain import label, text
from tracer.keeping import LOGITS
from tracer.views.labels import MISSING, bytes_label, count_label, duration_label, is_missing
from tracer.views.tables import styled
from tracer.widgets import runs
from tracer.widgets.inherited import tokens_of

if TYPE_CHECKING:
    from tracer.trace import Trace
    from tracer.widgets.runs import Run

MOST_BARS: Final = 12
"""Candidates shown; all others are one bar."""
_KINDS: Final = ("prefill", "chunk", "decode", "verify")
_TIMES: Final = ("prepare_ns", "forward_ns", "processors_ns", "select_ns", "stop_ns")


@dataclasses.dataclass(slots=True)
class Details:
    """What a picked token is told by.

    Attributes:
        title: The token and its place.
        bars: A row a candidate, then the rest of the vocabulary: `id` (-1 for the rest), `text`,
            `shares` (before the processors, after them, and with other settings where asked),
            `chosen`.
        html: Numbers, the processors' effects, times and cache, as escaped HTML.
    """

    title: str = ""
    bars: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    html: str = ""


def details(
    run: Run,
    strip: str,
    index: int,
    changes: Mapping[str, float] | None = None,
    decode: Callable[[int], str] | None = None,
) -> Details:
    """Everything about one token.

    Args:
        run: An answer.
        strip: `answer` or `prompt`.
        index: Of the mark in that strip.
        changes: Settings of what-if; none leaves the third share out.
        decode: Text of an id that is among no recorded candidates.
    """
    if strip == "prompt":
        return _of_prompt(run, index)
    mark, answer = run.marks[index], run.answer
    told = Details(_title(mark.text, index))
    where = runs.place_of(answer, index)
    if where is None:
        told.html = f"<p>{html.escape(text('explorer.typed_token'))}</p>"
        return told
    trace, step = where
    token = answer.ids[index]
    found = _candidates(trace, step)
    if all(row["token_id"] != token for row in found):
        found = [*found, _unlikely(trace, step, token, mark.text)]
    told.bars = _bars(trace, step, token, found, changes, decode)
    told.html = _facts(trace, step, token, found) + _effects(trace, step)
    return told


def what_if_line(run: Run, index: int, told: Details) -> str:
    """Which token the changed settings would make the likeliest, beside the run's own."""
    where = runs.place_of(run.answer, index)
    if where is None:
        return told.html
    if any(len(bar["shares"]) < 3 for bar in told.bars):
        is_freed = LOGITS in where[0].manifest.get("dropped", [])
        why = "logits_freed" if is_freed else "no_logits"
        return f"<p>{html.escape(text(f'explorer.{why}'))}</p>"
    named = [bar for bar in told.bars if bar["id"] >= 0]
    best = max(named, key=lambda bar: bar["shares"][2])
    line = text(
        "explorer.would_choose", place=told.title, token=repr(best["text"]),
        chance=_percent(best["shares"][2]), before=_percent(best["shares"][1]),
    )  # fmt: skip
    stranger = first_unknown(where[0])
    more = "" if stranger is None else " " + text("explorer.until_unknown", processor=stranger)
    return f"<p>{html.escape(line + more)}</p>"


def _of_prompt(run: Run, index: int) -> Details:
    mark = run.prompt[index]
    trace = run.answer.trace
    if trace is None:
        return Details(_title(mark.text, mark.place))
    columns = ["token_id", "text", "kind", "origin", "position", "attended"]
    columns += ["position_t", "position_h", "position_w"]
    last = mark.place + min(mark.many, 32) - 1
    tokens = tokens_of(run.answer)
    rows = tokens.loc[tokens["index"].between(mark.place, last), columns]
    note = f"<p>{html.escape(text('explorer.prompt_token'))}</p>"
    return Details(_title(mark.text, mark.place), [], _table(rows) + note)


def _title(token: str, place: int) -> str:
    return f"{place} · {token!r}"


def _candidates(trace: Trace, step: int) -> list[dict[str, Any]]:
    columns = ["token_rank", "token_id", "text", "raw_probability", "probability"]
    rows = trace.arrow("candidates", columns, [("step", "==", step)]).sort_by("token_rank")
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def _unlikely(trace: Trace, step: int, token: int, name: str) -> dict[str, Any]:
    """A token that is among no recorded candidates, as if it were: out of the recorded logits."""
    row = {"token_rank": None, "token_id": token, "text": name}
    whole = what_if(trace, step)
    if whole.empty:
        return row | {"raw_probability": None, "probability": None}
    mine = whole.iloc[token]
    ahead = int((whole["probability"] > mine["probability"]).sum())
    chances = {each: float(mine[each]) for each in ("raw_probability", "probability")}
    return row | {"token_rank": ahead} | chances


def _bars(
    trace: Trace,
    step: int,
    token: int,
    found: list[dict[str, Any]],
    changes: Mapping[str, float] | None,
    decode: Callable[[int], str] | None,
) -> list[dict[str, Any]]:
    names = {row["token_id"]: row["text"] for row in found}
    shares = {row["token_id"]: [row["raw_probability"], row["probability"]] for row in found}
    shown = [row["token_id"] for row in found[:MOST_BARS]]
    if changes is not None:
        whole = what_if(trace, step, changes)
        if not whole.empty:
            columns = ["raw_probability", "probability", "changed_probability"]
            likely = whole.nlargest(MOST_BARS, "changed_probability")
            moved = likely.loc[likely["changed_probability"] > 0, "token_id"].tolist()
            shown = list(dict.fromkeys([*moved, *shown]))[:MOST_BARS]
            values = whole[columns].to_numpy()
            shares = {one: [float(share) for share in values[one]] for one in [*shown, token]}
    if token not in shown:
        shown = [*shown[: MOST_BARS - 1], token]
    bars = [
        {
            "id": one,
            "text": _name(one, names, decode),
            "shares": shares[one],
            "chosen": one == token,
        }
        for one in shown
    ]
    width = max((len(bar["shares"]) for bar in bars), default=2)
    rest = [max(1 - sum(bar["shares"][n] or 0 for bar in bars), 0.0) for n in range(width)]
    others = text("explorer.rest")
    return [*bars, {"id": -1, "text": others, "shares": rest, "chosen": False}]


def _name(one: int, names: Mapping[int, str | None], decode: Callable[[int], str] | None) -> str:
    known = names.get(one)
    if known is not None:
        return known
    return decode(one) if decode is not None else f"id {one}"


def _facts(trace: Trace, step: int, token: int, found: list[dict[str, Any]]) -> str:
    choice = _row(trace, "choices", step)
    timing = _row(trace, "steps", step)
    known = choice.get("token_id") == token
    rank = next((row["token_rank"] for row in found if row["token_id"] == token), None)
    facts = {
        "token_id": str(token),
        "rank": MISSING if rank is None else str(rank + 1),
        "raw_rank": str(choice["raw_rank"] + 1) if known and not is_missing(choice["raw_rank"])
        else MISSING,
        "probability": _percent(choice["probability"]) if known else _of(found, token),
        "logprob": _real(choice["logprob"]) if known else MISSING,
        "entropy": text(
            "explorer.from_to_nats", before=_real(choice.get("raw_entropy")),
            after=_real(choice.get("entropy")),
        ),
        "step": f"{step} · {_kind(timing.get('kind'))}",
        "step_time": duration_label(timing.get("duration_ns")),
        "cache": f"{count_label(timing.get('cache_tokens_after'))} · "
        f"{bytes_label(timing.get('cache_bytes'))}",
    }  # fmt: skip
    cells = "".join(
        f"<span><i>{html.escape(text('explorer.' + name))}</i> <b>{html.escape(value)}</b></span>"
        for name, value in facts.items()
    )
    return f'<div class="explorer-facts">{cells}</div>{_time_bar(timing)}'


def _kind(kind: str | None) -> str:
    """A step's kind in words."""
    return text(f"explorer.step_{kind}") if kind in _KINDS else kind or MISSING


def _time_bar(timing: Mapping[str, Any]) -> str:
    """Where a step's time went, as one bar of its parts; what they leave is `unexplained`."""
    whole = timing.get("duration_ns")
    if not whole:
        return ""
    parts = {label(name): timing.get(name) or 0 for name in _TIMES}
    parts[text("explorer.unexplained")] = max(whole - sum(parts.values()), 0)
    bars = "".join(
        f'<div class="explorer-part{number}" style="width:{100 * part / whole:.2f}%" '
        f'title="{html.escape(name)} {duration_label(part)}"></div>'
        for number, (name, part) in enumerate(parts.items())
    )
    words = " · ".join(
        f'<span class="explorer-key{number}"></span>{html.escape(name)} {duration_label(part)}'
        for number, (name, part) in enumerate(parts.items())
    )
    return f'<div class="explorer-split">{bars}</div><div class="explorer-faint">{words}</div>'


def _effects(trace: Trace, step: int) -> str:
    columns = ["index", "class_name", "removed_tokens", "chosen_delta"]
    columns += ["entropy_before", "entropy_after"]
    effects = trace.read("effects", columns, [("step", "==", step)])
    if effects.empty:
        return f"<p>{html.escape(text('explorer.no_processors'))}</p>"
    return _table(effects.sort_values("index").drop(columns="index"))


def _row(trace: Trace, table: str, step: int) -> dict[str, Any]:
    rows = trace.arrow(table, None, [("step", "==", step)], limit=1).to_pylist()
    return dict(rows[0]) if rows else {}


def _of(found: list[dict[str, Any]], token: int) -> str:
    known = (row["probability"] for row in found if row["token_id"] == token)
    return _percent(next(known, None))


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.2f} %"


def _real(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"


def _table(frame: pd.DataFrame) -> str:
    return styled(frame)._repr_html_()
