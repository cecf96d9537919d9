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


def test_of_many_colours_near_ones_are_taken():
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    difference = np.abs(decoded(palette_png(pixels)).astype(int) - pixels)
    assert difference.mean() <= 20


def test_a_smooth_ramp_beside_a_few_colours_stays_smooth():
    ramp = np.linspace([234, 243, 250], [0, 36, 63], 600).round().astype(np.uint8)
    pixels = np.concatenate([ramp[None].repeat(20, 0), np.full((20, 600, 3), 255, np.uint8)])
    difference = np.abs(decoded(palette_png(pixels)).astype(int) - pixels)
    assert difference.max() <= 3


@pytest.mark.parametrize("text", ["16 tokens, 39 % of the prompt.", "红色", "a\ud83db", ""])
def test_what_it_shows_stands_in_the_file(text):
    image = Image.open(io.BytesIO(palette_png(np.zeros((2, 2, 3), np.uint8), text)))
    shown = text.replace("\ud83d", "\\ud83d")
    assert image.text == ({"Description": shown} if text else {})


def test_transparency_is_left_out():
    pixels = np.full((4, 4, 4), 128, dtype=np.uint8)
    assert (decoded(palette_png(pixels)) == 128).all()
