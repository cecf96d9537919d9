"""A distribution over the vocabulary in numbers: total, entropy, best ids, ranks, removed ids.

All in float32 and over all rows at once; entropies are in nats. Knows no run and writes no row.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Final

_FEW: Final = 64
"""A truncated distribution (top-k, top-p) mostly has fewer ids than this, and then needs no look
at the whole vocabulary."""
_NEGLIGIBLE: Final = -80.0
"""Logit below the best one whose probability, e^-80, adds nothing in float32. Smaller ones would be
denormal numbers, which a processor handles many times slower."""


_NOTHING: Final = 1.9e-35  # just above e^-80
_LOWEST: Final = -3.4028234663852886e38  # smallest float32


@dataclasses.dataclass(slots=True)
class Spread:
    """A distribution over the vocabulary, for each row."""

    scores: Any  # (rows, vocabulary)
    support: Any  # all scores, or the few that are not -inf: (rows, n)
    log_total: Any  # (rows, 1)
    entropy: Any  # (rows,)
    top: Any = None  # values and indices of the best ids, best first, where they were looked up
    is_uncut: bool = False  # known to have no score of -inf

    @classmethod
    def over_all(cls, scores: Any) -> Spread:
        """Of scores that no processor has cut: every id counts."""
        scores = scores.float()
        return cls(scores, scores, *_total_and_entropy(scores))

    @classmethod
    def of_the_best(cls, scores: Any) -> Spread:
        """Of scores that may be cut to a few: the best are looked up first."""
        torch = sys.modules["torch"]
        scores = scores.float()
        size = scores.shape[-1]
        top = scores.topk(min(_FEW, size))
        is_whole = size <= _FEW or bool(torch.isneginf(top.values[:, -1]).all())
        support = top.values if is_whole else scores
        return cls(scores, support, *_total_and_entropy(support), top)

    @classmethod
    def of(cls, scores: Any) -> Spread:
        """Of scores about which nothing is known."""
        torch = sys.modules["torch"]
        if torch.isneginf(scores.amin()):
            return cls.of_the_best(scores)
        spread = cls.over_all(scores)
        spread.is_uncut = True
        return spread

    def removed(self) -> list[int]:
        """How many ids have a score of -inf, a row."""
        torch = sys.modules["torch"]
        if self.is_uncut or (
            self.support is self.scores and not torch.isneginf(self.scores.amin())
        ):
            return [0] * len(self.scores)
        kept = (~torch.isneginf(self.support)).sum(-1)
        return [int(count) for count in (self.scores.shape[-1] - kept).tolist()]

    def at(self, ids: Any) -> Any:
        """Scores of ids, shape (rows, n)."""
        return self.scores.gather(-1, ids)

    def best(self, count: int) -> tuple[Any, Any]:
        """Values and indices of the best ids, shape (rows, count)."""
        if self.top is None or self.top.values.shape[-1] < count:
            self.top = self.scores.topk(count)
        return self.top.values[:, :count], self.top.indices[:, :count]

    def rank(self, own: Any) -> Any:
        """How many ids score higher than given scores of shape (rows, n); the same shape."""
        # A removed id is below all others, yet must not meet -inf: their difference is no number.
        above = self.support.unsqueeze(1) - own.clamp(min=_LOWEST).unsqueeze(-1)
        # In place on floats, and no mask: several times faster than comparing and counting.
        return above.sign_().clamp_(min=0).sum(-1).long()


def _total_and_entropy(scores: Any) -> tuple[Any, Any]:
    """Logarithm of the sum of exponentials, shape (rows, 1), and entropy in nats, shape (rows,)."""
    torch = sys.modules["torch"]
    best = scores.amax(-1, keepdim=True)
    below = (scores - best).clamp_(min=_NEGLIGIBLE)
    # What was clamped, removed ids among it, has no part at all: one id left alone has entropy 0.
    weight = torch.threshold_(below.exp(), _NOTHING, 0.0)
    total = weight.sum(-1, keepdim=True)
    log_total = total.log()
    expected = weight.mul_(below).sum(-1) / total.squeeze(-1)
    return best + log_total, log_total.squeeze(-1) - expected
