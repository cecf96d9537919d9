"""The library's logits processors over a recorded row of scores, in numpy and single precision.

Each takes the ids so far, the scores of the whole vocabulary and the parameters that `chain` holds,
and gives new scores. What is not here needs more than these: a model, an encoder's ids, a
function of the user's, random numbers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]  # (vocabulary,)
Parameters = dict[str, Any]
Ids = Sequence[int] | NDArray[np.int64]
Processor = Callable[[Ids, Scores, Parameters], Scores]

_GONE: Final = np.float32(-np.inf)


def log_softmax(scores: Scores) -> Scores:
    """Logarithms of the probabilities."""
    below = scores - scores.max()
    with np.errstate(divide="ignore"):
        total: Scores = below - np.log(np.exp(below).sum(dtype=np.float32))
    return total


def softmax(scores: Scores) -> Scores:
    """Probabilities; an id with a score of -inf has none."""
    weights = np.exp(scores - scores.max())
    total: Scores = weights / weights.sum(dtype=np.float32)
    return total


def _entropy(logs: Scores) -> Any:
    left = logs[np.isfinite(logs)]
    return -(left * np.exp(left)).sum(dtype=np.float32)


def _without(scores: Scores, removed: NDArray[np.bool_], given: Parameters) -> Scores:
    return np.where(removed, np.float32(given.get("filter_value", -np.inf)), scores)


def _ids_of(value: Any) -> list[int]:
    return [int(one) for one in (value if isinstance(value, list) else [value])]


def _only(scores: Scores, ids: list[int]) -> Scores:
    forced = np.full_like(scores, _GONE)
    forced[ids] = 0
    return forced


def _banned(scores: Scores, ids: list[int]) -> Scores:
    kept = scores.copy()
    kept[[one for one in ids if 0 <= one < len(scores)]] = _GONE
    return kept


def _temperature(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    return scores / np.float32(given["temperature"])


def _top_k(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    count = min(int(given["top_k"]), len(scores))
    return _without(scores, scores < np.partition(scores, -count)[-count], given)


def _top_p(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    order = np.argsort(scores, kind="stable")
    total = softmax(scores[order]).cumsum(dtype=np.float32)
    gone = total <= np.float32(1 - given["top_p"])
    gone[-int(given.get("min_tokens_to_keep", 1)) :] = False
    removed = np.empty_like(gone)
    removed[order] = gone
    return _without(scores, removed, given)


def _keep_best(scores: Scores, removed: NDArray[np.bool_], given: Parameters) -> Scores:
    count = min(int(given.get("min_tokens_to_keep", 1)), len(scores))
    return _without(scores, removed & (scores < np.partition(scores, -count)[-count]), given)


def _min_p(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    chances = softmax(scores)
    return _keep_best(scores, chances < np.float32(given["min_p"]) * chances.max(), given)


def _epsilon(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    return _keep_best(scores, softmax(scores) < np.float32(given["epsilon"]), given)


def _eta(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    epsilon, logs = np.float32(np.ravel(given["epsilon"])[0]), log_softmax(scores)
    entropy = _entropy(logs)
    eta = min(epsilon, np.sqrt(epsilon) * np.exp(-entropy))
    return _keep_best(scores, softmax(scores) < eta, given)


def _typical(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    logs = log_softmax(scores)
    entropy = _entropy(logs)
    distance = np.abs(-logs - entropy)
    order = np.argsort(distance, kind="stable")
    total = softmax(scores[order]).cumsum(dtype=np.float32)
    last = min(int((total < np.float32(given["mass"])).sum()), len(scores) - 1)
    gone = distance[order] > distance[order][last]
    gone[: int(given.get("min_tokens_to_keep", 1))] = False
    removed = np.empty_like(gone)
    removed[order] = gone
    return _without(scores, removed, given)


def _repetition(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    ignored = given.get("prompt_ignore_length") or 0  # one for each row since generation 5
    ignored = ignored[given.get("row", 0)] if isinstance(ignored, list) else ignored
    counted = ids[int(ignored) :]
    known = np.asarray(counted, np.int64)
    seen = np.unique(known[(known >= 0) & (known < len(scores))])
    penalty, changed = np.float32(given["penalty"]), scores.copy()
    own = scores[seen]
    changed[seen] = np.where(own < 0, own * penalty, own / penalty)
    return changed


def _no_repeat(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    size = int(given["ngram_size"])
    if len(ids) < size:
        return scores
    ids = np.asarray(ids).tolist()
    prefix = ids[len(ids) + 1 - size :]
    starts = range(len(ids) - size + 1)
    return _banned(scores, [ids[n + size - 1] for n in starts if ids[n : n + size - 1] == prefix])


def _min_length(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    is_short = len(ids) < given["min_length"]
    return _banned(scores, _ids_of(given["eos_token_id"])) if is_short else scores


def _min_new(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    is_short = len(ids) - given["prompt_length_to_skip"] < given["min_new_tokens"]
    return _banned(scores, _ids_of(given["eos_token_id"])) if is_short else scores


def _suppress(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    return _banned(scores, _ids_of(given["suppress_tokens"]))


def _suppress_at_begin(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    if len(ids) != given["begin_index"]:
        return scores
    return _banned(scores, _ids_of(given["begin_suppress_tokens"]))


def _forced_begin(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    return _only(scores, _ids_of(given["bos_token_id"])) if len(ids) == 1 else scores


def _forced_end(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    is_last = len(ids) == given["max_length"] - 1
    return _only(scores, _ids_of(given["eos_token_id"])) if is_last else scores


def _sequence_bias(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    bias, before = np.zeros_like(scores), np.asarray(ids, np.int64)
    for sequence, number in given["sequence_bias"]:
        *prefix, last = sequence
        begins = (
            len(prefix) <= len(before) and (before[len(before) - len(prefix) :] == prefix).all()
        )
        if begins and last >= 0:  # else it is an id whose score nobody recorded
            bias[last] += np.float32(number)
    biased: Scores = scores + bias
    return biased


def _top_h(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    best = np.argsort(-scores, kind="stable")[: int(given["top_n"])]
    logs = log_softmax(scores[best])
    with np.errstate(invalid="ignore"):  # what is removed has no part, and ends what is kept
        parts = -np.exp(logs) * logs
    kept = parts.cumsum(dtype=np.float32) <= _entropy(logs) * np.float32(given["top_h"])
    kept[0] = True
    removed = np.ones(len(scores), np.bool_)
    removed[best[kept]] = False
    return _without(scores, removed, given)


def _finite(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    limits = np.finfo(np.float32)
    return np.nan_to_num(scores, nan=0.0, posinf=float(limits.max), neginf=float(limits.min))


def _decay(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    late = len(ids) - given["regulation_start"]
    if late <= 0:
        return scores
    ends, changed = _ids_of(given["eos_token_id"]), scores.copy()
    more = np.abs(scores[ends]) * np.float32(given["regulation_factor"] ** late - 1)
    changed[ends] = scores[ends] + np.where(np.isfinite(scores[ends]), more, np.float32(0))
    return changed


def _normalized(ids: Ids, scores: Scores, given: Parameters) -> Scores:
    return log_softmax(scores)


PROCESSORS: Final[dict[str, Processor]] = {
    "TemperatureLogitsWarper": _temperature,
    "TopKLogitsWarper": _top_k,
    "TopPLogitsWarper": _top_p,
    "MinPLogitsWarper": _min_p,
    "EpsilonLogitsWarper": _epsilon,
    "EtaLogitsWarper": _eta,
    "TypicalLogitsWarper": _typical,
    "TopHLogitsWarper": _top_h,
    "SequenceBiasLogitsProcessor": _sequence_bias,
    "NoBadWordsLogitsProcessor": _sequence_bias,
    "RepetitionPenaltyLogitsProcessor": _repetition,
    "NoRepeatNGramLogitsProcessor": _no_repeat,
    "MinLengthLogitsProcessor": _min_length,
    "MinNewTokensLengthLogitsProcessor": _min_new,
    "SuppressTokensLogitsProcessor": _suppress,
    "SuppressTokensAtBeginLogitsProcessor": _suppress_at_begin,
    "ForcedBOSTokenLogitsProcessor": _forced_begin,
    "ForcedEOSTokenLogitsProcessor": _forced_end,
    "InfNanRemoveLogitsProcessor": _finite,
    "ExponentialDecayLengthPenalty": _decay,
    "LogitNormalization": _normalized,
}
"""Class of the library to what it does."""
