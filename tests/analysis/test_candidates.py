"""What the processors made of the likeliest tokens, asked of known probabilities."""

import pytest
from synthetic import coherent_rows, make_trace

from tracer.analysis.candidates import before_and_after


@pytest.fixture
def rows():
    return coherent_rows()


def moved(rows, step, before, after):
    for candidate in rows["candidates"]:
        if candidate["step"] == step and candidate["token_rank"] == 0:
            candidate |= {"raw_probability": before, "probability": after}


def test_the_step_that_the_processors_moved_most_is_taken(rows):
    moved(rows, 1, 0.5, 0.6)
    moved(rows, 2, 0.2, 0.7)
    frame = before_and_after(make_trace(rows))
    assert set(frame["step"]) == {2}
    assert frame["probability"].iloc[0] == 0.7


def test_where_nothing_moved_the_least_sure_step_is_taken(rows):
    moved(rows, 3, 0.31, 0.31)
    assert set(before_and_after(make_trace(rows))["step"]) == {3}


def test_what_the_shown_ones_leave_over_is_the_last_row(rows):
    frame = before_and_after(make_trace(rows), step=0)
    rest = frame.iloc[-1]
    assert rest[["token_rank", "token_id", "text"]].isna().all()
    assert rest["probability"] == pytest.approx(1 - 0.6065 - 0.2065)
    assert frame["probability"].sum() == pytest.approx(1)


def test_the_chosen_one_is_marked(rows):
    assert before_and_after(make_trace(rows), step=1)["is_chosen"].tolist() == [True, False, False]


def test_a_choice_outside_the_top_marks_none(rows):
    rows["choices"][1]["token_id"] = 9
    assert not before_and_after(make_trace(rows), step=1)["is_chosen"].any()


def test_rounding_makes_no_negative_rest(rows):
    moved(rows, 0, 0.8, 0.7935 + 1e-9)
    assert before_and_after(make_trace(rows), step=0)["raw_probability"].min() >= 0


@pytest.mark.parametrize("where", [{"step": 99}, {"row": 7}, {"call": 0}])
def test_what_is_not_there_gives_an_empty_frame(rows, where):
    full = before_and_after(make_trace(rows))
    empty = before_and_after(make_trace(rows), **where)
    assert empty.empty
    assert list(empty.columns) == list(full.columns)
    assert before_and_after(make_trace({})).empty
