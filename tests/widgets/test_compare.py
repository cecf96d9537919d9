"""Two answers side by side: the first difference is found and marked, whatever their lengths."""

import pytest

from tracer.conversation import Message, Settings
from tracer.lab import Answer
from tracer.widgets.compare import MOST_ROWS, compared, first_difference
from tracer.widgets.runs import Mark, Run


def run(words, number=1):
    answer = Answer(number, (Message("user", "Hi"),), Settings())
    answer.ids = [ord(word[0]) for word in words]
    return Run(answer, [], [Mark(word, 0.5) for word in words])


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([], [], None),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2], [3, 2], 0),
        ([], [1], 0),
    ],
)
def test_the_first_difference(left, right, place):
    assert first_difference(left, right) == place
    assert first_difference(right, left) == place


def test_the_first_difference_is_marked_and_what_follows_is_faint():
    table = compared(run(["a", "b", "c"]), run(["a", "x", "c", "d"], 2))
    assert table.count('class="explorer-first"') == 1
    assert table.count('class="explorer-after"') == 2
    assert "at token 1" in table


def test_tokens_are_escaped_and_line_feeds_written_out():
    table = compared(run(["<b>", "\n"]), run(["<b>", "\u202e"]))
    assert "<b>" not in table
    assert "\\n" in table
    assert "\\u202e" in table


def test_long_answers_are_cut_and_say_so():
    words = ["a"] * (MOST_ROWS + 5)
    assert "and 5 more tokens" in compared(run(words), run(words))
