"""What the page shows of the state, and when: throttled while tokens come, tabs drawn in a thread.

Puts things on the panel; changes no answer and calls no model.
"""

from __future__ import annotations

import functools
import html
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tracer.explain import text
from tracer.widgets.job import Latest
from tracer.widgets.state import State
from tracer.widgets.tabs import DRAWN
from tracer.widgets.view import view

if TYPE_CHECKING:
    from tracer.widgets.panel import Panel
    from tracer.widgets.runs import Mark

_PAINT_SECONDS: Final = 0.05
"""A page is painted at most so often while tokens come: 20 times a second."""


class Screen:
    """The state on the panel.

    Args:
        state: What there is to show.
        panel: Where.
        failed: Told what a drawing raised.
        decode: Text of an id.
    """

    def __init__(
        self,
        state: State,
        panel: Panel,
        failed: Callable[[BaseException], None],
        decode: Callable[[int], str],
    ) -> None:
        self.state = state
        self.panel = panel
        self.drawing = Latest("explorer draws", failed, 0.0)
        self._decode = decode
        self._lock = threading.RLock()  # two threads may have something to show
        self._painted = 0.0
        self._strip_length = 0
        self._tab = "answer"
        self._kept: list[Any] = []

    def show(self) -> None:
        """What changes of itself: status, counts, buttons."""
        with self._lock:
            self.panel.show(view(self.state))

    def show_run(self) -> None:
        """Everything of the answer that is looked at."""
        state, named = self.state, self.panel.named
        run = state.run
        if run is None:
            return
        with self._lock:
            self.panel.set_runs([one.name for one in state.runs], state.shown, state.pair)
            named["answer"].before = run.answer.answer_begins
            for strip, marks in (("prompt", run.prompt), ("answer", run.marks)):
                named[strip].picked = -1
                named[strip].tokens = [mark.told() for mark in marks]
        if state.pair is not None:
            self.show_pair()
        self.reset_sliders()
        if state.picked is None and run.marks:
            state.picked = ("answer", _least_sure(run.marks))
        self.show_picked()
        self._draw()
        self.show()  # the status comes last: when it says done, all of it is there

    def show_picked(self) -> None:
        """The picked token, in the tab of its strip."""
        from tracer.widgets.details import Details, details

        run, picked = self.state.run, self.state.picked
        if run is None or picked is None:
            for strip in ("answer", "prompt"):
                self.panel.show_details(strip, Details())
            return
        strip, index = picked
        self.panel.named[strip].picked = index
        self.panel.show_details(strip, details(run, strip, index))
        self.show_what_if()

    def show_what_if(self) -> None:
        """The picked token's step with the settings of the sliders."""
        from tracer.widgets.details import details, what_if_line

        run, picked = self.state.run, self.state.picked
        named = self.panel.named
        if run is None or picked is None or picked[0] != "answer" or run.answer.trace is None:
            return
        found = details(run, "answer", picked[1], self.state.what_if, self._decode)
        named["what_if_bars"].rows = found.bars
        named["what_if_details"].value = what_if_line(run, picked[1], found)

    def reset_sliders(self) -> None:
        """The sliders where the run's own settings are."""
        from tracer.analysis.what_if import settings_of

        run = self.state.run
        if run is not None and run.answer.trace is not None:
            self.panel.set_sliders(settings_of(run.answer.trace))

    def open_tab(self, name: str) -> None:
        """Draw a tab's page when it is first seen."""
        self._tab = name
        self._draw()

    def _draw(self) -> None:
        """Draw the open tab's page in a thread, unless it was drawn before."""
        if self._tab in DRAWN:
            self.drawing.ask(functools.partial(self._draw_page, self._tab))

    def _draw_page(self, name: str) -> None:
        from tracer.widgets.report import history_page, page

        state, named = self.state, self.panel.named
        if name == "history":
            named["page_history"].value = history_page(state.runs)
            return
        shown, run = state.shown, state.run
        log = _log_html(state.log) if name == "log" else ""
        if run is None or shown is None:
            named[f"page_{name}"].value = log
            return
        if (shown, name) not in state.pages:
            state.pages[shown, name] = page(name, run)
        if state.shown == shown:
            named[f"page_{name}"].value = state.pages[shown, name] + log

    def begin_stream(self) -> None:
        """Empty strip and details for the tokens that will come."""
        self._strip_length = 0
        self.panel.named["answer"].before = self.state.answer_begins
        self.panel.named["answer"].clear()
        self.show_picked()

    def whole_stream(self) -> None:
        """All tokens that have come, for a page that was opened meanwhile."""
        tokens = list(self.state.progress.tokens)
        self._strip_length = len(tokens)
        self.panel.named["answer"].tokens = [_streamed(row) for row in tokens]

    def show_pair(self) -> None:
        """The two answers that are compared."""
        from tracer.widgets.compare import compared

        if self.state.pair is not None:
            left, right = (self.state.runs[one] for one in self.state.pair)
            self.panel.named["compared"].value = compared(left, right)

    def paint(self, *, now: bool = False) -> None:
        """Show the tokens that came since the last time, at most twenty times a second."""
        moment = time.perf_counter()
        if not now and moment - self._painted < _PAINT_SECONDS:
            return
        self._painted = moment
        tokens = self.state.progress.tokens
        start, self._strip_length = self._strip_length, len(tokens)
        if self._strip_length > start:
            self.panel.named["answer"].append(start, [_streamed(row) for row in tokens[start:]])
        self.show()

    def display(self) -> None:
        """Show the panel as a cell's output, and below it what stays without a kernel."""
        import IPython.display as shown

        from tracer.widgets.report import static_copy

        show: Any = shown.display
        widget = self.panel.root._repr_mimebundle_() or {}
        show(dict(widget) | {"text/plain": text("explorer.needs_kernel")}, raw=True)
        self._kept.append(show(_html(static_copy(self.state.run)), display_id=True))

    def keep(self) -> None:
        """Renew the static copy, which a notebook shows that is opened without a kernel."""
        from tracer.widgets.report import static_copy

        for handle in self._kept:
            if handle is not None:
                handle.update(_html(static_copy(self.state.run)))


def _html(content: str) -> Any:
    import IPython.display as shown

    kind: Any = shown.HTML
    return kind(content)


def _log_html(lines: list[str]) -> str:
    return "".join(f"<pre>{html.escape(line)}</pre>" for line in lines)


def _streamed(row: dict[str, Any]) -> list[Any]:
    shown = row.get("probability")
    return [row.get("text") or "", None if shown is None else round(shown, 4), "text", 1]


def _least_sure(marks: list[Mark]) -> int:
    known = [(mark.probability, mark.place) for mark in marks if mark.probability is not None]
    return min(known)[1] if known else 0
