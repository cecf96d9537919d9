"""Long series folded to what a chart has room for: each bin its lowest, middle and highest value.

Never a black bar, and no peak gets lost: a band from lowest to highest shows it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

MOST_POINTS: Final = 400
"""More than that, on nine inches, and one stroke touches the next."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bins:
    """A series of points, or of bins of `width` neighbours each.

    Attributes:
        places: Where each bin stands: the mean place of its points.
        low: The lowest value of each bin; middle: the median; high: the highest.
        width: Points in a bin; 1 where nothing was folded.
    """

    places: Any
    low: Any
    middle: Any
    high: Any
    width: int


def folded(places: Any, values: Any, most: int = MOST_POINTS) -> Bins:
    """Fold a series to at most so many bins; missing values (NaN) are skipped where others are."""
    places, values = np.asarray(places, dtype=float), np.asarray(values, dtype=float)
    width = max(1, -(-len(values) // most))
    if width == 1:
        return Bins(places, values, values, values, 1)
    room = -(-len(values) // width) * width - len(values)
    # NaN fills the last bin up; an index keeps it from being all NaN.
    square = np.pad(values, (0, room), constant_values=np.nan).reshape(-1, width)
    where = np.pad(places, (0, room), constant_values=np.nan).reshape(-1, width)
    known = ~np.isnan(square).all(axis=1)
    square, where = square[known], where[known]
    return Bins(
        np.nanmean(where, axis=1),
        np.nanmin(square, axis=1),
        np.nanmedian(square, axis=1),
        np.nanmax(square, axis=1),
        width,
    )
