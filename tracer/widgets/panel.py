"""The explorer's page: its widgets, what is put on them, and which callback each calls.

Decides nothing: `show` puts a view (traits by widget) on the page, callbacks are the explorer's.
Where things stand `question_side` and `answer_side` know.
"""

from __future__ import annotations

import contextlib
import html
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from tracer.explain import text
from tracer.widgets.answer_side import SLIDERS, answer_side
from tracer.widgets.named import Named, small
from tracer.widgets.parts import Keys
from tracer.widgets.question_side import question_side, show_own
from tracer.widgets.state import CHOICES, NUMBERS, State
from tracer.widgets.tabs import TABS

if TYPE_CHECKING:
    from tracer.conversation import Message
    from tracer.widgets.details import Details
    from tracer.widgets.explorer import Explorer
    from tracer.widgets.view import View


class Panel:
    """All widgets by name, laid out.

    Attributes:
        named: The widgets that views and tests speak of.
        root: What the page shows.
    """

    def __init__(self, explorer: Explorer) -> None:
        self._calls = explorer
        self.named = Named()
        self._last: dict[tuple[str, str], Any] = {}
        self._quiet_thread: int | None = None
        self.keys = self.named.add("keys", Keys())
        self.turns = widgets.VBox()
        sides = widgets.HBox([question_side(self.named, self.turns), answer_side(self.named)])
        self.root = widgets.VBox([self._head(), sides, self.keys])
        self.root.add_class("tracer-explorer")
        self._connect()

    def show(self, view: View) -> None:
        """Put on the page what of a view has changed since the last one."""
        for name, traits in view.items():
            for trait, value in traits.items():
                if self._last.get((name, trait), self) != value:
                    self._last[name, trait] = value
                    self.named[name].set_trait(trait, value)

    def fill(self, state: State) -> None:
        """Write the state into the input fields; called only where a callback changed them."""
        with self._quietly():
            for name in ("system", "question", "answer_begins"):
                self.named[name].value = getattr(state, name)
        self._fill_turns(state.turns)

    def show_details(self, strip: str, details: Details) -> None:
        """What a picked token is told by, in the tab of its strip."""
        self.named[f"{strip}_details"].value = _details_html(details)
        if strip == "answer":
            self.named["bars"].rows = details.bars
            self.named["bars"].can_take = True

    def set_sliders(self, values: dict[str, float]) -> None:
        """Put the what-if sliders where the run's own settings are, however far out."""
        with self._quietly():
            for name, value in values.items():
                slider, (least, most, _) = self.named[f"what_if_{name}"], SLIDERS[name]
                kind = type(slider.value)
                # A range may not end before it begins, not even between two lines.
                slider.max = kind(max(most, value, slider.min))
                slider.min = kind(min(least, value))
                slider.max = kind(max(most, value))
                slider.value = kind(value)

    def set_devices(self, names: list[str]) -> None:
        """The devices to choose from."""
        options = [(text("explorer.best_device"), "")]
        with self._quietly():
            value = self.named["device"].value
            self.named["device"].options = [*options, *((name, name) for name in names)]
            self.named["device"].value = value

    def set_runs(self, names: list[str], shown: int | None, pair: tuple[int, int] | None) -> None:
        """The lists of answers to choose from."""
        options = [(name, number) for number, name in enumerate(names)]
        chosen = (shown, *(pair or (None, None)))
        with self._quietly():  # new options alone would choose the first
            for name, value in zip(("shown", "left", "right"), chosen, strict=True):
                self.named[name].options = options
                self.named[name].value = value

    def place(self, settings: dict[str, Any]) -> None:
        """Show the model's own settings in the empty fields, marked as its own."""
        with self._quietly():
            show_own(self.named, settings)

    def _head(self) -> Any:
        model = self.named.add("model", widgets.HTML())
        bar = self.named.add("bar", widgets.HTML(layout=widgets.Layout(flex="1 1 auto")))
        status = self.named.add("status", widgets.Label())
        head = widgets.HBox([model, bar, status])
        head.add_class("explorer-head")
        return head

    # The earlier turns of the conversation

    def _fill_turns(self, turns: list[Message]) -> None:
        self.turns.children = [self._turn(number, turn) for number, turn in enumerate(turns)]

    def _turn(self, number: int, turn: Message) -> Any:
        area = widgets.Textarea(value=turn.text, rows=2, layout=widgets.Layout(width="auto"))
        area.add_class("ux-turn")
        delete = widgets.Button(description="×", tooltip=text("explorer.tip_delete"))
        delete.layout.width = "32px"
        delete.add_class("ux-delete")
        area.observe(lambda change: self._calls.edit_turn(number, change["new"]), "value")
        delete.on_click(lambda _: self._calls.delete_turn(number))
        seen = len(turn.images) + len(turn.videos)
        who = widgets.HTML(small(f"role_{turn.role}", f" · {seen} ▣" if seen else ""))
        who.layout.flex = "1 1 auto"
        box = widgets.VBox([widgets.HBox([who, delete]), area])
        box.add_class("explorer-turn")
        return box

    # Who is called

    def _connect(self) -> None:
        calls, named = self._calls, self.named
        for name in ("run", "stop", "clear", "continue", "branch", "as_run", "download"):
            named[name].on_click(lambda _, name=name: getattr(calls, f"press_{name}")())
        for name in ("system", "question", "answer_begins", "stop_strings"):
            self._on(name, lambda value, name=name: calls.type_text(name, value))
        for name in (*CHOICES, *NUMBERS):
            self._on(name, lambda value, name=name: calls.type_setting(name, value))
        for name in SLIDERS:
            self._on(f"what_if_{name}", lambda value, name=name: calls.move(name, value))
        self._on("scene", calls.pick_scene)
        self._on("device", calls.pick_device)
        self._on("shown", calls.pick_run)
        for side in ("left", "right"):
            self._on(side, lambda _: calls.compare(named["left"].value, named["right"].value))
        named["tabs"].observe(
            lambda change: calls.open_tab(list(TABS)[change["new"]]), "selected_index"
        )
        for strip in ("answer", "prompt"):
            named[strip].hear(
                pick=lambda index, strip=strip: calls.pick_token(strip, index),
                missed=calls.repaint,
            )
        named["bars"].hear(take=calls.take_candidate)
        named["pictures"].hear(
            piece=calls.receive, remove=calls.remove_picture, refused=calls.refuse_file
        )
        named["keys"].hear(run=calls.press_run, stop=calls.press_stop)

    def _on(self, name: str, call: Any) -> None:
        def changed(change: dict[str, Any]) -> None:
            if self._quiet_thread != threading.get_ident():
                call(change["new"])

        self.named[name].observe(changed, "value")

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Set values of input widgets without calling back; what users do meanwhile does."""
        before, self._quiet_thread = self._quiet_thread, threading.get_ident()
        try:
            yield
        finally:
            self._quiet_thread = before


def _details_html(details: Details) -> str:
    if not details.title:
        return small("pick_a_token")
    return f"<div><b><code>{html.escape(details.title)}</code></b></div>{details.html}"
