"""Pixels as a PNG with a palette: a third of the size of one without, and notebooks keep them all.

A chart has few colours and the shades between them at the edges of letters. Knows no chart.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import numpy as np

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_MOST_COLOURS: Final = 256
_SHADES: Final = (256, 32, 16, 8, 6)  # a channel; 6 of each of three are 216 colours


def palette_png(pixels: Any) -> bytes:
    """Encode pixels; where there are more than 256 colours, the nearest of fewer shades are taken.

    Args:
        pixels: uint8, (height, width, 3 or more channels); what is beyond red, green and blue is
            left out.
    """
    colours = pixels[..., :3].astype(np.uint32)
    for shades in _SHADES:
        steps = np.rint(colours * (shades - 1) / 255)
        red, green, blue = np.moveaxis(np.rint(steps * 255 / (shades - 1)).astype(np.uint32), -1, 0)
        palette, index = np.unique(red << 16 | green << 8 | blue, return_inverse=True)
        if len(palette) <= _MOST_COLOURS:
            break
    height, width = colours.shape[:2]
    # Each line begins with the number of its filter: 0, the indices as they are.
    lines = np.zeros((height, width + 1), dtype=np.uint8)
    lines[:, 1:] = index.reshape(height, width)
    entries = np.stack([palette >> 16, palette >> 8 & 255, palette & 255], axis=1)
    # Eight bits a pixel, colour type 3: a palette.
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = [
        _chunk(b"IHDR", head),
        _chunk(b"PLTE", entries.astype(np.uint8).tobytes()),
        _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
        _chunk(b"IEND", b""),
    ]
    return _SIGNATURE + b"".join(chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
