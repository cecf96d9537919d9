"""What all charts share: a figure that shows itself and says what it shows, colours, axes, names.

The background is white whatever the notebook's theme, so that ink keeps its contrast; colours
differ in lightness too, so that they stay apart in print and for every eye. No pyplot: a chart
belongs to whoever made it, and may be made in any thread.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tracer import explain
from tracer.views import labels
from tracer.views.fonts import FIRST_IDEOGRAPH, drawable, families, lacks_font, text_inches
from tracer.views.png import palette_png
from tracer.views.words import say, spoken

INK: Final = "#1f2933"
FAINT: Final = "#c3c9d0"
# From dark to light (37, 53, 72 and 87 of 100): apart without colour too. After Okabe and Ito.
BLUE: Final = "#005a9c"
ORANGE: Final = "#d55e00"
SKY: Final = "#7cc1ec"
YELLOW: Final = "#f5dd6b"
COLOURS: Final = (BLUE, ORANGE, SKY, YELLOW)

RAMP: Final = LinearSegmentedColormap.from_list("ramp", ["#eaf3fa", SKY, BLUE, "#00243f"])
"""From little to much in one hue, ever darker."""

_SHOWN_DOTS: Final = 100  # an inch, on a page
_DRAWN_DOTS: Final = 150  # more of them, so that a fine screen shows no blur
_LONGEST_NAME: Final = 24
_TITLE_POINTS: Final = 11
_UNITS: Final = "ns|µs|ms|s|min|h|B|kB|MB|GB|TB"
_NO_BEGINNING: Final = "，。；：、）》”！？…"
_NO_END: Final = "（《“"
_BREAK: Final = re.compile(rf"(?<=[{FIRST_IDEOGRAPH}-\uffff])(?<![{_NO_END}])(?![{_NO_BEGINNING}])")


class Chart(Figure):
    """A matplotlib figure that a notebook shows by itself, with one sentence that says it all.

    Attributes:
        alt_text: What is drawn and what it shows, for those who can't see it.
    """

    def __init__(self, width: float, height: float) -> None:
        super().__init__(
            figsize=(width, height), dpi=_DRAWN_DOTS, facecolor="white", layout="constrained"
        )
        self.alt_text = ""

    def tell(self, what: str, finding: str) -> None:
        """Put the finding over the chart, and with what is drawn into the alt text.

        Called when all is drawn: every text gets the fonts of every language.
        """
        note_fonts(self, finding)
        if spoken() != explain.language():
            _note(self, say("figure.no_font"))
        finding = drawable(finding)
        self.alt_text = say("figure.alt", what=what, finding=finding)
        for text in self.findobj(Text):
            text.set_fontfamily(families())
        self.suptitle(
            wrapped(finding, self.get_figwidth() - 0.3, _TITLE_POINTS), x=0.01, ha="left",
            fontsize=_TITLE_POINTS, color=INK, fontfamily=families(), parse_math=False,
        )  # fmt: skip

    def png(self) -> bytes:
        """The chart as PNG."""
        canvas: Any = FigureCanvasAgg(self)
        canvas.draw()
        return palette_png(np.asarray(canvas.buffer_rgba()), self.alt_text)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        content = base64.b64encode(self.png()).decode("ascii")
        shown = {"width": round(self.get_figwidth() * _SHOWN_DOTS), "alt": self.alt_text}
        return {"image/png": content, "text/plain": self.alt_text}, {"image/png": shown}


def empty_chart(what: str, needs: str = "") -> Chart:
    """A chart that says in one sentence that there was nothing to draw, and what it takes."""
    chart = Chart(9, 0.6)
    is_known = "_but_needs" if needs else ""
    chart.tell(what, say(f"figure.nothing{is_known}", needs=needs))
    return chart


def describe(figure: Figure, text: str) -> Figure:
    """Give a figure, a chart or any other, the one sentence that stands in for it."""
    figure.alt_text = text  # type: ignore[attr-defined]
    return figure


def alt_text(figure: Figure) -> str:
    """The sentence that stands in for a figure; empty where none was given."""
    return str(getattr(figure, "alt_text", ""))


def note_fonts(figure: FigureBase | None, *texts: str) -> None:
    """Say once, below the figure, why some of its words are escapes: a font is missing."""
    if figure is not None and any(map(lacks_font, texts)):
        _note(figure, say("figure.no_glyph"))


def _note(figure: FigureBase, hint: str) -> None:
    if not figure.get_supxlabel():
        figure.supxlabel(hint, x=0.01, ha="left", fontsize=7, color=INK)


def quiet(axes: Axes) -> None:
    """Take away the lines that carry nothing, and put a faint grid behind the rest."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9, length=3)
    axes.set_axisbelow(True)


def durations(axis: Axis, ticks: int = 6) -> None:
    """Write an axis of nanoseconds as people read them."""
    _human(axis, labels.duration_label, ticks)


def sizes(axis: Axis, ticks: int = 6) -> None:
    """Write an axis of bytes as people read them."""
    _human(axis, labels.bytes_label, ticks)


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only: steps, tokens."""
    axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def _human(axis: Axis, label: Callable[[Any], str], ticks: int) -> None:
    def write(value: float, _: int | None) -> str:
        # At round places the zeros behind the point say nothing: 5 s, not 5.00 s.
        return re.sub(r"(\.\d*?)0+(?= )", _without_point, label(value)) if value else "0"

    axis.set_major_locator(MaxNLocator(nbins=ticks))
    axis.set_major_formatter(FuncFormatter(write))
    axis.grid(True, color=FAINT, linewidth=0.6)


def _without_point(fraction: re.Match[str]) -> str:
    return "" if fraction[1] == "." else fraction[1]


def names(
    axis: Axis,
    places: Sequence[float],
    texts: Sequence[str],
    longest: int = _LONGEST_NAME,
    **style: Any,
) -> None:
    """Put a stranger's words at an axis: any language, no formulas, cut when long."""
    shown = [cut(drawable(text), longest) for text in texts]
    note_fonts(axis.figure, *texts)
    axis.set_ticks(list(places), shown, fontfamily=families(), parse_math=False, **style)


def cut(text: str, longest: int = _LONGEST_NAME) -> str:
    """At most so many characters, the last one an ellipsis where some are left out."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def wrapped(text: str, inches: float, points: float) -> str:
    """Text broken between words, or Chinese characters, where a line would be wider than that."""
    lines = [""]
    for gap, word in _words(text):
        longer = f"{lines[-1]}{gap}{word}" if lines[-1] else word
        if text_inches(longer, points) <= inches or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)


def _words(text: str) -> Iterator[tuple[str, str]]:
    """What may begin a line, with the space before it; a number and its unit stay together."""
    for word in re.split(rf"(?<!\d) | (?!(?:{_UNITS})\b|%)", text):
        gap = " "
        # Chinese breaks behind any character, as long as no line begins with a closing
        # mark, nor ends with an opening one.
        for piece in _BREAK.split(word):
            if piece:
                yield gap, piece
                gap = ""


def legend(axes: Axes, handles: Sequence[Artist] | None = None) -> None:
    """A legend over the axes, in one line, that hides no data; handles stand for what is drawn."""
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=6, frameon=False,
        fontsize=9, labelcolor=INK, borderaxespad=0.2, handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip
