"""The choice of a token: raw and processed scores, what each processor did, the alternatives.

All numbers come from the lab's own copies of the score vectors, in float32, read when the step is
resolved. Entropies are in nats.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import TYPE_CHECKING, Any

from tracer.instrument import measure

if TYPE_CHECKING:
    from tracer.instrument.run import Run


@dataclasses.dataclass(slots=True)
class Scores:
    """A step's own copies; freed when the step is resolved. Shapes: (rows, vocabulary)."""

    raw: Any = None
    after: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    final: Any = None
    logits: Any = None
    chosen: Any = None  # (rows,)
    stopped: Any = None  # (rows,)


class Probe:
    """Stands in for a processor in the library's own loop and keeps a copy of what it returned.

    The library looks at `inspect.signature(processor.__call__)` to decide what to pass, so the
    instance shows the processor's own `__call__`; calling goes through the class.
    """

    def __init__(self, processor: Any, scores: Scores, clock: Any) -> None:
        self._processor = processor
        self._scores = scores
        self._clock = clock
        self.own_ns = 0
        self.__dict__["__call__"] = processor.__call__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the processor; copy its result."""
        result = self._processor(*args, **kwargs)
        start = self._clock()
        self._scores.after.append((type(self._processor).__name__, result.detach().clone()))
        self.own_ns += self._clock() - start
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)


@dataclasses.dataclass(slots=True)
class _Spread:
    """A distribution over the vocabulary, for each row."""

    scores: Any  # (rows, vocabulary)
    log_total: Any  # (rows, 1)
    entropy: Any  # (rows,)

    @classmethod
    def of(cls, scores: Any) -> _Spread:
        torch = sys.modules["torch"]
        scores = scores.float()
        log_total = torch.logsumexp(scores, -1, keepdim=True)
        probability = torch.softmax(scores, -1)
        # A removed id has score -inf and probability 0; their product would be NaN.
        expected = torch.where(probability > 0, probability * scores, 0.0).sum(-1)
        return cls(scores, log_total, log_total.squeeze(-1) - expected)

    def logprob(self, ids: Any) -> Any:
        """Log-probability of ids, shape (rows, n)."""
        return self.scores.gather(-1, ids) - self.log_total

    def rank(self, ids: Any) -> Any:
        """How many ids score higher, shape (rows, n)."""
        own = self.scores.gather(-1, ids)
        return (self.scores.unsqueeze(1) > own.unsqueeze(-1)).sum(-1)


def tell(run: Run, step: int, scores: Scores) -> None:
    """Write a step's rows of `choices`, `candidates`, `effects`, `stops` and `logits`."""
    torch = sys.modules["torch"]
    with torch.no_grad():
        ids = scores.chosen.unsqueeze(-1)
        raw = _Spread.of(scores.raw)
        final = raw if scores.final is scores.raw else _Spread.of(scores.final)
        facts = _choice_facts(raw, final, ids)
        top = final.scores.topk(min(max(run.recorder.options.top_k, 2), final.scores.shape[-1]))
        best = torch.exp(top.values[:, :2] - final.log_total).tolist()
        open_rows = [row for row, done in enumerate(run.finished) if not done]
        chosen = scores.chosen.tolist()
        for row in open_rows:
            _tell_choice(run, step, row, chosen[row], facts, best[row])
        _tell_candidates(run, step, open_rows, raw, final, top)
        if run.recorder.options.effects:
            _tell_effects(run, step, open_rows, raw, scores, ids)
        if run.stop_ids:
            _tell_stops(run, step, open_rows, final)
        if scores.logits is not None:
            _tell_logits(run, step, open_rows, scores.logits)
    _advance(run, chosen, scores.stopped)


def _choice_facts(raw: _Spread, final: _Spread, ids: Any) -> dict[str, list[float]]:
    logprob = final.logprob(ids).squeeze(-1)
    facts = {
        "raw_logprob": raw.logprob(ids).squeeze(-1),
        "raw_rank": raw.rank(ids).squeeze(-1),
        "raw_entropy": raw.entropy,
        "logprob": logprob,
        "probability": logprob.exp(),
        "entropy": final.entropy,
        "score": final.scores.gather(-1, ids).squeeze(-1),
    }
    return {name: values.tolist() for name, values in facts.items()}


