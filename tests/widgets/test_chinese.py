"""In Chinese all that the lab says of itself is Chinese: no English words are left standing."""

import re
from html.parser import HTMLParser

import pytest

import tracer
from tracer.widgets.explorer import Explorer
from tracer.widgets.tabs import DRAWN

CHINESE = re.compile("[\u4e00-\u9fff]")
# Two words beside each other, in lower case: a piece of an English sentence.
ENGLISH = re.compile(r"\b[a-z]{2,} [a-z]{2,}\b")


class Texts(HTMLParser):
    """Texts of a page, those of code and tables' cells left out: they hold what was recorded."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in ("img", "br"):
            self.open.append(tag)
        self.found += [value for name, value in attrs if name in ("title", "alt") and value]

    def handle_endtag(self, tag):
        if tag in self.open:
            del self.open[len(self.open) - 1 - self.open[::-1].index(tag) :]

    def handle_data(self, data):
        if not {"td", "code", "pre"} & {*self.open} and data.strip():
            self.found.append(data.strip())


@pytest.fixture(scope="module")
def explorer():
    tracer.language("zh")
    try:
        explorer = Explorer(delay=0.0)
        assert explorer.settle(120)
        explorer.pick_scene("two shapes")
        for name, value in {"max_new_tokens": "4", "temperature": "3", "seed": "2"}.items():
            explorer.type_setting(name, value)
        explorer.type_text("question", "这是什么？")
        explorer.press_run()
        assert explorer.settle(120)
        for name in DRAWN:
            explorer.open_tab(name)
            assert explorer.settle(120)
        yield explorer
    finally:
        tracer.language("en")


def english(texts):
    return [text for text in texts if ENGLISH.search(text) and not CHINESE.search(text)]


@pytest.mark.parametrize("tab", DRAWN)
def test_no_page_of_the_explorer_has_english_words(explorer, tab):
    assert explorer.state.run.answer.ended == "done", explorer.state.log
    assert english(Texts(explorer.panel.named[f"page_{tab}"].value).found) == []


def test_no_widget_of_the_explorer_has_english_words(explorer):
    traits = ("description", "tooltip", "placeholder", "label", "label_off", "label_remove")
    found = [
        getattr(widget, trait)
        for widget in explorer.panel.named.values()
        for trait in traits
        if isinstance(getattr(widget, trait, None), str)
    ]
    for name in ("metrics", "count", "answer_details", "what_if_details", "status"):
        found += Texts(explorer.panel.named[name].value).found
    assert explorer.lab.name == explorer.state.model == "内置模型"
    assert len(found) > 30
    assert english(found) == []


def test_a_page_in_words_would_be_found():
    assert english(Texts("<p>nothing was found</p><td>as it is</td>").found) == [
        "nothing was found"
    ]
