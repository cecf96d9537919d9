"""`play()`: a recorded run in a notebook's cell, walked through as a debugger walks a program.

The page walks by itself through columns that it was given once; the kernel is asked only for the
details of the stop that is looked at, and reads them from the trace. Nothing runs again: no model,
no torch. Where no widget can live, and in the notebook's file, stands the same player as a page.
"""

from __future__ import annotations

import html
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracer import explain
from tracer.replaying.replay import Replay
from tracer.trace import Trace, open_trace
from tracer.views.html import page

if TYPE_CHECKING:
    from tracer.widgets.live_player import LivePlayer

KEPT_BYTES: Final = 450_000
"""What the page may weigh that a notebook's file keeps."""
MOST_KEPT_STOPS: Final = 20_000
"""A run of more stops is not kept in a notebook: its columns alone would be megabytes."""
_PIXELS: Final = 780


def play(trace: Trace | Path | str) -> LivePlayer | KeptPlayer:
    """Play a run: step through its calls, look into each stop, break where it gets interesting.

    Args:
        trace: A trace, or the folder or zip of one.

    Returns:
        A widget that shows itself as the last line of a cell. Where ipywidgets or anywidget is not
        installed, the same as a page inside the cell's output, which needs no kernel.

    Raises:
        TraceFormatError: It is no trace, is damaged, or a newer version wrote it.
    """
    replay = Replay(trace if isinstance(trace, Trace) else open_trace(trace))
    if any(importlib.util.find_spec(name) is None for name in ("ipywidgets", "anywidget")):
        return KeptPlayer(replay)
    from tracer.widgets.live_player import LivePlayer

    return LivePlayer(replay)


class KeptPlayer:
    """A player that needs no kernel, as a notebook's output shows and keeps it."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay

    def _repr_html_(self) -> str:
        return kept(self.replay)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.replay.stops):,} stops>"


def kept(replay: Replay) -> str:
    """The player as HTML that stays in a notebook's file; of a very long run its summary alone.

    The page is in a frame that may run its own script and nothing else: it reaches neither the
    notebook nor the network.
    """
    summary = (
        f"<details><summary>{html.escape(explain.text('player.in_words'))}</summary>"
        f'<pre style="white-space:pre-wrap">{html.escape(replay.trace.summary())}</pre></details>'
    )
    if len(replay.stops) > MOST_KEPT_STOPS:
        told = explain.text("player.too_long_to_keep", count=f"{len(replay.stops):,}")
        return f'<div class="tracer-kept"><p>{html.escape(told)}</p>{summary}</div>'
    content = html.escape(page(replay, most_bytes=KEPT_BYTES), quote=True)
    title = html.escape(explain.text("player.title"), quote=True)
    frame = (
        f'<iframe title="{title}" sandbox="allow-scripts" loading="lazy" srcdoc="{content}" '
        f'style="width:100%;height:{_PIXELS}px;border:1px solid #8888;border-radius:10px">'
        "</iframe>"
    )
    return f'<div class="tracer-kept">{frame}{summary}</div>'


def plain(value: Any) -> Any:
    """JSON data in valid Unicode: half a character in a trace must not break a message."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {plain(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value
