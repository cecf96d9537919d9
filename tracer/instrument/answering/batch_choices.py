"""What continuous batching chose: each token of a request, out of the scores of a shared forward.

A thread of the library's own processes one matrix of scores for whatever requests are in a batch,
and then says which row was whose. Which row of the answer a request becomes is known in the end.
Own copies last from the scores to that word; what they tell waits as plain numbers.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tracer.instrument.answering.spreads import Spread
from tracer.instrument.asking.vocabulary import Vocabulary
from tracer.instrument.stages import Call, Observer
from tracer.recorder import Recorder
from tracer.spans import ThreadState

Columns = dict[str, Any]


@dataclasses.dataclass(slots=True)
class Choice:
    """A token of a request: its columns of `choices`, and those of `candidates` and `stops`."""

    columns: Columns
    candidates: Columns
    stops: Columns


@dataclasses.dataclass(slots=True)
class Batching:
    """The scores that wait for their requests, and what each request has chosen so far."""

    raw: Any = None  # (rows, vocabulary), where processors run
    scores: Any = None  # the same after them
    untold: int = 0  # requests of which the choices were not all seen
    chosen: dict[str, list[Choice]] = dataclasses.field(
        default_factory=lambda: defaultdict[str, list[Choice]](list)
    )

    def of(self, request: str, count: int) -> list[Choice]:
        """The choices of a request that made so many tokens, its first perhaps with its parent."""
        own = self.chosen.get(request, [])
        parent, _, _ = request.rpartition("__child#")
        return [*self.chosen.get(parent, [])[: max(count - len(own), 0)], *own]


def begin(recorder: Recorder) -> Batching:
    """A batch begins; a manager of the user's own, which may run for days, collects nothing."""
    recorder.notes["batching"] = batching = Batching()
    return batching


def end(recorder: Recorder, batching: Batching) -> None:
    """The batch is over."""
    if recorder.notes.get("batching") is batching:  # another thread may have begun one
        del recorder.notes["batching"]


def processed(state: ThreadState, call: Call) -> Observer:
    """The processors' `__call__`: what they are given is the model's own."""
    batching, logits = _running(state), call.argument(2, "logits")
    if batching is not None and _is_at_hand(logits):
        batching.raw = logits.detach().clone()  # which they may change in place
    yield None


def sampled(state: ThreadState, call: Call) -> Observer:
    """`_sample`: what the tokens of a batch are chosen from, of shape (1, rows, vocabulary)."""
    batching, scores = _running(state), call.argument(1, "scores")
    if batching is not None and _is_at_hand(scores):
        batching.scores = scores[0].detach().clone()
    yield None


def updated(state: ThreadState, call: Call) -> Observer:
    """`prepare_batch_update`: which tokens were chosen, and for which requests."""
    outcome = yield None
    batching, recorder = _running(state), state.recorder
    if batching is None or outcome.result is None:
        return
    raw, scores, batching.raw, batching.scores = batching.raw, batching.scores, None, None
    futures, ids = outcome.result[:2]
    requests = [one.state for one in futures if one.has_new_token]
    if not requests or scores is None:
        return
    with recorder.guard("choices"), sys.modules["torch"].no_grad():
        made = _choices(raw, scores, ids, requests, recorder.options.top_k)
        for request, choice in zip(requests, made, strict=True):
            batching.chosen[request.request_id].append(choice)


def _running(state: ThreadState) -> Batching | None:
    found: Batching | None = state.recorder.notes.get("batching")
    return found


def _is_at_hand(tensor: Any) -> bool:
    """On a device the scores may be part of a graph that is captured, which nobody may add to."""
    return getattr(getattr(tensor, "device", None), "type", "") == "cpu"


def _choices(
    raw: Any, scores: Any, ids: Sequence[int], requests: Sequence[Any], most: int
) -> list[Choice]:
    final = Spread.of_the_best(scores)
    model = Spread.over_all(scores if raw is None else raw)
    asked = [[one] for one in ids[: len(requests)]]
    own, model_own = final.at(asked), model.at(asked)
    ranks = model.rank(model_own)
    best_scores, best_ids = final.best(max(most, 2))
    model_best = model.at(best_ids)
    made = []
    for row, request in enumerate(requests):
        total, model_total = final.log_total[row], model.log_total[row]
        shares = [math.exp(one - total) for one in best_scores[row]]
        kept = [place for place, one in enumerate(best_scores[row][:most]) if one != -math.inf]
        columns = {
            "token_id": asked[row][0],
            "raw_logprob": model_own[row][0] - model_total,
            "raw_rank": ranks[row][0],
            "raw_entropy": model.entropy[row],
            "logprob": own[row][0] - total,
            "probability": math.exp(own[row][0] - total),
            "entropy": final.entropy[row],
            "margin": shares[0] - shares[1] if len(shares) > 1 else None,
            "score": own[row][0],
        }
        candidates = {
            "token_rank": kept,
            "token_id": [best_ids[row][place] for place in kept],
            "raw_logit": [model_best[row][place] for place in kept],
            "raw_probability": [math.exp(model_best[row][place] - model_total) for place in kept],
            "score": [best_scores[row][place] for place in kept],
            "probability": [shares[place] for place in kept],
        }
        made.append(Choice(columns, candidates, _stops(final, row, request)))
    return made


def _stops(final: Spread, row: int, request: Any) -> Columns:
    """Rank and probability of the ids that end a request, which has its own."""
    ids = sorted(one for one in request._eos_token_ids if one < final.scores.shape[1])
    every = [ids] * len(final.scores)
    own = final.at(every) if ids else [[]] * len(final.scores)
    return {
        "token_id": ids,
        "token_rank": final.rank(own)[row] if ids else [],
        "probability": [math.exp(one - final.log_total[row]) for one in own[row]],
    }


def tell(
    recorder: Recorder,
    event: int,
    row: int,
    choices: Sequence[Choice],
    texts: Sequence[str | None],
    vocabulary: Vocabulary | None,
    finish: str,
) -> None:
    """Write the choices of a row of the answer; a step is here the n-th token of its row."""
    for step, (choice, text) in enumerate(zip(choices, texts, strict=True)):
        key = {"step": step, "row": row, "offset": 0}
        told = key | choice.columns | {"text": text, "parent_row": row, "sequence": row}
        ends = finish if step == len(choices) - 1 else None
        recorder.add_fact("choices", event, event, **told, accepted=True, finish=ends)
        for table, columns in (("candidates", choice.candidates), ("stops", choice.stops)):
            ids = columns["token_id"]
            if table == "candidates" and vocabulary is not None:
                columns = columns | {"text": [vocabulary.text(one) for one in ids]}
            recorder.add_facts(table, event, len(ids), **key, **columns)
