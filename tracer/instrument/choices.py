"""The choice of a token: raw and processed scores, what each processor did, the alternatives.

All numbers come from the lab's own copies of the score vectors, in float32, read when the step is
resolved. Entropies are in nats.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import TYPE_CHECKING, Any, Final

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

    @property
    def is_complete(self) -> bool:
        """Whether the scores were seen, and what was chosen from them."""
        return self.raw is not None and self.final is not None and self.chosen is not None


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


_FEW: Final = 64
"""A truncated distribution (top-k, top-p) mostly has fewer ids than this, and then needs no look
at the whole vocabulary."""
_NEGLIGIBLE: Final = -80.0
"""Logit below the best one whose probability, e^-80, adds nothing in float32. Smaller ones would be
denormal numbers, which a processor handles many times slower."""


_NOTHING: Final = 1.9e-35  # just above e^-80
_LOWEST: Final = -3.4028234663852886e38  # smallest float32


@dataclasses.dataclass(slots=True)
class _Spread:
    """A distribution over the vocabulary, for each row."""

    scores: Any  # (rows, vocabulary)
    support: Any  # all scores, or the few that are not -inf: (rows, n)
    log_total: Any  # (rows, 1)
    entropy: Any  # (rows,)
    top: Any = None  # values and indices of the best ids, best first, where they were looked up

    @classmethod
    def over_all(cls, scores: Any) -> _Spread:
        """Of scores that no processor has cut: every id counts."""
        scores = scores.float()
        return cls(scores, scores, *_total_and_entropy(scores))

    @classmethod
    def of_the_best(cls, scores: Any) -> _Spread:
        """Of scores that may be cut to a few: the best are looked up first."""
        torch = sys.modules["torch"]
        scores = scores.float()
        size = scores.shape[-1]
        top = scores.topk(min(_FEW, size))
        is_whole = size <= _FEW or bool(torch.isneginf(top.values[:, -1]).all())
        support = top.values if is_whole else scores
        return cls(scores, support, *_total_and_entropy(support), top)

    @classmethod
    def of(cls, scores: Any) -> _Spread:
        """Of scores about which nothing is known."""
        torch = sys.modules["torch"]
        is_cut = bool(torch.isneginf(scores.amin()))
        return cls.of_the_best(scores) if is_cut else cls.over_all(scores)

    def removed(self) -> list[int]:
        """How many ids have a score of -inf, a row."""
        torch = sys.modules["torch"]
        if self.support is self.scores and not torch.isneginf(self.scores.amin()):
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


def tell(run: Run, step: int, scores: Scores) -> None:
    """Write a step's rows of `choices`, `candidates`, `effects`, `stops` and `logits`."""
    torch = sys.modules["torch"]
    options = run.recorder.options
    with torch.no_grad():
        ids = scores.chosen.unsqueeze(-1)
        raw = _Spread.over_all(scores.raw)
        final = raw if scores.final is scores.raw else _Spread.of_the_best(scores.final)
        facts = _choice_facts(raw, final, ids)
        top, top_ids = final.best(min(max(options.top_k, 2), final.scores.shape[-1]))
        best = torch.exp(top[:, :2] - final.log_total).tolist()
        open_rows = [row for row, done in enumerate(run.finished) if not done]
        chosen = scores.chosen.tolist()
        for row in open_rows:
            _tell_choice(run, step, row, chosen[row], facts, best[row])
        kept = top[:, : options.top_k], top_ids[:, : options.top_k]
        _tell_candidates(run, step, open_rows, raw, final, *kept)
        if options.effects:
            _tell_effects(run, step, open_rows, raw, final, scores, ids)
        if run.stop_ids:
            _tell_stops(run, step, open_rows, final)
        if scores.logits is not None:
            _tell_logits(run, step, open_rows, scores.logits)
    _advance(run, chosen, scores.stopped)


def _choice_facts(raw: _Spread, final: _Spread, ids: Any) -> dict[str, list[float]]:
    raw_score, score = raw.at(ids), final.at(ids)
    logprob = score - final.log_total
    facts = {
        "raw_logprob": raw_score - raw.log_total,
        "raw_rank": raw.rank(raw_score),
        "raw_entropy": raw.entropy,
        "logprob": logprob,
        "probability": logprob.exp(),
        "entropy": final.entropy,
        "score": score,
    }
    return {name: values.flatten().tolist() for name, values in facts.items()}


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
    run: Run, step: int, rows: list[int], raw: _Spread, final: _Spread, top: Any, ids: Any
) -> None:
    raw_logits = raw.at(ids)
    columns = {
        "token_id": ids.tolist(),
        "raw_logit": raw_logits.tolist(),
        "raw_probability": (raw_logits - raw.log_total).exp_().tolist(),
        "score": top.tolist(),
        "probability": (top - final.log_total).exp_().tolist(),
    }
    text = run.vocabulary.text if run.vocabulary else None
    for row in rows:
        scores = columns["score"][row]
        # Removed ids have no order among themselves.
        count = next((n for n, score in enumerate(scores) if score == -math.inf), len(scores))
        cells = {name: values[row][:count] for name, values in columns.items()}
        run.recorder.add_facts(
            "candidates",
            run.span.seq,
            count,
            step=step,
            row=row,
            offset=0,
            token_rank=list(range(count)),
            text=[text(one) for one in cells["token_id"]] if text else None,
            **cells,
        )


def _tell_effects(
    run: Run, step: int, rows: list[int], raw: _Spread, final: _Spread, scores: Scores, ids: Any
) -> None:
    before, chosen_before = raw, raw.at(ids)
    removed_before = before.removed()
    for index, (class_name, after_scores) in enumerate(scores.after):
        after = final if after_scores is scores.final else _Spread.of(after_scores)
        chosen_after, removed_after = after.at(ids), after.removed()
        delta = (chosen_after - chosen_before).squeeze(-1).tolist()
        entropies = before.entropy.tolist(), after.entropy.tolist()
        removed = _newly_removed(before, removed_before, after, removed_after)
        run.recorder.add_facts(
            "effects",
            run.span.seq,
            len(rows),
            step=step,
            row=rows,
            offset=0,
            index=index,
            class_name=class_name,
            removed_tokens=[removed[row] for row in rows],
            chosen_delta=[delta[row] for row in rows],
            entropy_before=[entropies[0][row] for row in rows],
            entropy_after=[entropies[1][row] for row in rows],
        )
        before, chosen_before, removed_before = after, chosen_after, removed_after


def _newly_removed(
    before: _Spread, removed_before: list[int], after: _Spread, removed_after: list[int]
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


def _tell_stops(run: Run, step: int, rows: list[int], final: _Spread) -> None:
    torch = sys.modules["torch"]
    # An id beyond the vocabulary (a default of another model) can never be chosen: no row.
    stop_ids = [one for one in run.stop_ids if 0 <= one < final.scores.shape[-1]]
    if not stop_ids:
        return
    ids = torch.tensor(stop_ids, device=final.scores.device).expand(final.scores.shape[0], -1)
    own = final.at(ids)
    probabilities = (own - final.log_total).exp().tolist()
    ranks = final.rank(own).tolist()
    for row in rows:
        run.recorder.add_facts(
            "stops",
            run.span.seq,
            len(stop_ids),
            step=step,
            row=row,
            offset=0,
            token_id=stop_ids,
            token_rank=ranks[row],
            probability=probabilities[row],
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
