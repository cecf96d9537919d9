"""Fonts of this machine: those that matplotlib knows, and those installed since it looked.

matplotlib keeps a list in its cache, which is older than fonts that came after it. Charts and
`check()` ask here for what it lacks; imported only where matplotlib is there.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

from matplotlib import font_manager

_LIKELY_CJK: Final = re.compile("cjk|han|hei|song|ming|gothic|hiragino|fang|kai|unicode", re.I)
_CJK_SAMPLE: Final = "预缓存"


def unlisted() -> set[str]:
    """Files of fonts that matplotlib's list has not."""
    listed = {entry.fname for entry in font_manager.fontManager.ttflist}
    return set(font_manager.findSystemFonts()) - listed


def cjk_font() -> str | None:
    """Family name of a font that draws Chinese; None where there is none."""
    from matplotlib.ft2font import FT2Font

    known = {entry.fname: entry.name for entry in font_manager.fontManager.ttflist}
    known |= {file: Path(file).stem for file in unlisted()}
    # Opening a font costs a millisecond: the likely names first, and none after the first hit.
    by_name = sorted(known.items(), key=lambda each: (not _LIKELY_CJK.search(each[1]), each[1]))
    for file, name in by_name:
        # Last Resort, which matplotlib brings, claims every character and draws a box for each.
        if name.startswith("Last Resort") or not Path(file).is_file():
            continue
        # A font that can't be read is as good as not installed.
        with contextlib.suppress(OSError, RuntimeError):
            font = FT2Font(file)
            if all(font.get_char_index(ord(character)) for character in _CJK_SAMPLE):
                return str(font.family_name)
    return None
