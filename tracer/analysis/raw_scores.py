"""The raw scores of a call as they were recorded, one step at a time.

Whole rows of logits where they were kept, else the candidates alone. Of those only the ids that can
matter are told: a hundred thousand ids without a score would be carried through every processor.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.processors import Parameters, Scores
from tracer.trace import Trace

_NAMING_IDS: Final = ("eos_token_id", "bos_token_id", "suppress_tokens", "begin_suppress_tokens")
_SEQUENCES: Final = "sequence_bias"
"""Sequences of ids, each with a number."""
_COLUMNS: Final = ["step", "row", "offset"]

Ids = NDArray[np.int64]
Place = tuple[int, int]  # row and offset


@dataclasses.dataclass(frozen=True, slots=True)
class RawScores:
    """The raw scores of one choice.

    Attributes:
        basis: `measured` on a whole row of logits, `estimated` on the recorded candidates.
        scores: One for each id of the vocabulary.
        vocabulary: The ids that the scores are of, rising; None for all, in order.
    """

    basis: str
    scores: Scores
    vocabulary: Ids | None = None

    def places(self, ids: Ids) -> Ids:
        """Where each id's score is; an id without one has a negative place of its own."""
        if self.vocabulary is None:
            return ids
        found = np.minimum(self.vocabulary.searchsorted(ids), len(self.vocabulary) - 1)
        return np.where(self.vocabulary[found] == ids, found, -1 - ids)

    def placed(self, parameters: Parameters) -> Parameters:
        """A processor's parameters with places instead of ids."""
        if self.vocabulary is None:
            return parameters
        return {name: self._placed(name, value) for name, value in parameters.items()}

    def _placed(self, name: str, value: Any) -> Any:
        if name == _SEQUENCES:
            pairs = ((np.asarray(ids, np.int64), number) for ids, number in value)
            return [[self.places(ids).tolist(), number] for ids, number in pairs]
        if name in _NAMING_IDS and value is not None:
            return self.places(np.atleast_1d(np.asarray(value, np.int64))).tolist()
        return value

    def best(self, scores: Scores) -> int:
        """The id with the highest of some scores."""
        place = int(scores.argmax())
        return place if self.vocabulary is None else int(self.vocabulary[place])


def named_ids(parameters: list[Parameters]) -> list[int]:
    """Ids that processors give a score by name, whatever it was."""
    named = (one[name] for one in parameters for name in _NAMING_IDS if one.get(name) is not None)
    return [int(one) for value in named for one in np.atleast_1d(np.asarray(value)).ravel()]


def _nothing() -> dict[Place, RawScores]:
    return {}


def of_candidates(
    trace: Trace, call: int, also: list[int]
) -> Iterator[tuple[int, dict[Place, RawScores]]]:
    """By step, the scores of the recorded candidates; some other ids have none (-inf)."""
    rows = trace.arrow("candidates", [*_COLUMNS, "token_id", "raw_logit"], [("call", "==", call)])
    rows = rows.filter(rows["token_id"].is_valid()).sort_by([(n, "ascending") for n in _COLUMNS])
    places = np.stack([rows[name].to_numpy() for name in _COLUMNS])
    starts = np.flatnonzero(np.diff(places, prepend=-2).any(axis=0)).tolist()
    ids = rows["token_id"].to_numpy()
    logits = rows["raw_logit"].fill_null(float("nan")).to_numpy().astype(np.float32)
    step, found = -1, _nothing()
    for start, end in itertools.pairwise([*starts, rows.num_rows]):
        if int(places[0, start]) != step:
            if found:
                yield step, found
            step, found = int(places[0, start]), _nothing()
        vocabulary = np.unique(np.concatenate([ids[start:end], np.array(also, np.int64)]))
        scores = np.full(len(vocabulary), -np.inf, np.float32)
        scores[vocabulary.searchsorted(ids[start:end])] = logits[start:end]
        place = int(places[1, start]), int(places[2, start])
        found[place] = RawScores("estimated", scores, vocabulary)
    if found:
        yield step, found


def of_logits(trace: Trace, call: int) -> Iterator[tuple[int, dict[Place, RawScores]]]:
    """By step, whole rows of logits; read as they are asked for, since all would fill the memory.

    A call's rows are stored in the order of its steps.
    """
    step, found = -1, _nothing()
    for row in _stored(trace, call):
        if row["step"] != step:
            if found:
                yield step, found
            step, found = row["step"], _nothing()
        if row["values"] is not None:
            scores = decode(row["values"], row["dtype"])
            found[row["row"], row["offset"]] = RawScores("measured", scores)
    if found:
        yield step, found


def _stored(trace: Trace, call: int) -> Iterator[dict[str, Any]]:
    columns = [*_COLUMNS, "dtype", "values"]
    for batch in trace.store.batches("logits", columns, [("call", "==", call)]):
        for place in range(batch.num_rows):
            yield from pa.Table.from_batches([batch.slice(place, 1)]).to_pylist()


class ByStep:
    """What is known of a step's scores, asked for in the order of the steps.

    Args:
        kept: Steps with what they hold, each source in rising order; a later source has the word.
    """

    def __init__(self, *kept: Iterator[tuple[int, dict[Place, RawScores]]]) -> None:
        self._kept = kept
        self._next = [next(one, None) for one in kept]
        self._step = -1
        self._known: dict[Place, RawScores] = {}

    def at(self, step: int) -> dict[Place, RawScores]:
        """The scores of a step by row and offset; what lies before it is forgotten."""
        if step == self._step:
            return self._known
        self._step, self._known = step, {}
        for number, source in enumerate(self._kept):
            waiting = self._next[number]
            while waiting is not None and waiting[0] < step:
                waiting = next(source, None)
            if waiting is not None and waiting[0] == step:
                self._known |= waiting[1]
            self._next[number] = waiting
        return self._known


def decode(values: bytes, dtype: str) -> Scores:
    """A row of recorded logits as single precision, which is what the library makes of it first."""
    if dtype == "bfloat16":  # the upper half of a single
        return (np.frombuffer(values, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(values, np.dtype(dtype)).astype(np.float32)
