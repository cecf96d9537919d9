"""A rendered prompt cut into the template's and each message's own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.instrument.asking.prompts import split


def _rendered(messages):
    return "".join(f"<{one['role']}>{one['content'].strip()}</>" for one in messages)


def _spoken(segments, text):
    return [
        (one.role, one.message, text[one.start : one.end])
        for one in segments
        if one.origin != "template"
    ]


_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "user", "assistant", "tool"]),
            "content": st.text(max_size=12),
        }
    ),
    max_size=5,
)


@given(messages=_MESSAGES)
def test_segments_cover_any_text_without_gap_or_overlap(messages):
    text = _rendered(messages)
    segments = split(text, messages)
    assert "".join(text[one.start : one.end] for one in segments) == text
    ends = [0, *(one.end for one in segments)]
    assert [one.start for one in segments] == ends[:-1]
    assert all(one.start < one.end for one in segments)


CASES = {
    "two": [("system", "Be kind."), ("user", "Hello")],
    "same words": [("user", "red"), ("assistant", "red"), ("user", "red")],
    "words of the template": [("user", "first words"), ("assistant", "user")],
    "spaces": [("user", "  padded  ")],
    "Chinese": [("user", "你好, 世界"), ("assistant", "\U0001f600")],
}


@pytest.mark.parametrize("spoken", CASES.values(), ids=CASES)
def test_each_message_is_credited_with_its_own_words(spoken):
    messages = [{"role": role, "content": words} for role, words in spoken]
    text = "".join(f"[{number}] {words.strip()}\n" for number, (_, words) in enumerate(spoken))
    expected = [(role, n, words.strip()) for n, (role, words) in enumerate(spoken)]
    assert _spoken(split(text, messages), text) == expected


@pytest.mark.parametrize("content", ["", None, [], [{"type": "image"}], [{"type": "text"}], 3])
def test_a_message_without_words_leaves_the_text_to_the_template(content):
    segments = split("<user></>", [{"role": "user", "content": content}])
    assert [(one.origin, one.start, one.end) for one in segments] == [("template", 0, 9)]


def test_words_that_the_template_changed_are_the_templates():
    text = "<user>HELLO</>"
    (segment,) = split(text, [{"role": "user", "content": "hello"}])
    assert (segment.origin, segment.message) == ("template", None)


def test_parts_of_a_message_are_found_one_by_one():
    parts = [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]
    text = "one<img>two"
    segments = split(text, [{"role": "user", "content": parts}])
    assert _spoken(segments, text) == [("user", 0, "one"), ("user", 0, "two")]


def test_an_unknown_role_is_no_known_origin():
    (segment,) = split("hi", [{"role": "critic", "content": "hi"}])
    assert (segment.origin, segment.role) == ("unknown", "critic")


def test_words_that_the_template_says_too_are_found_at_their_own_place():
    text = "<user>user</>"
    segments = split(text, [{"role": "user", "content": "user"}])
    assert [(one.start, one.origin) for one in segments if one.message == 0] == [(6, "user")]
