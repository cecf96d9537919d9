"""What each widget shows of the state: a pure function, and the words and bars in it.

Input fields are not in the view: while someone types, nothing must be written into them.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from tracer.explain import text
from tracer.views.labels import bytes_label, duration_label
from tracer.widgets.state import Progress, State, new_tokens

View = dict[str, dict[str, Any]]


def view(state: State) -> View:
    """Traits by widget: all that changes of itself, none of what the user types."""
    is_open = state.phase not in ("opening", "closed")
    busy = state.is_busy
    return {
        "run": {"disabled": not is_open or busy},
        "stop": {"disabled": state.phase != "running"},
        "clear": {"disabled": busy},
        "continue": {"disabled": busy or state.run is None or not state.run.answer.text},
        "branch": {"disabled": busy or not _can_branch(state)},
        "branch_text": {"disabled": busy or not _can_branch(state)},
        "model": {"value": _model_line(state)},
        "bar": {"value": _bar(state)},
        "status": {"value": status(state)},
        "error": {"value": _box("explorer-error", state.error)},
        "metrics": {"value": _metrics(state)},
        "count": {"value": _count_line(state)},
        "pictures": {"items": _previews(state), "enabled": state.takes_pictures},
        "exported": {"value": html.escape(state.exported)},
        "download": {"disabled": busy or not state.runs},
    }


def status(state: State) -> str:
    """One word or two for what goes on, set last, for users and tests alike."""
    answer = None if state.run is None else state.run.answer
    if state.phase in ("opening", "closed", "stopping"):
        return text(f"explorer.{state.phase}")
    if state.phase == "running":
        return text("explorer.running", tokens=len(state.progress.tokens))
    if state.error and (answer is None or answer.ended == "failed"):
        return text("explorer.failed")
    if answer is None:
        return text("explorer.ready")
    return text(f"explorer.{answer.ended}", tokens=len(answer.ids))


def _can_branch(state: State) -> bool:
    return state.run is not None and state.picked is not None and state.picked[0] == "answer"


def _box(kind: str, content: str) -> str:
    if not content:
        return ""
    return f'<div class="{kind}" role="alert">{html.escape(content)}</div>'


def _model_line(state: State) -> str:
    if not state.model:
        return f"<b>{html.escape(text('explorer.title'))}</b>"
    return (
        f"<b>{html.escape(state.model)}</b> "
        f'<span class="explorer-faint">{html.escape(state.device)}</span>'
    )


def _bar(state: State) -> str:
    """A bar for opening (by stages) and for answering (by tokens); nothing otherwise."""
    progress = state.progress
    if state.phase == "opening":
        share, label = state.done_share, state.doing
    elif state.is_busy:
        share = min(progress.steps / progress.most, 1) if progress.most else 0.0
        label = ""
    else:
        return '<div class="explorer-bar"></div>'
    return (
        f'<div class="explorer-bar"><div style="width:{100 * share:.1f}%"></div></div>'
        f'<span class="explorer-faint">{html.escape(label)}</span>'
    )


def _metrics(state: State) -> str:
    if state.is_busy:
        return _facts(_running_facts(state.progress))
    return "" if state.run is None else _facts(state.run.facts)


def _running_facts(progress: Progress) -> dict[str, str]:
    speed = progress.steps / progress.seconds if progress.seconds else 0
    first = progress.first_token
    return {
        "tokens": f"{progress.steps}" + (f" / {progress.most}" if progress.most else ""),
        "speed": text("explorer.a_second", number=f"{speed:.1f}"),
        "first_token": duration_label(None if first is None else first * 1e9),
        "cache": bytes_label(progress.cache_bytes),
    }


def _facts(facts: Mapping[str, str]) -> str:
    cells = [
        f"<span><i>{html.escape(text('explorer.' + name))}</i> <b>{html.escape(value)}</b></span>"
        for name, value in facts.items()
    ]
    return f'<div class="explorer-facts">{"".join(cells)}</div>'


def _count_line(state: State) -> str:
    """Prompt + new tokens against the limit of positions, before anything runs."""
    prompt, new, limit = state.prompt_tokens, new_tokens(state), state.context_limit
    if prompt is None:
        return _count_box(text("explorer.counting") if state.is_counting else "", 0)
    known = {
        "prompt": f"{prompt:,}",
        "new": "?" if new is None else f"{new:,}",
        "limit": "?" if limit is None else f"{limit:,}",
    }
    total = prompt + (new or 0)
    share = 0.0 if limit is None else total / limit
    line = text("explorer.count", **known, total=f"{total:,}")
    if share > 1:
        line += " " + text("explorer.over_limit")
    return _count_box(line, share)


def _count_box(line: str, share: float) -> str:
    kind = "explorer-count explorer-over" if share > 1 else "explorer-count"
    bar = f'<div class="explorer-bar"><div style="width:{100 * min(share, 1):.1f}%"></div></div>'
    return f'<div class="{kind}">{html.escape(line)}{bar}</div>'


def _previews(state: State) -> list[dict[str, str]]:
    return [
        {"name": one.name, "size": one.size, "note": one.note, "preview": one.preview}
        for one in state.pictures
    ]
