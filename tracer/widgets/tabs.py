"""The tabs of the explorer, in order: a new one is a line here, its words, and what it shows.

A drawn tab is a page made from an answer's trace when it is first opened: a function of the same
name in `report.PAGES`. Any other tab has widgets of its own, which `answer_side` lays out.
"""

from __future__ import annotations

from typing import Final

TABS: Final[dict[str, bool]] = {
    "answer": False,
    "tokens": True,
    "prompt": True,
    "settings": True,
    "timing": True,
    "memory": True,
    "what_if": False,
    "history": True,
    "log": True,
    "doctor": True,
    "export": False,
}
"""Names of the tabs, and whether a page is drawn when the tab is opened."""
DRAWN: Final = tuple(name for name, is_drawn in TABS.items() if is_drawn)
