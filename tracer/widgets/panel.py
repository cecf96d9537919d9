"""The explorer's page: all widgets, where they stand, and which callback each calls.

Decides nothing: `show` puts a view (traits by widget) on the page, callbacks are the explorer's.
Every widget that a user or a test touches has a class `ux-NAME`.
"""

from __future__ import annotations

import contextlib
import html
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import ipywidgets as widgets

from tracer.demo import EXAMPLES
from tracer.explain import text
from tracer.widgets.export import KINDS
from tracer.widgets.parts import Bars, DropArea, Keys, TokenStrip
from tracer.widgets.pictures import MOST_BYTES
from tracer.widgets.state import CHOICES, FIRST_FIELDS, NUMBERS, State

if TYPE_CHECKING:
    from tracer.conversation import Message
    from tracer.widgets.details import Details
    from tracer.widgets.explorer import Explorer
    from tracer.widgets.view import View

TABS: Final = (
    "answer", "tokens", "prompt", "settings", "timing", "memory", "what_if", "history", "log",
    "export",
)  # fmt: skip
MOVIES: Final = {"a video": "red circle moves right"}
_SLIDERS: Final = {  # smallest, largest, step
    "repetition_penalty": (0.5, 2.0, 0.05),
    "temperature": (0.05, 3.0, 0.05),
    "top_k": (0, 100, 1),
    "top_p": (0.01, 1.0, 0.01),
    "min_p": (0.0, 1.0, 0.01),
}
_LEVELS: Final = ("> 90 %", "> 60 %", "> 30 %", "> 10 %", "< 10 %")
_FULL: Final = {"width": "auto"}


