"""The state becomes a conversation, settings and a view, each by a pure function."""

import pytest

from tracer.conversation import Message
from tracer.errors import TracerError
from tracer.widgets.pictures import drawn
from tracer.widgets.state import Progress, State, messages, new_tokens, number, settings
from tracer.widgets.view import view

HOSTILE = "<script>alert('x')</script>&amp;"


def state(**fields):
    return State(phase="ready", **fields)


def test_a_conversation_is_system_turns_question_and_pictures():
    from PIL import Image

    image = Image.new("RGB", (4, 4))
    earlier = [Message("user", "Hi"), Message("assistant", "Hello")]
    made = messages(
        state(
            system="Be kind.",
            turns=earlier,
            question="And this?",
            pictures=[drawn("a", [image]), drawn("b", [image, image], is_video=True)],
        )
    )
    assert [one.role for one in made] == ["system", "user", "assistant", "user"]
    assert made[-1].images == (image,)
    assert made[-1].videos == ([image, image],)


@pytest.mark.parametrize("typed", ["", "  \n", "\u3000"])
def test_nothing_to_ask_is_one_sentence(typed):
    with pytest.raises(TracerError, match="no question yet"):
        messages(state(question=typed))


@pytest.mark.parametrize(
    ("typed", "value"),
    [("0.7", 0.7), ("０.７", 0.7), ("０．７", 0.7), (" 2 ", 2.0), ("1e-2", 0.01)],
)
def test_a_number_may_be_typed_in_full_width(typed, value):
    assert number("temperature", typed) == value


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("temperature", "warm", "no number"),
        ("temperature", "0", "greedy"),
        ("temperature", "nan", "greedy"),
        ("top_k", "2.5", "whole number"),
        ("top_p", "1.5", "outside"),
        ("max_new_tokens", "0", "outside"),
        ("seed", "-1", "outside"),
        ("min_p", HOSTILE, "no number"),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(name, typed, said):
    with pytest.raises(TracerError, match=said) as caught:
        settings(state(fields={name: typed}))
    assert name in str(caught.value)


def test_settings_left_empty_are_the_models_own():
    assert settings(state(fields={})).arguments() == {}
    given = settings(
        state(
            fields={"do_sample": "no", "use_cache": "yes", "top_k": "5", "seed": "3"},
            stop_strings="one\n\ntwo\n",
        )
    )
    assert given.arguments() == {
        "do_sample": False, "use_cache": True, "top_k": 5, "stop_strings": ["one", "two"],
    }  # fmt: skip
    assert given.seed == 3


def test_the_count_is_set_against_the_limit_before_anything_runs():
    known = state(prompt_tokens=100, context_limit=250, fields={"max_new_tokens": "50"})
    assert "100 prompt + 50 new = 150 of 250" in view(known)["count"]["value"]
    assert "explorer-over" not in view(known)["count"]["value"]
    known.fields["max_new_tokens"] = "151"
    assert "explorer-over" in view(known)["count"]["value"]
    known.fields["max_new_tokens"] = "many"
    assert new_tokens(known) is None
    assert "100 prompt + ? new" in view(known)["count"]["value"]


def test_the_models_own_limit_counts_where_none_is_typed():
    own = state(prompt_tokens=10, fields={}, defaults={"max_new_tokens": 7})
    assert new_tokens(own) == 7
    assert new_tokens(state(prompt_tokens=10, fields={}, defaults={"max_length": 30})) == 20
    assert new_tokens(state(prompt_tokens=10, fields={})) is None


@pytest.mark.parametrize(
    ("phase", "run", "stop"),
    [("opening", True, True), ("closed", True, True), ("ready", False, True),
     ("running", True, False), ("stopping", True, True)],
)  # fmt: skip
def test_buttons_follow_the_phase(phase, run, stop):
    shown = view(State(phase=phase))
    assert (shown["run"]["disabled"], shown["stop"]["disabled"]) == (run, stop)


def test_a_running_answer_is_told_by_what_was_counted():
    running = State(phase="running")
    running.progress = Progress([{}] * 3, 4, 16, 2.0, 0.5, 2048)
    shown = view(running)
    assert shown["status"]["value"] == "running · 3 tokens"
    for words in ("4 / 16", "2.0 tokens/s", "500 ms", "2.05 kB"):
        assert words in shown["metrics"]["value"]
    assert "width:25.0%" in shown["bar"]["value"]


def test_whatever_a_model_or_a_user_writes_is_escaped():
    hostile = State(phase="opening", doing=HOSTILE, error=HOSTILE, model=HOSTILE, device=HOSTILE)
    hostile.exported = HOSTILE
    shown = [value for traits in view(hostile).values() for value in traits.values()]
    assert not [value for value in shown if isinstance(value, str) and "<script" in value]


def test_drawn_pages_of_the_last_answers_are_kept():
    seen = state(runs=[None] * 30)
    seen.pages = {(run, tab): "page" for run in range(30) for tab in ("tokens", "timing")}
    seen.forget_pages()
    assert {run for run, _ in seen.pages} == set(range(22, 30))


def test_a_view_of_the_same_state_is_the_same():
    assert view(state(question="a")) == view(state(question="a"))
