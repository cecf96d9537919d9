"""No label of a chart becomes a box, and no character vanishes."""

import pandas as pd
import pytest

from tracer.explain import language
from tracer.views import fonts
from tracer.views.charts import prompt_strip, stage_times


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("red", "red"),
        (" red", "␣red"),
        ("red  ", "red␣␣"),
        ("   ", "␣␣␣"),
        ("two words", "two words"),
        ("\n", "\\n"),
        ("a\tb", "a\\tb"),
        ("\x18", "\\u0018"),
        ("\ud83d", "\\ud83d"),
        ("\u2028", "\\u2028"),
        ("$x^2$", "$x^2$"),
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_written_out(text, shown):
    assert fonts.drawable(text) == shown


def test_a_character_that_no_font_holds_becomes_its_escape():
    assert fonts.drawable("\U000e0041") == "\\U000e0041"


def test_chinese_is_drawn_where_a_font_holds_it_and_escaped_elsewhere():
    has_chinese = len(fonts.families()) > 1
    assert fonts.drawable("红色") == ("红色" if has_chinese else "\\u7ea2\\u8272")


def test_the_font_that_matplotlib_brings_is_asked_first():
    assert fonts.families()[0] == "DejaVu Sans"


@pytest.fixture
def only_latin(monkeypatch):
    """A machine without a Chinese font: what matplotlib brings is all that it finds."""
    manager = fonts.font_manager.fontManager
    known = [entry for entry in manager.ttflist if entry.name == "DejaVu Sans"]
    monkeypatch.setattr(manager, "ttflist", known)
    monkeypatch.setattr(fonts.font_manager, "findSystemFonts", lambda: [])
    caches = [fonts.families, fonts._paths, fonts._fonts, fonts._has_glyph, fonts.text_inches]
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_a_missing_font_is_named_once_below_the_chart(only_latin):
    words = pd.DataFrame({"row": 0, "index": [0, 1], "token_id": [5, 6], "text": ["红色", "한국"]})
    words = words.assign(kind="text", origin="user", image=None, attended=True)
    chart = prompt_strip(words)
    chart.png()
    shown = [text.get_text() for text in chart.axes[1].texts]
    assert shown == ["\\u7ea2\\u8272", "\\ud55c\\uad6d"]
    assert "install Noto Sans CJK" in chart.get_supxlabel()


def test_where_no_font_has_chinese_a_chart_speaks_english_and_says_why_once(only_latin):
    language("zh")
    try:
        chart = stage_times(pd.DataFrame({"stage": ["decode"], "events": [2], "total_ns": [10]}))
    finally:
        language("en")
    assert chart.alt_text.startswith("Time of each stage: decode took longest")
    assert "charts speak English: install Noto Sans CJK" in chart.get_supxlabel()
    chart.png()  # a box would be a warning, and warnings are errors


@pytest.mark.parametrize("text", ["red", "\n", "\U000e0041", "é"])
def test_no_hint_is_given_for_what_a_font_would_not_mend(only_latin, text):
    assert not fonts.lacks_font(text)


def test_a_wide_text_is_wider_than_a_narrow_one():
    assert fonts.text_inches("wide words", 9) > fonts.text_inches("ill", 9) > 0
    assert fonts.text_inches("word", 18) == pytest.approx(2 * fonts.text_inches("word", 9), rel=0.1)


def test_hebrew_and_arabic_are_kept_from_turning_their_line():
    assert fonts.drawable("שלום") == "\u200eשלום\u200e"
