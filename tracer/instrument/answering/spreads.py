"""A distribution over the vocabulary in numbers: total, entropy, best ids, ranks, removed ids.

torch looks at whole vocabularies, in float32 and over all rows at once; what is few by then is told
in plain numbers, since each of torch's functions costs more than sixty numbers do. Entropies are in
nats. Knows no run and writes no row.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any, Final

_FEW: Final = 64
"""A truncated distribution (top-k, top-p) mostly has fewer ids than this, and then needs no look
at the whole vocabulary."""
_NEGLIGIBLE: Final = -80.0
"""Logit below the best one whose probability, e^-80, adds nothing in float32. Smaller ones would be
denormal numbers, which a processor handles many times slower."""


_NOTHING: Final = 1.9e-35  # just above e^-80
_LOWEST: Final = -3.4028234663852886e38  # smallest float32

Ids = Sequence[Sequence[int]]
"""Ids that are asked about: as many of each row."""
Numbers = list[list[float]]


@dataclasses.dataclass(slots=True)
class Spread:
    """A distribution over the vocabulary, for each row.

    Attributes:
        scores: In float32, (rows, vocabulary).
        log_total: Logarithm of the sum of exponentials, a row.
        entropy: A row.
        best_scores: Of the best ids, best first, a row; None until they are looked up.
        best_ids: The same of the ids themselves.
        is_few: The best ones are all that is not cut.
        is_uncut: Known to have no score of -inf.
    """

    scores: Any
    log_total: list[float]
    entropy: list[float]
    best_scores: Numbers | None = None
    best_ids: list[list[int]] | None = None
    is_few: bool = False
    is_uncut: bool = False

    @classmethod
    def over_all(cls, scores: Any) -> Spread:
        """Of scores that no processor has cut: every id counts."""
        scores = scores.float()
        return cls(scores, *_total_and_entropy(scores))

    @classmethod
    def of_the_best(cls, scores: Any) -> Spread:
        """Of scores that may be cut to a few: the best are looked up first."""
        scores = scores.float()
        size = scores.shape[-1]
        top = scores.topk(min(_FEW, size))
        best, ids = top.values.tolist(), top.indices.tolist()
        is_few = size <= _FEW or all(row[-1] == -math.inf for row in best)
        totals, entropies = _of_few(best) if is_few else _total_and_entropy(scores)
        return cls(scores, totals, entropies, best, ids, is_few)

    @classmethod
    def of(cls, scores: Any) -> Spread:
        """Of scores about which nothing is known."""
        if not math.isfinite(scores.amin().item()):  # with NaN among them it tells nothing
            return cls.of_the_best(scores)
        spread = cls.over_all(scores)
        spread.is_uncut = True
        return spread

    def removed(self) -> list[int]:
        """How many ids have a score of -inf, a row."""
        torch = sys.modules["torch"]
        size = self.scores.shape[-1]
        if self.is_few and self.best_scores is not None:
            return [size - len(row) + row.count(-math.inf) for row in self.best_scores]
        if self.is_uncut or math.isfinite(self.scores.amin().item()):
            return [0] * len(self.scores)
        return [int(count) for count in torch.isneginf(self.scores).sum(-1).tolist()]

    def at(self, ids: Ids) -> Numbers:
        """Scores of ids, as many of each row; torch is asked where the best ones don't tell."""
        known = self._of_the_known(ids)
        if known is not None:
            return known
        places = sys.modules["torch"].tensor(ids, device=self.scores.device)
        told: Numbers = self.scores.gather(-1, places).tolist()
        return told

    def _of_the_known(self, ids: Ids) -> Numbers | None:
        """Scores of ids among the best ones; what is not among them is cut, or unknown: None."""
        if self.best_scores is None or self.best_ids is None:
            return None
        pairs = zip(self.best_ids, self.best_scores, strict=True)
        known = [dict(zip(*pair, strict=True)) for pair in pairs]
        rows = zip(known, ids, strict=True)
        if not self.is_few and not all(one in row for row, asked in rows for one in asked):
            return None
        rows = zip(known, ids, strict=True)
        return [[row.get(one, -math.inf) for one in asked] for row, asked in rows]

    def best(self, count: int) -> tuple[Numbers, list[list[int]]]:
        """Scores and ids of the best ones, best first; fewer where the vocabulary is smaller."""
        count = min(count, self.scores.shape[-1])
        if self.best_scores is None or self.best_ids is None or len(self.best_ids[0]) < count:
            top = self.scores.topk(count)
            self.best_scores, self.best_ids = top.values.tolist(), top.indices.tolist()
        return [row[:count] for row in self.best_scores], [row[:count] for row in self.best_ids]

    def rank(self, own: Numbers) -> list[list[int]]:
        """How many ids score higher than given scores, as many of each row."""
        if self.best_scores is not None and self._ranks_among_the_best(own):
            return [
                [len([score for score in row if score > one]) for one in several]
                for row, several in zip(self.best_scores, own, strict=True)
            ]
        # A removed id is below all others, yet must not meet -inf: their difference is no number.
        mine = sys.modules["torch"].tensor(own, device=self.scores.device).clamp_(min=_LOWEST)
        above = self.scores.unsqueeze(1) - mine.unsqueeze(-1)
        # In place on floats, and no mask: several times faster than comparing and counting.
        counts = above.sign_().clamp_(min=0).sum(-1).tolist()
        return [[int(count) for count in row] for row in counts]

    def _ranks_among_the_best(self, own: Numbers) -> bool:
        """Whether all that scores higher is among the best ones, which have been looked up."""
        rows = zip(self.best_scores or (), own, strict=True)
        return self.is_few or all(one >= row[-1] for row, several in rows for one in several)


def _of_few(rows: Numbers) -> tuple[list[float], list[float]]:
    """Logarithm of the sum of exponentials, and entropy, of each row's scores, best first."""
    totals, entropies = [], []
    for scores in rows:
        best = scores[0]
        below = [one - best for one in scores if one != -math.inf] or [math.nan]  # nothing is left
        weights = [math.exp(one) for one in below]
        total = sum(weights)
        log_total = math.log(total)
        expected = sum(weight * one for weight, one in zip(weights, below, strict=True)) / total
        totals.append(best + log_total)
        entropies.append(log_total - expected)
    return totals, entropies


def _total_and_entropy(scores: Any) -> tuple[list[float], list[float]]:
    """Logarithm of the sum of exponentials, and entropy, of each row."""
    torch = sys.modules["torch"]
    best = scores.amax(-1, keepdim=True)
    below = (scores - best).clamp_(min=_NEGLIGIBLE)
    # What was clamped, removed ids among it, has no part at all: one id left alone has entropy 0.
    weight = torch.threshold_(below.exp(), _NOTHING, 0.0)
    total = weight.sum(-1, keepdim=True)
    log_total = total.log()
    expected = weight.mul_(below).sum(-1, keepdim=True).div_(total)
    totals, entropies = torch.cat((best + log_total, log_total - expected), -1).T.tolist()
    return totals, entropies
