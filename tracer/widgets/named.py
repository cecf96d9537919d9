"""Widgets by name, and the few shapes that both sides of the panel are made of.

Every widget that a user, a view or a test speaks of has a name, and a class `ux-NAME` on the page.
"""

from __future__ import annotations

import html
from typing import Any, Final

import ipywidgets as widgets

from tracer.explain import text

FULL: Final = {"width": "auto"}


class Named(dict[str, Any]):
    """Widgets by name; what is added is there to be found on the page too."""

    def add(self, name: str, widget: Any) -> Any:
        """Give a widget its name."""
        widget.add_class(f"ux-{name.replace('_', '-')}")
        self[name] = widget
        return widget

    def button(self, name: str, style: str = "", *, wide: bool = False) -> Any:
        """A button with its word and its hint."""
        button = widgets.Button(
            description=text(f"explorer.do_{name}"),
            tooltip=text(f"explorer.tip_{name}"),
            button_style=style,
            layout=widgets.Layout(width="auto", flex="1 1 0" if not wide else "0 0 auto"),
        )
        return self.add(name, button)

    def page(self, name: str) -> Any:
        """A page of HTML, as drawn tabs show it."""
        page = self.add(f"page_{name}", widgets.HTML())
        page.add_class("explorer-page")
        return page


def caption(name: str) -> Any:
    """A heading between groups of widgets."""
    shown = widgets.HTML(html.escape(text(f"explorer.{name}")))
    shown.add_class("explorer-caption")
    return shown


def small(name: str, more: str = "") -> str:
    """A label above a field, as HTML."""
    return f'<span class="explorer-faint">{html.escape(text(f"explorer.{name}") + more)}</span>'
