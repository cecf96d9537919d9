"""What all callbacks of the explorer share: what they work on, and that a failure is shown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracer.widgets.asking import Asking
    from tracer.widgets.panel import Panel
    from tracer.widgets.screen import Screen
    from tracer.widgets.state import State


class Callbacks:
    """Named callbacks that take plain values; each changes the state and shows its view.

    Attributes:
        state: All that the explorer knows, as plain data.
        panel: Its widgets.
        asking: The model, and what takes time with it.
        screen: What puts the state on them.
    """

    state: State
    panel: Panel
    asking: Asking
    screen: Screen
    _folder: Path  # where exports go


def is_place(index: int | None, among: Sequence[Any]) -> bool:
    """Whether there is such a thing: a page that is behind may tell of one that is gone."""
    return index is not None and 0 <= index < len(among)


def callback(method: Callable[..., Any]) -> Callable[..., None]:
    """A callback whose failure is shown; the page alone would swallow it."""

    @functools.wraps(method)
    def guarded(self: Callbacks, *arguments: Any, **named: Any) -> None:
        try:
            method(self, *arguments, **named)
        except Exception as error:
            self.asking.failed(error)

    return guarded