def _tell_choice(
    run: Run,
    step: int,
    row: int,
    token_id: int,
    facts: dict[str, list[float]],
    best: list[float],
) -> None:
    text = run.assemblers[row].add(token_id) if run.assemblers else None
    columns = {name: values[row] for name, values in facts.items()}
    release(run, row, accepted=True)  # the row went on, so the choice before stands
    run.texts[row].append(text)
    run.last_choice[row] = {
        "step": step,
        "row": row,
        "offset": 0,
        "token_id": token_id,
        "text": text,
        "margin": best[0] - best[1] if len(best) > 1 else None,
        "parent_row": row,
        "sequence": row,
        **columns,
    }


def release(run: Run, row: int, *, accepted: bool | None, finish: str | None = None) -> None:
    """Write the choice that a row holds back: whether it stood is known one step later."""
    choice = run.last_choice.pop(row, None)
    if choice is not None:
        call = run.span.seq
        run.recorder.add_fact("choices", call, call, accepted=accepted, finish=finish, **choice)


def _tell_candidates(
    run: Run, step: int, rows: list[int], raw: _Spread, final: _Spread, top: Any
) -> None:
    torch = sys.modules["torch"]
    keep = min(run.recorder.options.top_k, top.indices.shape[-1])
    ids = top.indices[:, :keep]
    raw_logits = raw.scores.gather(-1, ids)
    cells = zip(
        ids.tolist(),
        raw_logits.tolist(),
        torch.exp(raw_logits - raw.log_total).tolist(),
        top.values[:, :keep].tolist(),
        torch.exp(top.values[:, :keep] - final.log_total).tolist(),
        strict=True,
    )
    by_row = list(cells)
    call = run.span.seq
    for row in rows:
        for rank, (token_id, logit, raw_probability, score, probability) in enumerate(
            zip(*by_row[row], strict=True)
        ):
            if score == -math.inf:
                break  # removed ids have no order among themselves
            run.recorder.add_fact(
                "candidates",
                call,
                call,
                step=step,
                row=row,
                offset=0,
                token_rank=rank,
                token_id=token_id,
                text=run.vocabulary.text(token_id) if run.vocabulary else None,
                raw_logit=logit,
                raw_probability=raw_probability,
                score=score,
                probability=probability,
            )


def _tell_effects(
    run: Run, step: int, rows: list[int], raw: _Spread, scores: Scores, ids: Any
) -> None:
    torch = sys.modules["torch"]
    before = raw
    call = run.span.seq
    for index, (class_name, after_scores) in enumerate(scores.after):
        after = _Spread.of(after_scores)
        removed = (torch.isneginf(after.scores) & ~torch.isneginf(before.scores)).sum(-1).tolist()
        delta = (after.scores.gather(-1, ids) - before.scores.gather(-1, ids)).squeeze(-1).tolist()
        entropies = list(zip(before.entropy.tolist(), after.entropy.tolist(), strict=True))
        for row in rows:
            run.recorder.add_fact(
                "effects",
                call,
                call,
                step=step,
                row=row,
                offset=0,
                index=index,
                class_name=class_name,
                removed_tokens=removed[row],
                chosen_delta=delta[row],
                entropy_before=entropies[row][0],
                entropy_after=entropies[row][1],
            )
        before = after


def _tell_stops(run: Run, step: int, rows: list[int], final: _Spread) -> None:
    torch = sys.modules["torch"]
    # An id beyond the vocabulary (a default of another model) can never be chosen: no row.
    stop_ids = [one for one in run.stop_ids if 0 <= one < final.scores.shape[-1]]
    if not stop_ids:
        return
    ids = torch.tensor(stop_ids, device=final.scores.device).expand(final.scores.shape[0], -1)
    probabilities = final.logprob(ids).exp().tolist()
    ranks = final.rank(ids).tolist()
    call = run.span.seq
    for row in rows:
        for place, token_id in enumerate(stop_ids):
            run.recorder.add_fact(
                "stops",
                call,
                call,
                step=step,
                row=row,
                offset=0,
                token_id=token_id,
                token_rank=ranks[row][place],
                probability=probabilities[row][place],
            )


def _tell_logits(run: Run, step: int, rows: list[int], logits: Any) -> None:
    torch = sys.modules["torch"]
    call = run.span.seq
    for row in rows:
        raw = logits[row].cpu().contiguous().view(torch.uint8).numpy().tobytes()
        run.recorder.add_fact(
            "logits",
            call,
            call,
            step=step,
            row=row,
            dtype=measure.dtype_name(logits.dtype),
            values=raw,
        )


def _advance(run: Run, chosen: list[int], stopped: Any) -> None:
    over = stopped.tolist() if stopped is not None else [False] * len(chosen)
    for row, token_id in enumerate(chosen):
        if not run.finished[row]:
            run.chosen[row].append(token_id)
        run.finished[row] = run.finished[row] or bool(over[row])
