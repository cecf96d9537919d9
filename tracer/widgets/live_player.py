"""The player's widget: what the page asks of the kernel, answered from the trace.

Knows no layout and no key: all of that is the page script's. A question that can't be answered gets
an answer that says why, so that the page never waits for nothing.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import anywidget
import traitlets

from tracer.errors import TracerError
from tracer.explain import text
from tracer.replaying.buffers import as_json
from tracer.replaying.replay import Replay
from tracer.views.renderer import script, style
from tracer.widgets.kept_player import kept

MARKING: Final = "player marks"
"""Name of the thread that looks for marks."""


class LivePlayer(anywidget.AnyWidget):
    """A run in a notebook's cell.

    Attributes:
        replay: What is played.
        header: Lists, marks and words, as JSON text; see `tracer.replaying`.
        columns: The typed columns.
        kept: Where the reader is, breakpoints and looks, as the page wrote them last: a page that
            is loaded again goes on from there.
    """

    _esm = script("widget")
    _css = style()
    header = traitlets.Unicode().tag(sync=True)
    columns = traitlets.Bytes().tag(sync=True)
    kept = traitlets.Dict().tag(sync=True)

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        super().__init__(header=as_json(replay.header), columns=replay.columns)
        self.on_msg(self._heard)

    def _heard(self, _: Any, message: Any, buffers: Any) -> None:
        if not isinstance(message, dict):
            return
        if message.get("kind") == "marks":
            # The audit and the doctor read the whole trace; steps must not wait for them.
            threading.Thread(target=self._tell, args=(message,), name=MARKING, daemon=True).start()
        else:
            self._tell(message)

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            told = self.answer(message)
        except (TracerError, LookupError, ValueError, TypeError, OSError) as error:
            told = {**message, "error": f"{type(error).__name__}: {error}"}
        if told is not None:
            self.send(_plain(told))

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What is sent back to a question of the page; None to what is none.

        Raises:
            IndexError: There is no such stop.
        """
        match message:
            case {"kind": "detail", "stop": int(stop)}:
                return {"kind": "detail", "stop": stop, "detail": self.replay.detail(stop)}
            case {"kind": "shared", "room": str(room), "key": str(key)}:
                value = self.replay.shared(room, key)
                return {"kind": "shared", "room": room, "key": key, "value": value}
            case {"kind": "marks"}:
                return {"kind": "marks", "marks": self.replay.marks, "notes": self.replay.notes}
        return None

    def _ipython_display_(self) -> None:
        """Show the widget as a cell's output, and beside it what stays without a kernel.

        The style hides the latter while the former lives.
        """
        import IPython.display as shown

        show: Any = shown.display
        bundle, metadata = _bundle_of(self)
        show({**bundle, "text/plain": text("player.needs_kernel")}, metadata=metadata, raw=True)
        show({"text/html": kept(self.replay), "text/plain": repr(self)}, raw=True)

    def __repr__(self) -> str:
        return f"<Player: {len(self.replay.stops):,} stops>"


def _bundle_of(widget: anywidget.AnyWidget) -> tuple[dict[str, Any], dict[str, Any]]:
    found: Any = widget._repr_mimebundle_() or {}
    bundle, metadata = found if isinstance(found, tuple) else (found, {})
    return dict(bundle), dict(metadata)


def _plain(value: Any) -> Any:
    """JSON data in valid Unicode: half a character in a trace must not break a message."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_plain(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