class Panel:
    """All widgets by name, laid out.

    Attributes:
        named: The widgets that views and tests speak of.
        root: What the page shows.
    """

    def __init__(self, explorer: Explorer) -> None:
        self._calls = explorer
        self.named: dict[str, Any] = {}
        self._last: dict[tuple[str, str], Any] = {}
        self._quiet_thread: int | None = None
        self.keys = self._add("keys", Keys())
        self.turns = widgets.VBox()
        self.root = widgets.VBox([self._head(), self._body(), self.keys])
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
        """Put the what-if sliders where the run's own settings are."""
        with self._quietly():
            for name, value in values.items():
                slider = self.named[f"what_if_{name}"]
                slider.value = type(slider.value)(min(max(value, slider.min), slider.max))

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
        for name in NUMBERS:
            own = settings.get(name)
            shown = text("explorer.librarys") if own is None else f"{own}"
            self.named[name].placeholder = text("explorer.own", value=shown)
        for name, first in (("do_sample", _sampling(settings)), ("use_cache", _cache(settings))):
            options = [(text("explorer.own", value=first), "")]
            options += [(_choice(name, one), one) for one in CHOICES[name] if one]
            value = self.named[name].value
            with self._quietly():
                self.named[name].options = options
                self.named[name].value = value

    # Where things stand

    def _add(self, name: str, widget: Any) -> Any:
        widget.add_class(f"ux-{name.replace('_', '-')}")
        self.named[name] = widget
        return widget

    def _head(self) -> Any:
        model = self._add("model", widgets.HTML())
        bar = self._add("bar", widgets.HTML(layout=widgets.Layout(flex="1 1 auto")))
        status = self._add("status", widgets.Label())
        head = widgets.HBox([model, bar, status])
        head.add_class("explorer-head")
        return head

    def _body(self) -> Any:
        left = widgets.VBox([*self._conversation(), *self._buttons(), *self._settings()])
        left.add_class("explorer-left")
        right = widgets.VBox([
            self._add("error", widgets.HTML()),
            self._add("shown", widgets.Dropdown(layout=widgets.Layout(**_FULL))),
            self._tabs(),
        ])  # fmt: skip
        right.add_class("explorer-right")
        return widgets.HBox([left, right])

    def _conversation(self) -> list[Any]:
        area = {"continuous_update": True, "layout": widgets.Layout(**_FULL)}
        system = widgets.Textarea(rows=2, placeholder=text("explorer.no_system"), **area)
        question = widgets.Textarea(rows=4, placeholder=text("explorer.ask_here"), **area)
        begins = widgets.Text(placeholder=text("explorer.begins_free"), **area)
        scenes = [(text("explorer.pick_scene"), "")]
        scenes += [(name, name) for name in (*EXAMPLES, *MOVIES)]
        return [
            _caption("system"), self._add("system", system),
            _caption("conversation"), self.turns, self._add("question", question),
            self._add("pictures", DropArea(
                label=text("explorer.drop"), label_off=text("explorer.text_only"),
                most_bytes=MOST_BYTES,
            )),
            self._add("scene", widgets.Dropdown(options=scenes, layout=widgets.Layout(**_FULL))),
            _caption("answer_begins"), self._add("answer_begins", begins),
        ]  # fmt: skip

    def _settings(self) -> list[Any]:
        fields = []
        for name in CHOICES:
            options = [(text("explorer.own", value="…"), "")]
            options += [(_choice(name, one), one) for one in CHOICES[name] if one]
            fields.append((name, widgets.Dropdown(options=options)))
        fields += [(name, widgets.Text(FIRST_FIELDS.get(name, ""))) for name in NUMBERS]
        cells = []
        for name, field in fields:
            field.layout = widgets.Layout(**_FULL)
            field.add_class("explorer-field")
            cell = widgets.VBox([widgets.HTML(_small(name)), self._add(name, field)])
            cell.add_class("explorer-cell")
            cells.append(cell)
        grid = widgets.GridBox(
            cells, layout=widgets.Layout(grid_template_columns="repeat(2, minmax(0, 1fr))")
        )
        grid.add_class("explorer-grid")
        stops = widgets.Textarea(
            rows=1, placeholder=text("explorer.stops_here"), layout=widgets.Layout(**_FULL)
        )
        devices = widgets.Dropdown(
            options=[(text("explorer.best_device"), "")], layout=widgets.Layout(**_FULL)
        )
        return [
            _caption("settings"), grid,
            widgets.HTML(_small("stop_strings")), self._add("stop_strings", stops),
            widgets.HTML(_small("device")), self._add("device", devices),
        ]  # fmt: skip

    def _buttons(self) -> list[Any]:
        styles = {"run": "primary", "stop": "warning", "clear": ""}
        row = widgets.HBox([self._button(name, style) for name, style in styles.items()])
        row.add_class("explorer-buttons")
        return [self._add("count", widgets.HTML()), row, self._button("continue", "", wide=True)]

    def _button(self, name: str, style: str, *, wide: bool = False) -> Any:
        button = widgets.Button(
            description=text(f"explorer.do_{name}"),
            tooltip=text(f"explorer.tip_{name}"),
            button_style=style,
            layout=widgets.Layout(width="auto", flex="1 1 0" if not wide else "0 0 auto"),
        )
        return self._add(name, button)

    def _tabs(self) -> Any:
        special = {
            "answer": self._answer_tab,
            "prompt": self._prompt_tab,
            "what_if": self._what_if_tab,
            "history": self._history_tab,
            "export": self._export_tab,
        }
        children = [special.get(name, lambda name=name: self._page(name))() for name in TABS]
        titles = [text(f"explorer.tab_{name}") for name in TABS]
        return self._add("tabs", widgets.Tab(children=children, titles=titles))

    def _page(self, name: str) -> Any:
        page = self._add(f"page_{name}", widgets.HTML())
        page.add_class("explorer-page")
        return page

    def _answer_tab(self) -> Any:
        typed = widgets.Text(
            placeholder=text("explorer.type_token"), layout=widgets.Layout(flex="1 1 auto")
        )
        go_on = widgets.HBox(
            [self._add("branch_text", typed), self._button("branch", "", wide=True)]
        )
        details = self._add("answer_details", widgets.HTML())
        details.add_class("explorer-details")
        return widgets.VBox([
            self._add("metrics", widgets.HTML()),
            self._add("answer", TokenStrip(label=text("explorer.tab_answer"))),
            widgets.HTML(_scale()),
            details,
            self._add("bars", Bars(words=_bar_words())),
            go_on,
        ])  # fmt: skip

    def _prompt_tab(self) -> Any:
        details = self._add("prompt_details", widgets.HTML())
        details.add_class("explorer-details")
        strip = self._add("prompt", TokenStrip(label=text("explorer.tab_prompt")))
        return widgets.VBox([strip, details, self._page("prompt")])

    def _what_if_tab(self) -> Any:
        sliders = []
        for name, (least, most, step) in _SLIDERS.items():
            kind = widgets.IntSlider if isinstance(step, int) else widgets.FloatSlider
            slider = kind(
                value=least, min=least, max=most, step=step, description=text(f"explorer.{name}"),
                style={"description_width": "130px"}, layout=widgets.Layout(width="98%"),
            )  # fmt: skip
            sliders.append(self._add(f"what_if_{name}", slider))
        told = self._add("what_if_details", widgets.HTML())
        bars = self._add("what_if_bars", Bars(words=_bar_words()))
        return widgets.VBox([told, *sliders, self._button("as_run", "", wide=True), bars])

    def _history_tab(self) -> Any:
        pair = widgets.HBox([
            self._add(side, widgets.Dropdown(layout=widgets.Layout(flex="1 1 0", min_width="0")))
            for side in ("left", "right")
        ])  # fmt: skip
        compared = self._add("compared", widgets.HTML())
        compared.add_class("explorer-page")
        return widgets.VBox([self._page("history"), _caption("compare"), pair, compared])

    def _export_tab(self) -> Any:
        scopes = [(text(f"explorer.scope_{one}"), one) for one in ("run", "session")]
        kinds = [(text(f"explorer.kind_{one}"), one) for one in KINDS]
        return widgets.VBox([
            self._add("scope", widgets.Dropdown(options=scopes)),
            self._add("kind", widgets.Dropdown(options=kinds)),
            self._button("download", "", wide=True),
            self._add("exported", widgets.HTML()),
        ])  # fmt: skip

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
        who = widgets.HTML(_small(f"role_{turn.role}", f" · {seen} ▣" if seen else ""))
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
        for name in _SLIDERS:
            self._on(f"what_if_{name}", lambda value, name=name: calls.move(name, value))
        self._on("scene", calls.pick_scene)
        self._on("device", calls.pick_device)
        self._on("shown", calls.pick_run)
        for side in ("left", "right"):
            self._on(side, lambda _: calls.compare(named["left"].value, named["right"].value))
        named["tabs"].observe(lambda change: calls.open_tab(TABS[change["new"]]), "selected_index")
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


def _caption(name: str) -> Any:
    caption = widgets.HTML(html.escape(text(f"explorer.{name}")))
    caption.add_class("explorer-caption")
    return caption


def _small(name: str, more: str = "") -> str:
    return f'<span class="explorer-faint">{html.escape(text(f"explorer.{name}") + more)}</span>'


def _choice(name: str, value: str) -> str:
    return text(f"explorer.{name}_{value}")


def _sampling(settings: dict[str, Any]) -> str:
    return _choice("do_sample", "yes" if settings.get("do_sample") else "no")


def _cache(settings: dict[str, Any]) -> str:
    return _choice("use_cache", "no" if settings.get("use_cache") is False else "yes")


def _bar_words() -> list[str]:
    return [text(f"explorer.{one}") for one in ("before", "after", "changed", "take")]


def _scale() -> str:
    levels = "".join(
        f'<span class="explorer-p{number}">{html.escape(words)}</span>'
        for number, words in enumerate(_LEVELS)
    )
    return f'<div class="explorer-scale">{html.escape(text("explorer.scale"))}{levels}</div>'


def _details_html(details: Details) -> str:
    if not details.title:
        return _small("pick_a_token")
    return f"<div><b><code>{html.escape(details.title)}</code></b></div>{details.html}"
