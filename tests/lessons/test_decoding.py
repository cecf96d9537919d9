"""What-if over a recorded answer: what ran gives what happened, what is changed shows."""

from pathlib import Path

import pytest

from tracer.analysis.replay import chain_of
from tracer.lessons.decoding import changed_chain, what_if
from tracer.trace import open_trace

TRACES = Path(__file__).resolve().parents[2] / "notebooks/traces/05_decode"


@pytest.fixture(scope="module")
def sampled():
    return open_trace(TRACES / "sampled.zip")


def names(chain):
    return [link.class_name for link in chain]


def test_a_chain_without_changes_is_the_one_that_ran(sampled):
    assert changed_chain(sampled) == chain_of(sampled)


def test_a_processor_is_set_anew_taken_out_or_added(sampled):
    chain = changed_chain(
        sampled,
        TemperatureLogitsWarper={"temperature": 1.0},
        TopKLogitsWarper=None,
        MinPLogitsWarper={"min_p": 0.1},
    )
    assert names(chain)[-2:] == ["TopPLogitsWarper", "MinPLogitsWarper"]
    assert "TopKLogitsWarper" not in names(chain)
    assert chain[1].parameters["temperature"] == 1.0


def test_what_ran_gives_the_probabilities_that_were_recorded(sampled):
    (row,) = what_if(sampled, {"as it ran": changed_chain(sampled)}).itertuples()
    recorded = sampled["choices"]["probability"].astype(float)
    assert (row.steps, row.basis) == (len(recorded), "measured")
    assert row.probability == pytest.approx(recorded.mean(), abs=1e-5)
    assert row.least_probability == pytest.approx(recorded.min(), abs=1e-5)


def test_a_higher_temperature_keeps_the_order_and_flattens(sampled):
    chains = {
        str(value): changed_chain(sampled, TemperatureLogitsWarper={"temperature": value})
        for value in (1.0, 5.0)
    }
    low, high = what_if(sampled, chains).itertuples()
    assert low.same_best == high.same_best
    assert low.probability > high.probability


def test_nothing_asked_is_an_empty_frame(sampled):
    assert what_if(sampled, {}).empty
