"""Guess, then reveal: what is hidden, what counts as right."""

import json

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser


def test_in_teaching_mode_tokens_are_hidden_until_guessed_or_revealed(small_run):
    hidden = (
        "const hidden = (moves) => { const state = play(moves);"
        "return [10, 16].map((one) => isHidden(run, state, one)); };"
    )
    for moves, expected in [
        ([], [False, False]),
        (["teach"], [True, True]),
        (["teach", "next token", "next token"], [False, True]),  # passed is known
        (["teach", "next token", "reveal"], [False, True]),
        (["teach", "next token", {"kind": "guess", "text": "red"}], [False, True]),
        (["teach", "next token", {"kind": "guess", "text": "blue"}], [True, True]),
        (["teach", "teach"], [False, False]),
    ]:
        assert small_run(f"{hidden} return hidden({moves!r})") == expected, moves
    verdicts = small_run(
        'return [..." red| blue".split("|")].map((text) =>'
        'play(["teach", "next token", {kind: "guess", text}]).guesses.get(10).verdict)'
    )
    assert verdicts == ["right", "wrong"]


@pytest.mark.parametrize(
    ("answer", "alone", "guess", "verdict"),
    [
        (" red", None, "red", "right"),
        (" red", None, "␣red", "right"),  # as the player shows it
        ("\n", None, "↵", "right"),
        ("", "\ufffd", "\ufffd", "right"),  # half a character: nothing is complete with it yet
        (" red", " red", "Red", "wrong"),
        (" ", None, "", "wrong"),
    ],
)
def test_a_guess_is_right_as_it_is_or_as_it_is_shown(small_run, answer, alone, guess, verdict):
    names = f"run.names[run.name[10]] = {json.dumps(answer)};"
    action = {"kind": "guess", "text": guess, "alone": alone}
    found = small_run(
        f"{names} const state = play(['teach', 'next token', {json.dumps(action)}]);"
        "return state.guesses.get(10).verdict;"
    )
    assert found == verdict


def test_the_answer_is_among_the_choices_however_unlikely(small_run):
    found = small_run(
        'const { guessView } = await import(HOST + "/token.js");'
        "const candidates = Array.from({ length: 20 }, (_, rank) =>"
        "  ({ rank, text: `t${rank}`, id: rank, raw: 0, probability: 0, chosen: rank === 19 }));"
        "const words = { ui: (key) => key, run: {} };"
        "const view = guessView({ candidates }, [], undefined, () => {}, words);"
        "return Array.from(view.querySelectorAll('.tp-choices button'), (one) => one.textContent);"
    )
    assert "t19" in found
    assert found == sorted(found)
