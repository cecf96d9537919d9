"""What each logits processor did at a step: ids removed, the chosen id's score, the entropy."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    ids: list[list[int]],
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
        ranks = after.rank(chosen_after) if ranked else None
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
            chosen_delta=[chosen_after[one][0] - chosen_before[one][0] for one in indices],
            chosen_rank=[ranks[one][0] for one in indices] if ranks else None,
            entropy_before=[before.entropy[one] for one in indices],
            entropy_after=[after.entropy[one] for one in indices],
        )
        before, chosen_before, removed_before = after, chosen_after, removed_after


def _newly_removed(
    before: Spread, removed_before: list[int], after: Spread, removed_after: list[int]
) -> list[int]:
    """Ids that a processor set to -inf, a row; those that it brought back don't count against."""
    torch = sys.modules["torch"]
    if not any(removed_before):
        return removed_after
    if not after.is_few or after.best_ids is None:
        gone = torch.isneginf(after.scores) & ~torch.isneginf(before.scores)
        return [int(count) for count in gone.sum(-1).tolist()]
    # What is left is few: of these, some may have been removed before.
    now, then = after.at(after.best_ids), before.at(after.best_ids)
    back = [
        [old == -math.inf and new != -math.inf for old, new in zip(*pair, strict=True)].count(True)
        for pair in zip(then, now, strict=True)
    ]
    counts = zip(removed_after, removed_before, back, strict=True)
    return [now - then + returned for now, then, returned in counts]
