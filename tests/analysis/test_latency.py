"""When each token came, asked of a trace whose every time is known."""

import pytest
from synthetic import coherent_rows, event, make_trace

from tracer.analysis.latency import token_times

MS = 1_000_000


@pytest.fixture
def rows():
    return coherent_rows()


def test_the_first_token_is_timed_from_the_calls_start(rows):
    times = token_times(make_trace(rows))
    # The call begins at 200 ms; prefill ends at 230 ms, the decode steps ten later each.
    own = 20_000  # of the recorder, in each step
    ends = [30, 40, 50, 60]
    assert times["at_ns"].tolist() == [end * MS - own * (n + 1) for n, end in enumerate(ends)]
    assert times["gap_ns"].tolist() == [30 * MS - own] + [10 * MS - own] * 3


def test_each_row_names_its_tokens(rows):
    times = token_times(make_trace(rows))
    assert times["kind"].tolist() == ["prefill", "decode", "decode", "decode"]
    assert times["text"].tolist() == [" word5", " word6", " word7", " word8"]
    assert times["tokens"].tolist() == [1, 1, 1, 1]


def test_the_recorders_spans_are_taken_out_once(rows):
    call = rows["calls"][-1]["seq"]
    outer = event(900, call, call, "recorder", "step resolved", 231, 4)
    inner = event(901, 900, call, "recorder", "rows to the journal", 232, 2)
    elsewhere = event(902, call, call, "recorder", "another thread's", 231, 4) | {"thread": "other"}
    plain = token_times(make_trace(rows))["gap_ns"]
    rows["spans"] += [outer, inner, elsewhere]
    gaps = token_times(make_trace(rows))["gap_ns"]
    assert (plain - gaps).tolist() == [0, 4 * MS, 0, 0]


def test_tokens_chosen_in_one_step_share_a_row(rows):
    second = rows["choices"][1] | {"offset": 1, "text": "!"}
    rows["choices"].append(second)
    times = token_times(make_trace(rows))
    assert times["tokens"].tolist() == [1, 2, 1, 1]
    assert times["text"].tolist()[1] == " word6!"


def test_other_rows_of_the_batch_add_no_tokens(rows):
    rows["choices"] += [choice | {"row": 1} for choice in rows["choices"]]
    assert token_times(make_trace(rows))["tokens"].tolist() == [1, 1, 1, 1]


def test_a_step_that_never_ended_has_no_time(rows):
    rows["steps"][-1]["duration_ns"] = None
    assert token_times(make_trace(rows))["step"].tolist() == [0, 1, 2]


def test_steps_are_timed_where_choices_are_not_followed(rows):
    full = token_times(make_trace(rows))
    rows["choices"] = []
    times = token_times(make_trace(rows))
    assert times["gap_ns"].tolist() == full["gap_ns"].tolist()
    assert times["tokens"].isna().all()


def test_chunks_of_a_prefill_are_part_of_the_wait_for_the_first_token(rows):
    rows["steps"][0]["kind"] = "chunk"
    rows["choices"].pop(0)
    times = token_times(make_trace(rows))
    assert times["step"].tolist() == [1, 2, 3]
    assert times["at_ns"].iloc[0] == 40 * MS - 2 * 20_000


def test_no_text_is_guessed(rows):
    for choice in rows["choices"]:
        choice["text"] = None
    assert token_times(make_trace(rows))["text"].isna().all()


@pytest.mark.parametrize("call", [None, 0, 77])
def test_without_a_generate_the_frame_is_empty(rows, call):
    full = token_times(make_trace(rows))
    empty = token_times(make_trace({} if call is None else rows), call)
    assert empty.empty
    assert list(empty.columns) == list(full.columns)
