"""`play()`: a recorded run in a notebook's cell, walked through as a debugger walks a program.

The page walks by itself through columns that it was given once; the kernel is asked only for the
details of the stop that is looked at, and reads them from the trace. Nothing runs again: no model,
no torch. Where no widget can live, and in the notebook's file, stands the same player as a page.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.replaying.replay import Replay
from tracer.trace import Trace, open_trace
from tracer.widgets.kept_player import KeptPlayer

if TYPE_CHECKING:
    from tracer.widgets.live_player import LivePlayer


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
