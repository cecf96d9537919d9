"""Which scores a choice of an unknown loop came from, and whether they are the model's own.

Knows no run and writes no row.
"""

from __future__ import annotations

from typing import Any, Final

from tracer.instrument.answering.choice_tree import Ids
from tracer.instrument.answering.scores import Scores

_NEAR: Final = 1e-4  # logarithms of probabilities are the logits less a number, but for rounding


def source(
    every: list[tuple[list[Ids], Scores]], history: Ids, parent: int
) -> tuple[Scores, int] | None:
    """The scores that were made for these ids, and their row: the parent's own, if it has them."""
    for given, scores in every:
        if parent < len(given) and given[parent] == history:
            return scores, parent
        if history in given:
            return scores, given.index(history)
    return None


def own_logits(scores: Scores, places: list[int]) -> tuple[Any, bool]:
    """The model's own logits behind rows of scores, and whether the scores are these.

    None where nothing shows which they are.
    """
    if scores.logits is None:
        return None, False
    raw, flat = scores.raw[places].float(), scores.logits.flatten(0, 1)
    rows = []
    for one in raw:
        apart = one - flat.float()
        is_same = (apart.amax(-1) - apart.amin(-1)) <= _NEAR * one.abs().amax().clamp(min=1)
        rows += is_same.nonzero()[:1].flatten().tolist()
    if len(rows) == len(places):
        return flat[rows], True
    # Made of several layers' logits, as DoLa does: each row of those of the same row.
    is_row_by_row = len(scores.raw) == len(scores.logits)
    return (scores.logits[places, -1] if is_row_by_row else None), False
