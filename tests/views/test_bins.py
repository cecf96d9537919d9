"""Long series are folded without losing a peak."""

import numpy as np
import pytest

from tracer.views.bins import MOST_POINTS, folded


@pytest.mark.parametrize("count", [0, 1, MOST_POINTS])
def test_a_short_series_stays_as_it_is(count):
    bins = folded(range(count), np.arange(count))
    assert bins.width == 1
    assert bins.middle.tolist() == bins.places.tolist() == list(range(count))


def test_a_long_series_keeps_its_extremes():
    values = np.ones(2000)
    values[[777, 1234]] = [99, -5]
    bins = folded(range(2000), values)
    assert bins.width == 5
    assert len(bins.places) == 400
    assert (bins.high.max(), bins.low.min(), bins.middle.max()) == (99, -5, 1)


@pytest.mark.parametrize("count", [401, 799, 801, 1999])
def test_the_last_bin_may_be_shorter(count):
    bins = folded(range(count), range(count))
    assert len(bins.places) <= MOST_POINTS
    assert (bins.low[0], bins.high[-1]) == (0, count - 1)


def test_bins_of_missing_values_are_left_out():
    values = np.arange(1000.0)
    values[0:6] = np.nan
    bins = folded(range(1000), values)
    assert bins.width == 3
    assert bins.low[0] == 6
    assert not np.isnan(bins.middle).any()
