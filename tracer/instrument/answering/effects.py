"""What each logits processor did at a step: ids removed, the chosen id's score, the entropy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracer.instrument.answering.scores import Pick, Scores
from tracer.instrument.answering.spreads import Spread

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run


def tell(
    run: Run,
    step: int,
    picks: Sequence[Pick],
    raw: Spread,
    final: Spread,
    scores: Scores,
    ids: Any,
    *,
    ranked: bool,
) -> None:
    """Write a step's rows of `effects`, in the order in which the processors ran.

    The rank of the chosen id is told where it says which processor made it the best one.
    """
    before, chosen_before = raw, raw.at(ids)
    removed_before = before.removed()
    indices = [pick.source for pick in picks]
    for index, (class_name, after_scores) in enumerate(scores.after):
        after = final if after_scores is scores.final else Spread.of(after_scores)
        chosen_after, removed_after = after.at(ids), after.removed()
        delta = (chosen_after - chosen_before).squeeze(-1).tolist()
        entropies = before.entropy.tolist(), after.entropy.tolist()
        ranks = after.rank(chosen_after).squeeze(-1).tolist() if ranked else None
        removed = _newly_removed(before, removed_before, after, removed_after)
        run.recorder.add_facts(
            "effects",
            run.span.seq,
            len(picks),
            step=step,
            row=[pick.row for pick in picks],
            offset=[pick.offset for pick in picks],
            index=index,
            class_name=class_name,
            removed_tokens=[removed[one] for one in indices],
            chosen_delta=[delta[one] for one in indices],
            chosen_rank=[ranks[one] for one in indices] if ranks else None,
            entropy_before=[entropies[0][one] for one in indices],
            entropy_after=[entropies[1][one] for one in indices],
        )
        before, chosen_before, removed_before = after, chosen_after, removed_after


def _newly_removed(
    before: Spread, removed_before: list[int], after: Spread, removed_after: list[int]
) -> list[int]:
    """Ids that a processor set to -inf, a row; those that it brought back don't count against."""
    torch = sys.modules["torch"]
    if not any(removed_before):
        return removed_after
    if after.support is after.scores:
        gone = torch.isneginf(after.scores) & ~torch.isneginf(before.scores)
        return [int(count) for count in gone.sum(-1).tolist()]
    # What is left is few: of these, some may have been removed before.
    was_gone = torch.isneginf(before.at(after.top.indices))
    back = (was_gone & ~torch.isneginf(after.top.values)).sum(-1).tolist()
    return [
        now - then + returned
        for now, then, returned in zip(removed_after, removed_before, back, strict=True)
    ]
