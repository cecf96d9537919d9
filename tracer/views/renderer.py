"""The player's page script as one text: the modules beside this, in the order of their imports.

The modules are plain ES modules, so that a browser loads them one by one in tests. A widget and a
page without a server each take one text: there, imports fall away and every name is at the top.
Therefore a module imports and exports on single lines, and no name stands in two modules.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from typing import Final, Literal

_IMPORT: Final = re.compile(r'^import .* from "\./([a-z]+\.js)";\n', re.MULTILINE)
# Comments and indents are for those who read the modules; every kept notebook would carry them.
_IDLE: Final = re.compile(r"^ *//.*\n|^ +", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?!default)", re.MULTILINE)


@functools.cache
def script(entry: Literal["widget", "page"]) -> str:
    """The renderer as one ES module.

    Args:
        entry: `widget` exports what anywidget asks for; `page` draws itself into `#player`, from
            the data that stand in the page.
    """
    modules = (_EXPORT.sub("", _IMPORT.sub("", _read(name))) for name in _order(f"{entry}.js"))
    return _IDLE.sub("", "".join(modules))


@functools.cache
def style() -> str:
    """The renderer's style sheet, for a notebook's theme or a page of its own."""
    return "".join(_read(f"{name}.css") for name in ("player", "stop", "layout"))


def _order(name: str, seen: tuple[str, ...] = ()) -> tuple[str, ...]:
    """A module behind all that it imports, each once."""
    for needed in _IMPORT.findall(_read(name)):
        if needed not in seen:
            seen = _order(needed, seen)
    return (*seen, name)


def _read(name: str) -> str:
    return (
        importlib.resources.files("tracer.views")
        .joinpath("player")
        .joinpath(name)
        .read_text("utf-8")
    )
