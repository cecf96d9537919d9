"""A distribution in numbers, held against torch's own functions in float64."""

import math

import pytest
import torch

from tracer.instrument.answering.spreads import Spread

ROWS, SIZE = 3, 500


def _cut(scores, kept):
    low = scores.topk(kept).values[:, -1:]
    return scores.masked_fill(scores < low, -math.inf)


SCORES = {
    "uncut": lambda scores: scores,
    "cut to many": lambda scores: _cut(scores, 200),
    "cut to few": lambda scores: _cut(scores, 20),
    "cut to one": lambda scores: _cut(scores, 1),
    "far apart": lambda scores: scores * 100,
    "all alike": lambda scores: torch.zeros_like(scores),
    "of half precision": lambda scores: scores.bfloat16(),
    "a small vocabulary": lambda scores: scores[:, :40],
}


@pytest.fixture
def scores():
    return torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("make", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("form", [Spread.over_all, Spread.of_the_best, Spread.of])
def test_numbers_are_those_of_torch(scores, make, form):
    made = make(scores)
    exact = made.double()
    spread = form(made)
    probabilities = exact.softmax(-1)
    assert spread.log_total == pytest.approx(exact.logsumexp(-1).tolist(), rel=1e-6, abs=1e-5)
    entropy = torch.special.entr(probabilities).sum(-1)
    assert spread.entropy == pytest.approx(entropy.tolist(), rel=1e-5, abs=1e-5)
    assert spread.removed() == torch.isneginf(exact).sum(-1).tolist()
    ids = [[0, 7], [3, 39], [int(row) for row in exact[2].topk(2).indices]]
    told = spread.at(ids)
    assert told == exact.gather(-1, torch.tensor(ids)).tolist()
    assert spread.rank(told) == _ranks(exact, told)
    best, best_ids = spread.best(10)
    assert best == exact.topk(10).values.tolist()
    # What the best ones tell, and what they don't, is as before they were looked up.
    assert spread.at(best_ids) == best
    assert spread.rank(best) == _ranks(exact, best)
    assert spread.at(ids) == told
    assert spread.rank(told) == _ranks(exact, told)


def _ranks(exact, own):
    above = exact.unsqueeze(1) > torch.tensor(own, dtype=torch.float64).unsqueeze(-1)
    return above.sum(-1).tolist()


def test_nothing_left_and_what_is_no_number_stay_what_they_are(scores):
    nothing, broken = torch.full((2, SIZE), -math.inf), scores.clone()
    broken[0, 5] = math.nan
    for made in (nothing, broken):
        spread = Spread.of_the_best(made)
        assert math.isnan(spread.log_total[0])
        assert math.isnan(spread.entropy[0])
    assert Spread.of_the_best(nothing).removed() == [SIZE, SIZE]
    assert not math.isnan(Spread.of_the_best(broken).log_total[1])


def test_ids_that_are_cut_count_beside_what_is_no_number(scores):
    cut = _cut(scores, 100)
    cut[0, :3] = math.nan
    for form in (Spread.over_all, Spread.of_the_best, Spread.of):
        assert form(cut).removed() == torch.isneginf(cut).sum(-1).tolist()
