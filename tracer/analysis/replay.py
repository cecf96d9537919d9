"""The recorded chain of processors run again over the recorded logits, without torch or a model.

It proves a run: greedy decoding gives each token again, sampling the score of each. And it answers
what-if: with other parameters, what would have been chosen *at that step*, everything before it as
it was. Without `logits=True` the scores are those of the recorded candidates alone, and what
follows from them is labelled `estimated`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracer.analysis.generation import call_or_last
from tracer.analysis.processors import PROCESSORS, Ids, Parameters, Scores, log_softmax
from tracer.analysis.raw_scores import (
    ByStep,
    RawScores,
    named_ids,
    of_candidates,
    of_logits,
)
from tracer.trace import Trace

_LIBRARY = "transformers"
_OWN_WAYS = ("rows change places", "scores of its own")
"""Said by the mode of a loop whose processors were not given the model's scores row by row."""


@dataclasses.dataclass(frozen=True)
class Link:
    """One processor of a chain."""

    class_name: str
    parameters: Parameters = dataclasses.field(default_factory=dict)
    defined_in: str = _LIBRARY

    @property
    def is_known(self) -> bool:
        """Whether it is the library's own and can be run from its parameters alone."""
        own = self.defined_in.partition(".")[0] == _LIBRARY
        return own and self.class_name in PROCESSORS and self._has_parameters()

    def _has_parameters(self) -> bool:
        try:
            PROCESSORS[self.class_name]([0], np.zeros(1, np.float32), self.parameters)
        except KeyError:
            return False
        except IndexError:
            pass  # a stop id that this one-word vocabulary lacks
        return True


def chain_of(trace: Trace, call: int | None = None) -> list[Link]:
    """The processors of a call, in the order in which they ran."""
    where = [("call", "==", call_or_last(trace, call)), ("kind", "==", "processor")]
    columns = ["index", "class_name", "parameters", "defined_in"]
    rows = trace.read("chain", columns, where).sort_values("index")
    return [
        Link(row.class_name, json.loads(row.parameters), row.defined_in)
        for row in rows.itertuples()
    ]


def replayable_until(chain: Sequence[Link]) -> int | None:
    """Index of the first processor that can't be run again; None when all of them can."""
    return next((index for index, link in enumerate(chain) if not link.is_known), None)


def process(ids: Ids, scores: Scores, chain: Sequence[Link], row: int = 0) -> Scores:
    """Scores after a chain; stops before the first processor that can't be run again.

    Args:
        ids: The sequence so far.
        scores: One for each id of the vocabulary.
        chain: The processors, in order.
        row: Row of the batch, for parameters that differ from row to row.
    """
    for link in chain[: replayable_until(chain)]:
        scores = PROCESSORS[link.class_name](ids, scores, link.parameters | {"row": row})
    return scores


def replay(
    trace: Trace, call: int | None = None, chain: Sequence[Link] | None = None
) -> pd.DataFrame:
    """Each choice of a call computed again out of its recorded logits.

    Args:
        trace: A trace with a generate call.
        call: seq of the call; the last one without.
        chain: Other processors than those that ran; each step keeps the ids that it really had.

    Returns:
        One row a choice: step, row, offset, token_id, score (recorded; in beam search without
        what the beam had gathered before), replayed_id (the best of the replayed scores),
        replayed_score and replayed_probability (of the recorded token), stops_at (index of the
        first processor that can't be run again; missing where all can), and basis (measured on
        whole rows of logits, estimated on the recorded candidates).
    """
    call = call_or_last(trace, call)
    links, mode = chain_of(trace, call) if chain is None else list(chain), _mode(trace, call)
    stops_at = replayable_until(links)
    if any(words in mode for words in _OWN_WAYS):
        links, stops_at = [], 0
    choices = _choices(trace, call)
    is_search = mode.startswith("beam search")
    scores = _scores(trace, call, is_search, links)
    rows = []
    for choice, ids in _with_ids(trace, call, choices, is_search):
        known = scores.at(int(choice.step))
        # A beam's row of logits stands for all that came of it, whatever its offset.
        row = int(choice.parent_row if is_search else choice.row)
        given = known.get((int(choice.row), int(choice.offset)))
        if is_search and (given is None or given.basis == "measured"):
            given = known.get((row, 0))
        if given is not None:
            rows.append(_replayed(choice, ids, given, links, row, is_search))
    frame = pd.DataFrame(rows, columns=[name for name in _COLUMNS if name != "stops_at"])
    frame.insert(_COLUMNS.index("stops_at"), "stops_at", stops_at)
    return frame.astype({"stops_at": "Int64"})


def _replayed(
    choice: Any, ids: Any, given: RawScores, links: list[Link], row: int, is_search: bool
) -> dict[str, Any]:
    placed = [dataclasses.replace(one, parameters=given.placed(one.parameters)) for one in links]
    raw = log_softmax(given.scores) if is_search else given.scores
    final = process(given.places(np.asarray(ids, np.int64)), raw, placed, row)
    token = int(choice.token_id)
    place = int(given.places(np.array([token]))[0])
    is_known = 0 <= place < len(final)  # else nobody recorded its score
    return {
        "step": choice.step,
        "row": choice.row,
        "offset": choice.offset,
        "token_id": token,
        "score": None if is_search else choice.score,
        "logprob": choice.logprob,
        "replayed_id": given.best(final),
        "replayed_score": float(final[place]) if is_known else -np.inf,
        "replayed_logprob": float(log_softmax(final)[place]) if is_known else -np.inf,
        "basis": given.basis,
    }


