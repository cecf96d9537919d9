"""The order of the walk: parents as numbers -> preorder, depth and extent, without a loop a row.

Works level by level on whole arrays: a trace of a million rows has some twenty levels.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

DEEPEST: Final = 1_000
"""Levels that are followed; what lies deeper (no run does) hangs below nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Walk:
    """Nodes in preorder.

    Attributes:
        order: The node at each place of the walk.
        parent: Place of each place's parent; -1 for none.
        depth: Levels above each place.
        last: Place of the last node inside each place; a leaf's own.
        levels: Places of each level, from the roots down.
    """

    order: Numbers
    parent: Numbers
    depth: Numbers
    last: Numbers
    levels: list[Numbers]


def walk(parent: Numbers) -> Walk:
    """Nodes in preorder, siblings in the order of their numbers.

    Args:
        parent: The parent of each node, -1 for none. A node that no root leads to (a stranger's
            trace may hold a circle) becomes a root itself.
    """
    count = len(parent)
    levels, parent = _levels(np.where((parent < 0) | (parent >= count), -1, parent))
    size = np.ones(count, np.int64)
    for level in reversed(levels[1:]):
        np.add.at(size, parent[level], size[level])
    place = np.zeros(count, np.int64)
    depth = np.zeros(count, np.int64)
    for number, level in enumerate(levels):
        before = np.cumsum(size[level]) - size[level]
        depth[level] = number
        if number:
            # A level holds siblings side by side: what the first one has before it is not its own.
            above = parent[level]
            is_first = np.concatenate([[True], above[1:] != above[:-1]])
            first = np.maximum.accumulate(np.where(is_first, np.arange(len(level)), 0))
            before = place[above] + 1 + before - before[first]
        place[level] = before
    order = np.empty(count, np.int64)
    order[place] = np.arange(count)
    parents = parent[order]
    return Walk(
        order=order,
        parent=np.where(parents < 0, -1, place[parents]) if count else parents,
        depth=depth[order],
        last=np.arange(count) + size[order] - 1,
        levels=[place[level] for level in levels],
    )


def _levels(parent: Numbers) -> tuple[list[Numbers], Numbers]:
    """Nodes by level, siblings side by side; and the parents, without those that lead nowhere."""
    count = len(parent)
    by_parent = np.argsort(parent, kind="stable")
    starts = np.searchsorted(parent[by_parent], np.arange(-1, count + 1))
    levels: list[Numbers] = []
    reached = np.zeros(count, bool)
    level = by_parent[: starts[1]]
    while len(level) and len(levels) < DEEPEST:
        levels.append(level)
        reached[level] = True
        first, many = starts[level + 1], starts[level + 2] - starts[level + 1]
        ends = np.cumsum(many)
        inner = np.arange(ends[-1]) + np.repeat(first - ends + many, many)
        level = by_parent[inner]
    if reached.all():
        return levels, parent
    return _levels(np.where(reached, parent, -1))
