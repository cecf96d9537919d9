"""The left side of the panel: what is asked, how, and the buttons. Where things stand, no more."""

from __future__ import annotations

from typing import Any, Final

import ipywidgets as widgets

from tracer.demo import EXAMPLES
from tracer.explain import text
from tracer.widgets.named import FULL, Named, caption, small
from tracer.widgets.parts import DropArea
from tracer.widgets.pictures import MOST_BYTES
from tracer.widgets.state import CHOICES, FIRST_FIELDS, NUMBERS

MOVIES: Final = {"a video": "red circle moves right"}
"""Demo videos by the name that they are chosen by."""


def question_side(named: Named, turns: Any) -> Any:
    """Conversation, buttons and settings below each other; `turns` holds the earlier turns."""
    side = widgets.VBox([*_conversation(named, turns), *_buttons(named), *_settings(named)])
    side.add_class("explorer-left")
    return side


def show_own(named: Named, settings: dict[str, Any]) -> None:
    """Show the model's own settings in the empty fields, marked as its own."""
    for name in NUMBERS:
        own = settings.get(name)
        shown = text("explorer.librarys") if own is None else f"{own}"
        named[name].placeholder = text("explorer.own", value=shown)
    named["seed"].placeholder = text("explorer.any_seed")  # no model brings one
    for name, first in (("do_sample", _sampling(settings)), ("use_cache", _cache(settings))):
        value = named[name].value
        named[name].options = _options(name, first)
        named[name].value = value


def _conversation(named: Named, turns: Any) -> list[Any]:
    area = {"continuous_update": True, "layout": widgets.Layout(**FULL)}
    system = widgets.Textarea(rows=2, placeholder=text("explorer.no_system"), **area)
    question = widgets.Textarea(rows=4, placeholder=text("explorer.ask_here"), **area)
    begins = widgets.Text(placeholder=text("explorer.begins_free"), **area)
    scenes = [(text("explorer.pick_scene"), "")]
    scenes += [(text(f"scenes.{name}"), name) for name in (*EXAMPLES, *MOVIES)]
    return [
        caption("system"), named.add("system", system),
        caption("conversation"), turns, named.add("question", question),
        named.add("pictures", DropArea(
            label=text("explorer.drop"), label_off=text("explorer.text_only"),
            label_remove=text("explorer.remove"),
            most_bytes=MOST_BYTES,
        )),
        named.add("scene", widgets.Dropdown(options=scenes, layout=widgets.Layout(**FULL))),
        caption("answer_begins"), named.add("answer_begins", begins),
    ]  # fmt: skip


def _buttons(named: Named) -> list[Any]:
    styles = {"run": "primary", "stop": "warning", "clear": ""}
    row = widgets.HBox([named.button(name, style) for name, style in styles.items()])
    row.add_class("explorer-buttons")
    return [named.add("count", widgets.HTML()), row, named.button("continue", wide=True)]


def _settings(named: Named) -> list[Any]:
    fields: list[tuple[str, Any]] = [
        (name, widgets.Dropdown(options=_options(name, "…"))) for name in CHOICES
    ]
    fields += [(name, widgets.Text(FIRST_FIELDS.get(name, ""))) for name in NUMBERS]
    grid = widgets.GridBox(
        [_cell(named, name, field) for name, field in fields],
        layout=widgets.Layout(grid_template_columns="repeat(2, minmax(0, 1fr))"),
    )
    grid.add_class("explorer-grid")
    stops = widgets.Textarea(
        rows=1, placeholder=text("explorer.stops_here"), layout=widgets.Layout(**FULL)
    )
    devices = widgets.Dropdown(
        options=[(text("explorer.best_device"), "")], layout=widgets.Layout(**FULL)
    )
    return [
        caption("settings"), grid,
        widgets.HTML(small("stop_strings")), named.add("stop_strings", stops),
        widgets.HTML(small("device")), named.add("device", devices),
    ]  # fmt: skip


def _cell(named: Named, name: str, field: Any) -> Any:
    field.layout = widgets.Layout(**FULL)
    field.add_class("explorer-field")
    cell = widgets.VBox([widgets.HTML(small(name)), named.add(name, field)])
    cell.add_class("explorer-cell")
    return cell


def _options(name: str, own: str) -> list[tuple[str, str]]:
    """The model's own choice first, under an empty value."""
    others = [(_choice(name, one), one) for one in CHOICES[name] if one]
    return [(text("explorer.own", value=own), ""), *others]


def _choice(name: str, value: str) -> str:
    return text(f"explorer.{name}_{value}")


def _sampling(settings: dict[str, Any]) -> str:
    return _choice("do_sample", "yes" if settings.get("do_sample") else "no")


def _cache(settings: dict[str, Any]) -> str:
    return _choice("use_cache", "no" if settings.get("use_cache") is False else "yes")
