"""The right side of the panel: an answer, in tabs. Where things stand, no more."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any, Final

import ipywidgets as widgets

from tracer.explain import text
from tracer.widgets.export import KINDS
from tracer.widgets.named import FULL, Named, caption
from tracer.widgets.parts import Bars, TokenStrip
from tracer.widgets.tabs import TABS

SLIDERS: Final = {  # smallest, largest, step
    "repetition_penalty": (0.5, 2.0, 0.05),
    "temperature": (0.05, 3.0, 0.05),
    "top_k": (0, 100, 1),
    "top_p": (0.01, 1.0, 0.01),
    "min_p": (0.0, 1.0, 0.01),
}
"""Settings of what-if that can be moved."""
_MARKS: Final = ("text", "special", "image", "video", "pad", "taken")
_LEVELS: Final = ("> 90 %", "> 60 %", "> 30 %", "> 10 %", "< 10 %")


def answer_side(named: Named) -> Any:
    """What went wrong, which answer is looked at, and its tabs."""
    side = widgets.VBox([
        named.add("error", widgets.HTML()),
        named.add("shown", widgets.Dropdown(layout=widgets.Layout(**FULL))),
        _tabs(named),
    ])  # fmt: skip
    side.add_class("explorer-right")
    return side


def _tabs(named: Named) -> Any:
    children = [_OWN[name](named) if name in _OWN else named.page(name) for name in TABS]
    titles = [text(f"explorer.tab_{name}") for name in TABS]
    return named.add("tabs", widgets.Tab(children=children, titles=titles))


def _answer(named: Named) -> Any:
    typed = widgets.Text(
        placeholder=text("explorer.type_token"), layout=widgets.Layout(flex="1 1 auto")
    )
    go_on = widgets.HBox([named.add("branch_text", typed), named.button("branch", wide=True)])
    return widgets.VBox([
        named.add("metrics", widgets.HTML()),
        named.add("answer", _strip("tab_answer")),
        widgets.HTML(_scale()),
        _details(named, "answer"),
        named.add("bars", Bars(words=_bar_words())),
        go_on,
    ])  # fmt: skip


def _prompt(named: Named) -> Any:
    strip = named.add("prompt", _strip("tab_prompt"))
    return widgets.VBox([strip, _details(named, "prompt"), named.page("prompt")])


def _what_if(named: Named) -> Any:
    sliders = []
    for name, (least, most, step) in SLIDERS.items():
        kind = widgets.IntSlider if isinstance(step, int) else widgets.FloatSlider
        slider = kind(
            value=least, min=least, max=most, step=step, description=text(f"explorer.{name}"),
            style={"description_width": "130px"}, layout=widgets.Layout(width="98%"),
        )  # fmt: skip
        sliders.append(named.add(f"what_if_{name}", slider))
    told = named.add("what_if_details", widgets.HTML())
    bars = named.add("what_if_bars", Bars(words=_bar_words()))
    return widgets.VBox([told, *sliders, named.button("as_run", wide=True), bars])


def _history(named: Named) -> Any:
    pair = widgets.HBox([
        named.add(side, widgets.Dropdown(layout=widgets.Layout(flex="1 1 0", min_width="0")))
        for side in ("left", "right")
    ])  # fmt: skip
    compared = named.add("compared", widgets.HTML())
    compared.add_class("explorer-page")
    return widgets.VBox([named.page("history"), caption("compare"), pair, compared])


def _export(named: Named) -> Any:
    scopes = [(text(f"explorer.scope_{one}"), one) for one in ("run", "session")]
    kinds = [(text(f"explorer.kind_{one}"), one) for one in KINDS]
    return widgets.VBox([
        named.add("scope", widgets.Dropdown(options=scopes)),
        named.add("kind", widgets.Dropdown(options=kinds)),
        named.button("download", wide=True),
        named.add("exported", widgets.HTML()),
    ])  # fmt: skip


_OWN: Final[dict[str, Callable[[Named], Any]]] = {
    "answer": _answer,
    "prompt": _prompt,
    "what_if": _what_if,
    "history": _history,
    "export": _export,
}
"""Tabs with widgets of their own; any other is a page."""


def _strip(label: str) -> TokenStrip:
    kinds = {kind: text(f"explorer.mark_{kind}") for kind in _MARKS}
    return TokenStrip(label=text(f"explorer.{label}"), kinds=kinds)


def _details(named: Named, strip: str) -> Any:
    details = named.add(f"{strip}_details", widgets.HTML())
    details.add_class("explorer-details")
    return details


def _bar_words() -> list[str]:
    return [text(f"explorer.{one}") for one in ("before", "after", "changed", "take")]


def _scale() -> str:
    levels = "".join(
        f'<span class="explorer-p{number}">{html.escape(words)}</span>'
        for number, words in enumerate(_LEVELS)
    )
    return f'<div class="explorer-scale">{html.escape(text("explorer.scale"))}{levels}</div>'
