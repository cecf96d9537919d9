"""Pixels as a PNG with a palette: a third of the size of one without, and notebooks keep them all.

A chart has few colours and the shades between them at the edges of letters. Knows no chart.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo


def palette_png(pixels: Any, description: str = "") -> bytes:
    """Encode pixels; where there are more than 256 colours, the nearest of 256 are taken.

    Args:
        pixels: uint8, (height, width, 3 or more channels); what is beyond red, green and blue is
            left out.
        description: What the picture shows; it stands in the file for whoever can't see.
    """
    image = Image.fromarray(np.ascontiguousarray(pixels[..., :3]))
    few = image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    words = PngInfo()
    if description:
        words.add_itxt("Description", description.encode("utf-8", "backslashreplace").decode())
    target = io.BytesIO()
    few.save(target, "PNG", optimize=True, pnginfo=words)
    return target.getvalue()
