"""The player as HTML that stays in a notebook's file: shown where no widget can live.

A reopened notebook has no kernel, and some front ends have no widgets: there the static page plays
the run inside the cell's output.
"""

from __future__ import annotations

import html
from typing import Final

from tracer import explain
from tracer.replaying.replay import Replay
from tracer.storage import Store
from tracer.trace import Trace
from tracer.views.html import page

KEPT_BYTES: Final = 450_000
"""What the page may weigh that a notebook's file keeps."""
MOST_KEPT_STOPS: Final = 6_000
"""A run of more stops is kept without its modules, and where that is not enough, its tensors."""
_LEFT_OUT: Final = ("modules", "tensor_loads")
_PIXELS: Final = 780


class KeptPlayer:
    """A player that needs no kernel, as a notebook's output shows and keeps it."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay

    def _repr_html_(self) -> str:
        return kept(self.replay)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.replay.stops):,} stops>"


def kept(replay: Replay) -> str:
    """The player as HTML that stays in a notebook's file; of a run beyond bounds its summary alone.

    The page is in a frame that may run its own script and nothing else: it reaches neither the
    notebook nor the network.
    """
    summary = (
        f"<details><summary>{html.escape(explain.text('player.in_words'))}</summary>"
        f'<pre style="white-space:pre-wrap">{html.escape(replay.trace.summary())}</pre></details>'
    )
    replay = _shortened(replay)
    if len(replay.stops) > MOST_KEPT_STOPS:
        told = explain.text("player.too_long_to_keep", count=f"{len(replay.stops):,}")
        return f'<div class="tracer-kept"><p>{html.escape(told)}</p>{summary}</div>'
    content = html.escape(page(replay, most_bytes=KEPT_BYTES), quote=True)
    title = html.escape(explain.text("player.title"), quote=True)
    # JupyterLab strips the content of a frame in a notebook that is not trusted, and computed sizes
    # with it: what is left has no height, so that the words below stand alone and no empty box.
    frame = (
        f'<iframe title="{title}" sandbox="allow-scripts" loading="lazy" srcdoc="{content}" '
        f'height="0" frameborder="0" style="width:100%;height:calc({_PIXELS} * 1px)"></iframe>'
    )
    return f'<div class="tracer-kept">{frame}{summary}</div>'


def _shortened(replay: Replay) -> Replay:
    """The run with few enough stops for a notebook's file, as far as that can be."""
    left_out: list[str] = []
    shorter = replay
    for table in _LEFT_OUT:
        if len(shorter.stops) <= MOST_KEPT_STOPS:
            break
        left_out.append(table)
        store = replay.trace.store
        contents = {name: store.contents[name] for name in store.contents if name not in left_out}
        shorter = Replay(Trace(Store(store.manifest, contents)))
        note = {"key": "tables_left_out", "values": {"what": ", ".join(left_out)}}
        shorter.header["notes"] = [note]
    return shorter
