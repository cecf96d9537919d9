"""The stops of a trace in the order of the walk, as columns: what a player moves through.

A stop is an event of the trace (samples of memory are none), a chosen token, or a picture. Whole
Arrow columns become whole arrays; no row is touched by itself, so a million take a second.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tracer.replaying.buffers import fitting
from tracer.replaying.columns import Names, looked_up, reals, whole
from tracer.replaying.folds import Folds, folds
from tracer.replaying.nodes import KINDS, Nodes, events_of, pictures_of, tokens_of
from tracer.replaying.tree import Numbers, Walk, walk
from tracer.schema import STAGES

if TYPE_CHECKING:
    from tracer.trace import Trace

_MILLISECOND: Final = 1e6


@dataclasses.dataclass(frozen=True, slots=True)
class Stops:
    """All stops, as arrays of one length in the order of the walk unless said otherwise.

    Attributes:
        columns: What the page script gets, by name; see the package's contract.
        seq: `seq` of an event, -1 of a token or picture.
        names: Distinct names.
        threads: Distinct threads.
        sorted_seqs: `seq` of all events, rising; `place_of_seq` has the stop of each.
    """

    columns: dict[str, npt.NDArray[Any]]
    seq: Numbers
    names: list[str]
    threads: list[str]
    sorted_seqs: Numbers
    place_of_seq: Numbers

    def __len__(self) -> int:
        return len(self.seq)

    def of_kind(self, kind: str) -> Numbers:
        """The stops of one kind."""
        return np.flatnonzero(self.columns["kind"] == KINDS.index(kind))

    def of_seqs(self, seqs: Any) -> Numbers:
        """The stop of each event, -1 where there is none."""
        return looked_up(self.sorted_seqs, self.place_of_seq, np.asarray(seqs, np.int64))


def stops_of(trace: Trace) -> Stops:
    """The stops of a trace."""
    names, threads = Names(), Names()
    events = events_of(trace, names, threads)
    # Pictures before what happened in their call, tokens after what happened in their step.
    parts = [pictures_of(trace, names), events, tokens_of(trace, names)]
    first_event = len(parts[0]["seq"])
    nodes = {name: np.concatenate([part[name] for part in parts]) for name in events}
    parent = _parents(nodes, events["seq"], first_event)
    _give_times(nodes, parent)
    walked = walk(parent)
    columns = {name: values[walked.order] for name, values in nodes.items()}
    place = np.empty(len(walked.order), np.int64)
    place[walked.order] = np.arange(len(place))
    found = Stops(
        columns={},
        seq=columns["seq"],
        names=names.texts,
        threads=threads.texts or [""],
        sorted_seqs=events["seq"],
        place_of_seq=place[first_event : first_event + len(events["seq"])],
    )
    # A token said thrice is three tokens.
    is_data = np.isin(columns["kind"], [KINDS.index("token"), KINDS.index("image")])
    named = np.where(is_data, -1, columns["name"])
    is_own = columns["stage"] == list(STAGES).index("recorder")
    folded = folds(walked, columns["kind"], named, found.names, skipped=is_own)
    found.columns.update(_told(walked, columns, found))
    found.columns.update(_folds_told(folded, found.names))
    found.columns.update(_tokens_told(trace, walked, columns))
    return found


def _told(walked: Walk, columns: Nodes, found: Stops) -> Nodes:
    step = _inherited(walked, columns["step"])
    return {
        "parent": walked.parent.astype("<i4"),
        "depth": fitting(walked.depth),
        "last": walked.last.astype("<i4"),
        "kind": columns["kind"].astype("<u1"),
        "stage": columns["stage"].astype("<u1"),
        "status": columns["status"].astype("<u1"),
        "name": fitting(columns["name"]),
        "thread": fitting(columns["thread"]),
        "start": (columns["start_ns"] / _MILLISECOND).astype("<f8"),
        "duration": (columns["duration_ns"] / _MILLISECOND).astype("<f4"),
        "step": step.astype("<i4"),
        "call": found.of_seqs(columns["call"]).astype("<i4"),
        "row": columns["row"].astype("<i4"),
    }


def _folds_told(folded: Folds, names: list[str]) -> Nodes:
    start = len(names)
    names += folded.names
    return {
        "fold": folded.fold.astype("<i4"),
        "fold_first": folded.first.astype("<i4"),
        "fold_last": folded.last.astype("<i4"),
        "fold_count": folded.count.astype("<i4"),
        "fold_name": (folded.name + start).astype("<i4"),
    }


def _tokens_told(trace: Trace, walked: Walk, columns: Nodes) -> Nodes:
    stop = np.flatnonzero(columns["kind"] == KINDS.index("token"))
    rows = trace.arrow("choices", ["entropy", "probability", "row"])
    row = columns["row"][stop]
    return {
        "token_stop": stop.astype("<i4"),
        "token_entropy": reals(rows["entropy"])[row].astype("<f4"),
        "token_probability": reals(rows["probability"])[row].astype("<f4"),
        "token_row": whole(rows["row"], 0)[row].astype("<i4"),
    }


def _parents(nodes: Nodes, seqs: Numbers, first_event: int) -> Numbers:
    """The node that each hangs below: its parent's, else its call's; -1 where neither is there."""
    own = np.arange(len(nodes["seq"]))
    is_event = nodes["seq"] >= 0
    found = np.full(len(own), -1)
    for name in ("parent", "call"):
        asked = looked_up(seqs, np.arange(len(seqs)) + first_event, nodes[name])
        # An event starts after the one that it is in; anything else is no tree.
        fits = (asked >= 0) & (~is_event | (asked < own))
        found = np.where((found < 0) & fits, asked, found)
    return found


def _give_times(nodes: Nodes, parent: Numbers) -> None:
    """A picture comes when its call begins, a token when its forward has ended, on its thread."""
    is_data = (nodes["thread"] < 0) & (parent >= 0)
    nodes["thread"][is_data] = nodes["thread"][parent[is_data]]
    nodes["thread"][nodes["thread"] < 0] = 0
    start, duration = nodes["start_ns"], nodes["duration_ns"]
    for kind, after in (("image", 0.0), ("token", 1.0)):
        places = np.flatnonzero((nodes["kind"] == KINDS.index(kind)) & (parent >= 0))
        above = parent[places]
        start[places] = start[above] + after * np.nan_to_num(duration[above])


def _inherited(walked: Walk, values: Numbers) -> Numbers:
    """Each one's own value, else that of the nearest above that has one; -1 is none."""
    values = values.copy()
    for level in walked.levels[1:]:
        above = values[walked.parent[level]]
        values[level] = np.where(values[level] < 0, above, values[level])
    return values
