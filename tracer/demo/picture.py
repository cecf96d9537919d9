"""The picture of the README: what the demo model was shown, what it said, and how it got there.

Made from a trace alone: `python -m tracer demo`, then
`python -m tracer.demo.picture runs/demo docs/answer.png`.
"""

from __future__ import annotations

import io
import sys
import textwrap
from pathlib import Path

import numpy as np
from PIL import Image

from tracer.analysis.answer import answer_tokens
from tracer.demo.drawing import draw_scene
from tracer.demo.story import QUESTION, SCENE
from tracer.trace import Trace, open_trace
from tracer.views.charts import load_waterfall, token_probabilities
from tracer.views.figure import BLUE, FAINT, INK, Chart
from tracer.views.fonts import drawable, families


def draw_picture(trace: Trace) -> Image.Image:
    """Scene, question and answer on the left; tokens and load on the right."""
    charts = [token_probabilities(answer_tokens(trace)), load_waterfall(trace["tensor_loads"])]
    right = [Image.open(io.BytesIO(chart.png())) for chart in charts]
    height = sum(image.height for image in right)
    # As tall as what stands beside it, in the inches that charts are made of.
    scale = right[0].width / charts[0].get_figwidth()
    left = Image.open(io.BytesIO(_conversation(trace, height / scale).png()))
    picture = Image.new("RGB", (left.width + right[0].width, height), "white")
    picture.paste(left, (0, 0))
    top = 0
    for image in right:
        picture.paste(image, (left.width, top))
        top += image.height
    return picture


def _conversation(trace: Trace, height: float) -> Chart:
    chart = Chart(3.2, height)
    chart.set_layout_engine("none")  # the places below are ours
    axes = chart.add_axes((0.08, 1 - 2.9 / height, 0.84, 2.7 / height))
    axes.imshow(np.asarray(draw_scene(SCENE)), interpolation="lanczos")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(FAINT)
    tokens = answer_tokens(trace)
    # What ends an answer is no part of what was said.
    answer = drawable("".join(tokens.loc[tokens["finish"].ne("eos").fillna(True), "text"]).strip())
    place = 1 - 3.2 / height
    for text, colour, size in [(QUESTION, INK, 12), (answer, BLUE, 12)]:
        # Chinese characters are about twice as wide.
        lines = textwrap.wrap(text, 26 if text.isascii() else 14, max_lines=9, placeholder=" …")
        chart.text(
            0.08, place, "\n".join(lines), color=colour, fontsize=size, va="top", linespacing=1.5,
            fontfamily=families(), parse_math=False,
        )  # fmt: skip
        place -= (0.35 + 0.25 * len(lines)) / height
    return chart


if __name__ == "__main__":
    _, source, target = sys.argv
    draw_picture(open_trace(source)).save(Path(target), optimize=True)
