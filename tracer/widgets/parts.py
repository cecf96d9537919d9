"""The explorer's own widgets: token strip, bars, drop area, keys. Each a page script beside this.

They show traits and send messages; what a message means the explorer decides.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets

_HERE: Final = Path(__file__).parent
Heard = Callable[..., Any]


class _Part(anywidget.AnyWidget):
    """A widget that hears messages of its page by their `kind`."""

    def hear(self, **by_kind: Heard) -> None:
        """Call these with the rest of a message, and its buffers where it has some."""

        def heard(_: Any, message: dict[str, Any], buffers: list[Any]) -> None:
            given = dict(message)
            told = by_kind.get(given.pop("kind", ""))
            if told is not None:
                told(**given, **({"content": bytes(buffers[0])} if buffers else {}))

        self.on_msg(heard)


class TokenStrip(_Part):
    """Tokens in a row, coloured by probability; sends `pick` (index) and `missed`."""

    _esm = _HERE / "strip.js"
    _css = _HERE / "explorer.css"
    tokens: Any = traitlets.List().tag(sync=True)
    before = traitlets.Unicode().tag(sync=True)
    picked = traitlets.Int(-1).tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    kinds: Any = traitlets.Dict().tag(sync=True)

    def append(self, start: int, tokens: list[list[Any]]) -> None:
        """Show more tokens while they come; the trait is set once, at the end."""
        self.send({"kind": "append", "start": start, "tokens": tokens})

    def clear(self) -> None:
        """Show none."""
        self.set_trait("tokens", [])
        self.send({"kind": "clear"})


class Bars(_Part):
    """Candidates as bars; sends `take` (token)."""

    _esm = _HERE / "bars.js"
    rows: Any = traitlets.List().tag(sync=True)
    words: Any = traitlets.List().tag(sync=True)
    can_take = traitlets.Bool(False).tag(sync=True)


class DropArea(_Part):
    """Where files come in; sends `piece` (with a part of a file), `refused` and `remove`."""

    _esm = _HERE / "drop.js"
    items: Any = traitlets.List().tag(sync=True)
    enabled = traitlets.Bool(True).tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    label_off = traitlets.Unicode().tag(sync=True)
    label_remove = traitlets.Unicode().tag(sync=True)
    most_bytes = traitlets.Int().tag(sync=True)


class Keys(_Part):
    """Keys of the panel; sends `run` (question) and `stop`, and hands files to the browser."""

    _esm = _HERE / "keys.js"

    def download(self, name: str, content: bytes) -> None:
        """Have the browser save a file."""
        self.send({"kind": "download", "name": name}, [content])
