"""No label of a chart becomes a box, and no character vanishes."""

import pytest

from tracer.views import fonts


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
