"""Runs of siblings of one name, or that differ by a number only (layers.0 to layers.27): folds.

Whole arrays at once; only distinct names, of which a trace has few, are looked at one by one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tracer.replaying.tree import Numbers, Walk

Flags = npt.NDArray[np.bool_]

FEWEST: Final = 3
"""Siblings that make a fold."""
_NUMBER: Final = re.compile(r"(?<![^. ])\d+(?![^. ])")


@dataclasses.dataclass(frozen=True, slots=True)
class Folds:
    """Folds of a walk.

    Attributes:
        fold: The fold of each place, -1 for none.
        first: First place of each fold.
        last: The last place inside the last sibling of each.
        count: Siblings of each.
        name: Index of each one's name in `names`.
        names: Names with a star in place of the number, distinct.
    """

    fold: Numbers
    first: Numbers
    last: Numbers
    count: Numbers
    name: Numbers
    names: list[str]


def starred(name: str) -> str:
    """`model.layers.*` of `model.layers.3.mlp.weight`: up to the first number, which is a part."""
    found = _NUMBER.search(name)
    return name if found is None else f"{name[: found.start()]}*"


def folds(
    walk: Walk, kind: Numbers, name: Numbers, names: Sequence[str], *, skipped: Flags
) -> Folds:
    """Find the folds.

    Args:
        walk: The places in order.
        kind: The kind of each place; siblings of one fold are of one kind.
        name: Index of each place's name in `names`; -1 for what never folds.
        names: Distinct names.
        skipped: Places that a fold passes over: the recorder's own work stands between every two
            steps, and they are a run of steps all the same.
    """
    stars, star_of = _distinct([starred(one) for one in names])
    star = np.append(star_of, -1)[name]
    # Siblings side by side, in the order of the walk.
    siblings = np.argsort(walk.parent, kind="stable")
    siblings = siblings[~skipped[siblings]]
    alike = np.stack([walk.parent[siblings], kind[siblings], star[siblings]])
    begins = np.ones(len(siblings), bool)
    begins[1:] = (alike[:, 1:] != alike[:, :-1]).any(axis=0)
    starts = np.flatnonzero(begins)
    many = np.diff(np.append(starts, len(siblings)))
    kept = (many >= FEWEST) & (star[siblings[starts]] >= 0)
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    fold = np.full(len(walk.parent), -1)
    fold[siblings] = np.repeat(number, many)
    starts, many = starts[kept], many[kept]
    return Folds(
        fold=fold,
        first=siblings[starts],
        last=walk.last[siblings[starts + many - 1]],
        count=many,
        name=star[siblings[starts]],
        names=stars,
    )


def _distinct(texts: Sequence[str]) -> tuple[list[str], Numbers]:
    found: dict[str, int] = {}
    places = [found.setdefault(one, len(found)) for one in texts]
    return list(found), np.array(places, np.int64)
