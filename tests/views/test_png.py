"""The PNG of a chart has the pixels of the chart."""

import io

import numpy as np
import pytest
from PIL import Image

from tracer.views.png import palette_png


def decoded(png: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(png))
    assert image.mode == "P"
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (200, 1)])
def test_few_colours_stay_exact(shape):
    colours = np.array([[0, 90, 156], [213, 94, 0], [255, 255, 255]], dtype=np.uint8)
    pixels = colours[np.random.default_rng(0).integers(0, 3, shape)]
    assert (decoded(palette_png(pixels)) == pixels).all()


def test_exactly_256_colours_stay_exact():
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    pixels = np.stack([grey, grey, grey], axis=-1)
    assert (decoded(palette_png(pixels)) == pixels).all()


def test_of_many_colours_the_nearest_shades_are_taken():
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    difference = np.abs(decoded(palette_png(pixels)).astype(int) - pixels)
    assert difference.max() <= 26  # half a step of six shades


def test_transparency_is_left_out():
    pixels = np.full((4, 4, 4), 128, dtype=np.uint8)
    assert (decoded(palette_png(pixels)) == 128).all()
