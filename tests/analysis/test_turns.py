"""What each turn cost, and the curve through it, asked of known numbers."""

import numpy as np
import pandas as pd
import pytest
from synthetic import GENERATED, PROMPT, coherent_rows, make_trace

from tracer.analysis.turns import turn_fit, turns


def conversation(*costs, lengths=None):
    lengths = lengths or [10 * (turn + 1) for turn in range(len(costs))]
    return pd.DataFrame(
        {"prompt_tokens": pd.array(lengths, dtype="Int64")}
        | {"first_token_ns": pd.array([round(cost) for cost in costs], dtype="Int64")}
    )


def test_a_turn_is_a_generate_call():
    (turn,) = turns(make_trace(coherent_rows())).to_dict("records")
    assert turn["turn"] == 1
    assert turn["prompt_tokens"] == turn["fed_tokens"] == PROMPT
    assert turn["cached_tokens"] == 0
    assert turn["new_tokens"] == len(GENERATED)
    assert turn["first_token_ns"] == 30_000_000 - 20_000
    assert turn["later_token_ns"] == 10_000_000 - 20_000
    assert turn["cache_bytes"] == 2 * 64 * (PROMPT + len(GENERATED) - 1)


def test_what_the_cache_had_is_part_of_the_prompt_and_not_fed():
    rows = coherent_rows()
    rows["steps"][0] |= {"input_tokens": 3, "cache_tokens_before": 5}
    rows["inputs"] = []  # the shape of the ids would say it too
    (turn,) = turns(make_trace(rows)).to_dict("records")
    assert (turn["prompt_tokens"], turn["fed_tokens"], turn["cached_tokens"]) == (8, 3, 5)


def handed(shape, tensor="input_ids"):
    return {"event": 20, "call": 20, "rank": 0, "tensor": tensor, "shape": shape}


@pytest.mark.parametrize(
    ("inputs", "length"),
    [
        ([handed("[1, 8]")], 8),
        ([handed("[1, 0]"), handed("[1, 8, 16]", "inputs_embeds")], 8),
        ([handed("[1, 8]"), handed("[1, 14]", "attention_mask")], 8),
    ],
)
def test_a_prompt_is_as_long_as_it_was_handed_over_whatever_a_cache_had(inputs, length):
    rows = coherent_rows()
    call = rows["calls"][-1]
    rows["steps"][0] |= {"input_tokens": 6, "cache_tokens_before": 14}
    call |= {"cache_prefix_tokens": 2, "cache_first_difference": 2}
    rows["inputs"] = [one | {"event": call["seq"], "call": call["seq"]} for one in inputs]
    (turn,) = turns(make_trace(rows)).to_dict("records")
    assert (turn["prompt_tokens"], turn["fed_tokens"], turn["cached_tokens"]) == (length, 6, 14)


def test_a_prompt_of_unknown_length_is_not_made_up_of_another_ones_cache():
    rows = coherent_rows()
    rows["inputs"] = []
    rows["steps"][0] |= {"input_tokens": 6, "cache_tokens_before": 14}
    rows["calls"][-1] |= {"cache_prefix_tokens": 2, "cache_first_difference": 2}
    (turn,) = turns(make_trace(rows)).to_dict("records")
    assert pd.isna(turn["prompt_tokens"])
    assert turn["cached_tokens"] == 14


def test_chunks_of_a_prefill_add_up():
    rows = coherent_rows()
    rows["steps"][0] |= {"kind": "chunk", "input_tokens": 6}
    rows["steps"][1] |= {"kind": "chunk", "input_tokens": 2, "cache_tokens_before": 6}
    assert turns(make_trace(rows))["fed_tokens"].tolist() == [8]


def test_without_a_cache_the_prompt_is_what_was_fed():
    rows = coherent_rows()
    for step in rows["steps"]:
        step |= {"cache_tokens_before": None, "cache_bytes": None}
    (turn,) = turns(make_trace(rows)).to_dict("records")
    assert turn["prompt_tokens"] == PROMPT
    assert pd.isna(turn["cache_bytes"])


def test_a_trace_without_a_generate_has_no_turns():
    full, empty = turns(make_trace(coherent_rows())), turns(make_trace({}))
    assert empty.empty
    assert list(empty.columns) == list(full.columns)


def test_a_curve_gives_back_the_coefficients_that_it_was_made_of():
    n = np.array([10, 20, 30, 40, 50, 60])
    frame = conversation(*(1000 + 20 * n + 3 * n**2))
    (fit,) = turn_fit(frame).to_dict("records")
    assert [fit["a"], fit["b"], fit["c"]] == pytest.approx([1000, 20, 3])
    assert fit["r_squared"] == pytest.approx(1)
    assert fit["quadratic_share"] == pytest.approx(3 * 3600 / (1000 + 1200 + 10800))


def test_a_cost_that_does_not_grow_has_no_variance_to_explain():
    (fit,) = turn_fit(conversation(500, 500, 500, 500)).to_dict("records")
    assert fit["a"] == pytest.approx(500)
    assert np.isnan(fit["r_squared"])
    assert abs(fit["quadratic_share"]) < 1e-9


@pytest.mark.parametrize("lengths", [[10, 20, 30], [10, 10, 20, 20, 30]])
def test_three_lengths_are_too_few_for_three_coefficients(lengths):
    (fit,) = turn_fit(conversation(*range(len(lengths)), lengths=lengths)).to_dict("records")
    assert fit["points"] == len(lengths)
    assert np.isnan([fit["a"], fit["b"], fit["c"], fit["r_squared"]]).all()


def test_conversations_are_fitted_apart():
    again = conversation(10, 40, 90, 160).assign(conversation="again")
    reused = conversation(5, 5, 5, 6).assign(conversation="reused")
    fits = turn_fit(pd.concat([again, reused])).set_index("conversation")
    assert list(fits.index) == ["again", "reused"]
    assert fits.loc["again", "c"] == pytest.approx(0.1)


def test_no_turns_have_no_fit():
    assert turn_fit(turns(make_trace({}))).empty