_COLUMNS = [
    "step", "row", "offset", "token_id", "score", "logprob", "replayed_id", "replayed_score",
    "replayed_logprob", "stops_at", "basis",
]  # fmt: skip


def _mode(trace: Trace, call: int) -> str:
    modes = trace.read("calls", ["mode"], [("seq", "==", call)])["mode"].dropna()
    return "" if modes.empty else str(modes.iloc[0])


def _choices(trace: Trace, call: int) -> pd.DataFrame:
    columns = ["step", "row", "offset", "token_id", "score", "logprob", "parent_row", "accepted"]
    columns += ["drafted_id", "sequence"]
    choices = trace.read("choices", columns, [("call", "==", call)])
    return choices[choices["token_id"].notna()].sort_values(["step", "row", "offset"])


def _scores(trace: Trace, call: int, is_search: bool, links: list[Link]) -> ByStep:
    """Raw scores by step: whole rows where there are some, else of the candidates."""
    if is_search and trace.arrow("logits", ["step"], [("call", "==", call)], 1).num_rows:
        return ByStep(of_logits(trace, call))
    also = named_ids([link.parameters for link in links])
    return ByStep(of_candidates(trace, call, also), of_logits(trace, call))


def _with_ids(
    trace: Trace, call: int, choices: pd.DataFrame, is_search: bool
) -> Iterator[tuple[Any, list[int]]]:
    """Each choice with the ids that its processors were given."""
    prompts = _prompts(trace, call)
    if is_search:
        yield from _along_beams(choices, _of_beams(trace, call, prompts))
        return
    so_far = {row: _Sequence(ids) for row, ids in prompts.items()}
    every = choices.itertuples(index=False)
    for (_, row), mine in itertools.groupby(every, lambda one: (one.step, one.row)):
        before = so_far.setdefault(int(row), _Sequence([]))
        accepted, count = [], 0
        for count, choice in enumerate(mine, 1):
            yield choice, before.ids(count - 1)
            # The places after a draft were judged with it, whether it stood or not.
            drafted = choice.drafted_id
            before.draft(count - 1, int(choice.token_id if pd.isna(drafted) else drafted))
            if choice.accepted is True or choice.accepted is np.True_:
                accepted.append(int(choice.token_id))
        before.add(accepted)


class _Sequence:
    """Ids that grow, without a copy for each step that looks at them."""

    def __init__(self, ids: list[int]) -> None:
        self._room = np.array(ids, np.int64)
        self._count = len(ids)

    def ids(self, drafted: int = 0) -> Any:
        """The ids so far, with some drafted ones; true until the next change."""
        return self._room[: self._count + drafted]

    def draft(self, after: int, token: int) -> None:
        """Put an id behind so many drafted ones."""
        place = self._count + after
        if place >= len(self._room):
            self._room = np.concatenate([self._room, np.empty(place + 1, np.int64)])
        self._room[place] = token

    def add(self, ids: list[int]) -> None:
        """Go on by these ids, whatever was drafted."""
        for number, token in enumerate(ids):
            self.draft(number, token)
        self._count += len(ids)


def _along_beams(
    choices: pd.DataFrame, prompts: dict[int, list[int]]
) -> Iterator[tuple[Any, list[int]]]:
    """Rows of beam search change places, so each step's ids are those of the row it came from."""
    ways = dict(prompts)
    for _, mine in choices.groupby("step", sort=True):
        after = {}
        for choice in mine.itertuples():
            ids = ways.get(int(choice.parent_row), [])
            yield choice, list(ids)
            if choice.offset == 0:
                after[int(choice.row)] = [*ids, int(choice.token_id)]
        ways = after


def _of_beams(trace: Trace, call: int, prompts: dict[int, list[int]]) -> dict[int, list[int]]:
    """Prompts by beam, out of prompts by returned sequence."""
    columns = ["beams", "return_sequences"]
    ((beams, returned),) = trace.read("calls", columns, [("seq", "==", call)]).to_numpy()
    items = len(prompts) // int(returned)
    return {row: prompts[row // beams * returned] for row in range(items * int(beams))}


def _prompts(trace: Trace, call: int) -> dict[int, list[int]]:
    columns = ["row", "index", "position", "token_id", "origin", "part"]
    tokens = trace.read("tokens", columns, [("call", "==", call)])
    tokens = tokens[tokens["part"].ne("encoder").fillna(True)]  # no processor is given those ids
    prompt = tokens[(tokens["origin"] != "generated") & tokens["position"].notna()]
    prompt = prompt.dropna(subset=["token_id"]).sort_values("index")
    grouped = prompt.groupby("row")["token_id"]
    return {int(row): [int(one) for one in ids] for row, ids in grouped}
