"""The choice of a token: raw and processed scores, what each processor did, the alternatives.

All numbers come from the lab's own copies of the score vectors, in float32, read when the step is
resolved. Entropies are in nats. Which token was picked where is told by a `Pick`: one a row in
greedy decoding and sampling; `beams.py` and `drafts.py` make others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracer.instrument import measure
from tracer.instrument.answering import effects, finishes
from tracer.instrument.answering.scores import Pick, Scores
from tracer.instrument.answering.spreads import Spread

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run


def tell(run: Run, step: int, scores: Scores) -> None:
    """Write a step in which each row chose one token."""
    chosen = scores.chosen.tolist()
    picks = [Pick(row, row) for row, done in enumerate(run.finished) if not done]
    told = tell_picks(run, step, scores, chosen, picks)
    for pick, columns in zip(picks, told, strict=True):
        text = run.assemblers[pick.row].add(chosen[pick.row]) if run.assemblers else None
        hold(run, columns | {"text": text, "parent_row": pick.row, "sequence": pick.row})
    if scores.logits is not None:
        tell_logits(run, step, scores.logits, [(pick.source, pick.row, 0) for pick in picks])
    _advance(run, chosen, scores)


def hold(run: Run, columns: dict[str, Any]) -> None:
    """Keep a row's newest choice back until it is known whether it stands."""
    row = columns["row"]
    release(run, row, accepted=True)  # the row went on, so the choice before stands
    run.texts[row].append(columns["text"])
    run.last_choice[row] = columns


def release(run: Run, row: int, *, accepted: bool | None, finish: str | None = None) -> None:
    """Write the choice that a row holds back: whether it stood is known one step later."""
    choice = run.last_choice.pop(row, None)
    if choice is not None:
        write(run, choice, accepted=accepted, finish=finish)


def write(run: Run, choice: dict[str, Any], **columns: Any) -> None:
    """Write a row of `choices`."""
    call = run.span.seq
    run.recorder.add_fact("choices", call, call, **(choice | columns))


def tell_picks(
    run: Run,
    step: int,
    scores: Scores,
    chosen: list[int],
    picks: Sequence[Pick],
    logits: Any = None,
) -> list[dict[str, Any]]:
    """Write the rows of `candidates`, `effects` and `stops` that belong to a step's picks.

    Args:
        run: The generate() that they are of.
        step: Number of the step.
        scores: One row for each pick's `source`.
        chosen: The token picked from each row of the scores.
        picks: What is told; rows of the scores that none names are left out.
        logits: The model's own, where `scores.raw` holds something made of them; a row a pick.

    Returns:
        The columns of `choices` that follow from the scores, one a pick.
    """
    options = run.recorder.options
    with sys.modules["torch"].no_grad():
        given = Spread.over_all(scores.raw)
        raw = given if logits is None else Spread.over_all(logits)
        final = given if scores.final is scores.raw else Spread.of_the_best(scores.final)
        facts = _tell_candidates(run, step, picks, raw, final, chosen)
        ids = [[one] for one in chosen]
        if options.effects:
            is_moved = run.is_greedy and any(one["raw_rank"] for one in facts)
            effects.tell(run, step, picks, given, final, scores, ids, ranked=is_moved)
        if run.stop_ids:
            _tell_stops(run, step, picks, final)
    return [
        {"step": step, "row": pick.row, "offset": pick.offset, "token_id": chosen[pick.source]}
        | facts[pick.source]
        for pick in picks
    ]


def _tell_candidates(
    run: Run, step: int, picks: Sequence[Pick], raw: Spread, final: Spread, chosen: list[int]
) -> list[dict[str, Any]]:
    """Write the alternatives; gives the columns of `choices`, one of each row of the scores."""
    most = run.recorder.options.top_k
    best_scores, best_ids = final.best(max(most, 2))
    raw_scores = raw.at([[one, *ids] for one, ids in zip(chosen, best_ids, strict=True)])
    own = final.at([[one] for one in chosen])
    ranks = raw.rank([row[:1] for row in raw_scores])
    text = run.vocabulary.text if run.vocabulary else None
    probabilities = [_probabilities(*row) for row in zip(best_scores, final.log_total, strict=True)]
    for source, row, offset in picks:
        scores = best_scores[source][:most]
        # Removed ids have no order among themselves.
        count = scores.index(-math.inf) if -math.inf in scores else len(scores)
        ids, raw_logits = best_ids[source][:count], raw_scores[source][1 : count + 1]
        run.recorder.add_facts(
            "candidates",
            run.span.seq,
            count,
            step=step,
            row=row,
            offset=offset,
            token_rank=list(range(count)),
            token_id=ids,
            text=[text(one) for one in ids] if text else None,
            raw_logit=raw_logits,
            raw_probability=_probabilities(raw_logits, raw.log_total[source]),
            score=scores[:count],
            probability=probabilities[source][:count],
        )
    return [
        {
            "margin": best[0] - best[1] if len(best) > 1 else None,
            "raw_logprob": raw_scores[row][0] - raw.log_total[row],
            "raw_rank": ranks[row][0],
            "raw_entropy": raw.entropy[row],
            "logprob": own[row][0] - final.log_total[row],
            "probability": math.exp(own[row][0] - final.log_total[row]),
            "entropy": final.entropy[row],
            "score": own[row][0],
        }
        for row, best in enumerate(probabilities)
    ]


def _probabilities(scores: Sequence[float], log_total: float) -> list[float]:
    return [math.exp(score - log_total) for score in scores]


def _tell_stops(run: Run, step: int, picks: Sequence[Pick], final: Spread) -> None:
    rows, size = final.scores.shape
    # An id beyond the vocabulary (a default of another model) can never be chosen: no row.
    stop_ids = [one for one in run.stop_ids if 0 <= one < size]
    if not stop_ids:
        return
    own = final.at([stop_ids] * rows)
    ranks = final.rank(own)
    for source, row, offset in picks:
        run.recorder.add_facts(
            "stops",
            run.span.seq,
            len(stop_ids),
            step=step,
            row=row,
            offset=offset,
            token_id=stop_ids,
            token_rank=ranks[source],
            probability=_probabilities(own[source], final.log_total[source]),
        )


def tell_logits(run: Run, step: int, logits: Any, places: Sequence[tuple[int, int, int]]) -> None:
    """Write rows of `logits`: index into the matrix, then row and offset, for each."""
    torch = sys.modules["torch"]
    call = run.span.seq
    for index, row, offset in places:
        raw = logits[index].cpu().contiguous().view(torch.uint8).numpy().tobytes()
        run.recorder.add_fact(
            "logits",
            call,
            call,
            step=step,
            row=row,
            offset=offset,
            dtype=measure.dtype_name(logits.dtype),
            values=raw,
        )


def _advance(run: Run, chosen: list[int], scores: Scores) -> None:
    over = scores.stopped.tolist() if scores.stopped is not None else [False] * len(chosen)
    for row, token_id in enumerate(chosen):
        if run.finished[row]:
            continue
        run.chosen[row].append(token_id)
        if over[row]:
            run.finished[row] = True
            length = len(run.prompt[row]) + len(run.chosen[row])
            run.ends[row] = finishes.reason(run, scores.fired, row, token_id, length)
