"""The recorded chain of processors run again over the recorded logits, without torch or a model.

It proves a run: greedy decoding gives each token again, sampling the score of each. And it answers
what-if: with other parameters, what would have been chosen *at that step*, everything before it as
it was. Without `logits=True` the scores are those of the recorded candidates alone, and what
follows from them is labelled `estimated`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracer.analysis.generation import call_or_last
from tracer.analysis.processors import PROCESSORS, Parameters, Scores, log_softmax
from tracer.trace import Trace

_LIBRARY = "transformers"
_BEAM = -1  # in place of an offset: what a row of the forward gave, whatever was chosen from it


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


def process(ids: list[int], scores: Scores, chain: Sequence[Link], row: int = 0) -> Scores:
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
    links = chain_of(trace, call) if chain is None else list(chain)
    stops_at = replayable_until(links)
    choices = _choices(trace, call)
    is_search = "beam" in _mode(trace, call)
    scores = _scores(trace, call, is_search)
    rows = []
    for choice, ids in _with_ids(trace, call, choices, is_search):
        place = (choice.step, choice.row, choice.offset)
        if is_search and place not in scores:  # a beam's row of logits, for all that came of it
            place = (choice.step, choice.parent_row, _BEAM)
        known = scores.get(place)
        if known is None:
            continue
        basis, given = known
        row = int(choice.parent_row if is_search else choice.row)
        final = process(ids, log_softmax(given) if is_search else given, links, row)
        token = int(choice.token_id)
        rows.append(
            {
                "step": choice.step,
                "row": choice.row,
                "offset": choice.offset,
                "token_id": token,
                "score": None if is_search else choice.score,
                "logprob": choice.logprob,
                "replayed_id": int(final.argmax()),
                "replayed_score": float(final[token]),
                "replayed_logprob": float(log_softmax(final)[token]),
                "stops_at": stops_at,
                "basis": basis,
            }
        )
    return pd.DataFrame(rows, columns=_COLUMNS).astype({"stops_at": "Int64"})


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
    return choices[choices["token_id"].notna()].sort_values(["step", "offset", "row"])


def _scores(
    trace: Trace, call: int, is_search: bool
) -> dict[tuple[int, int, int], tuple[str, Scores]]:
    """Raw scores by step, row and offset, with what they rest on."""
    found: dict[tuple[int, int, int], tuple[str, Scores]] = {}
    where = [("call", "==", call)]
    columns = ["step", "row", "offset", "token_id", "raw_logit"]
    candidates = trace.read("candidates", columns, where).dropna(subset=["token_id"])
    size = int(candidates["token_id"].max()) + 1 if len(candidates) else 0
    for (step, row, offset), mine in candidates.groupby(["step", "row", "offset"]):
        scores = np.full(size, -np.inf, np.float32)
        scores[mine["token_id"].astype("int64")] = mine["raw_logit"].astype("float32")
        found[int(step), int(row), int(offset)] = ("estimated", scores)
    kept = trace.read("logits", ["step", "row", "offset", "dtype", "values"], where)
    if len(kept) and is_search:
        found.clear()
    for one in kept.dropna(subset=["values"]).itertuples():
        offset = _BEAM if is_search else one.offset
        found[one.step, one.row, offset] = ("measured", decode(one.values, one.dtype))
    return found


def decode(values: bytes, dtype: str) -> Scores:
    """A row of recorded logits as single precision, which is what the library makes of it first."""
    if dtype == "bfloat16":  # the upper half of a single
        return (np.frombuffer(values, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(values, np.dtype(dtype)).astype(np.float32)


def _with_ids(
    trace: Trace, call: int, choices: pd.DataFrame, is_search: bool
) -> Iterator[tuple[Any, list[int]]]:
    """Each choice with the ids that its processors were given."""
    prompts = _prompts(trace, call)
    if is_search:
        yield from _along_beams(choices, _of_beams(trace, call, prompts))
        return
    so_far = {row: list(ids) for row, ids in prompts.items()}
    for _, mine in choices.groupby(["step", "row"], sort=False):
        before = so_far.setdefault(int(mine["row"].iloc[0]), [])
        ids = list(before)
        for choice in mine.itertuples():
            yield choice, list(ids)
            # The places after a draft were judged with it, whether it stood or not.
            drafted = choice.drafted_id
            ids.append(int(choice.token_id if pd.isna(drafted) else drafted))
            if choice.accepted is True or choice.accepted is np.True_:
                before.append(int(choice.token_id))


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
    columns = ["row", "index", "position", "token_id", "origin"]
    tokens = trace.read("tokens", columns, [("call", "==", call)])
    prompt = tokens[(tokens["origin"] != "generated") & tokens["position"].notna()]
    prompt = prompt.dropna(subset=["token_id"]).sort_values("index")
    grouped = prompt.groupby("row")["token_id"]
    return {int(row): [int(one) for one in ids] for row, ids in grouped}
