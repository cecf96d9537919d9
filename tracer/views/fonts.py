"""Which characters a chart can draw on this machine, and what stands for those that it can't.

A token may be Chinese, an emoji, half a character or a line feed. matplotlib draws a box for what
no font holds, and warns; here such a character becomes its escape instead. It draws nothing.
"""

from __future__ import annotations

import contextlib
import functools
import unicodedata
from typing import Any, Final

from matplotlib import font_manager

from tracer.export.text import visible_text
from tracer.installed_fonts import unlisted

_LATIN: Final = "DejaVu Sans"  # comes with matplotlib
FIRST_IDEOGRAPH: Final = "\u2e80"  # CJK radicals; Hangul and kana lie above too
_LEFT_TO_RIGHT: Final = "\u200e"  # a mark that is not seen
_DOTS: Final = 144
_UNITS: Final = 64  # of a font's measures to a dot
# Families with Chinese, by system; the first that is installed is taken.
_CHINESE: Final = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",  # matplotlib names a collection of fonts after its first one
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti TC",
    "Microsoft YaHei",
    "SimHei",
    "SimSun",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Arial Unicode MS",
)


@functools.cache
def families() -> list[str]:
    """Font families for text of any language, in the order in which a character is looked up."""
    known = _installed() or _installed(look_again=True)
    return [_LATIN, *known[:1]]


def _installed(look_again: bool = False) -> list[str]:
    """Known families that are there; matplotlib's list is older than fonts installed since."""
    manager = font_manager.fontManager
    if look_again:
        for path in unlisted():
            # A font that can't be read, or has only bitmaps, is as good as not installed.
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                manager.addfont(path)
    there = {entry.name for entry in manager.ttflist}
    return [name for name in _CHINESE if name in there]


def drawable(text: str) -> str:
    """The text with every character that would be a box, or nothing at all, written as an escape.

    A leading or trailing space becomes an open box: in a token it is part of the word.
    """
    text = visible_text(text).replace("\n", "\\n").replace("\t", "\\t")
    inner = text.strip(" ")
    if inner != text:
        left = len(text) - len(text.lstrip(" ")) if inner else len(text)
        text = "␣" * left + inner + "␣" * (len(text) - left - len(inner))
    shown = "".join(one if _has_glyph(one) else _escape(one) for one in text)
    # Hebrew or Arabic would turn round what stands beside it in a line: marks keep it in place.
    is_leftward = any(unicodedata.bidirectional(one) in {"R", "AL"} for one in shown)
    return f"{_LEFT_TO_RIGHT}{shown}{_LEFT_TO_RIGHT}" if is_leftward else shown


def _escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode("ascii")


@functools.lru_cache(maxsize=4096)
def _has_glyph(character: str) -> bool:
    return any(font.get_char_index(ord(character)) for font in _fonts())


def lacks_font(text: str) -> bool:
    """Whether the text holds Chinese, Japanese or Korean, and no font of this machine has such."""
    return len(families()) == 1 and any(
        one >= FIRST_IDEOGRAPH and unicodedata.category(one) == "Lo" for one in text
    )


@functools.lru_cache(maxsize=4096)
def text_inches(text: str, points: float) -> float:
    """How wide a text of that size is drawn; for texts that `drawable` has been through."""
    font: Any = font_manager.get_font(_paths())
    font.set_size(points, _DOTS)
    font.set_text(text, 0.0)
    width: float = font.get_width_height()[0] / _UNITS / _DOTS
    return width


@functools.cache
def _paths() -> list[str]:
    return [font_manager.findfont(name) for name in families()]


@functools.cache
def _fonts() -> list[Any]:
    return [font_manager.get_font(path) for path in _paths()]
