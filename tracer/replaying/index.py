"""The stops of a trace in the order of the walk, as columns: what a player moves through.

A stop is an event of the trace (samples of memory are none), a chosen token, or a picture. Whole
Arrow columns become whole arrays; no row is touched by itself, so a million take a second.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracer.replaying.buffers import fitting
from tracer.replaying.folds import Folds, folds
from tracer.replaying.tree import Numbers, Walk, walk
from tracer.schema import CALL_STATUS, STAGES

if TYPE_CHECKING:
    from tracer.trace import Trace

TABLE_OF: Final = {
    "call": "calls",
    "span": "spans",
    "tensor": "tensor_loads",
    "module": "modules",
    "step": "steps",
    "token": "choices",
    "image": "images",
    "message": "messages",
    "fault": "faults",
}
"""The kinds of stops, and the table that holds the rows of each."""
KINDS: Final = tuple(TABLE_OF)
EVENT_KINDS: Final = ("call", "span", "tensor", "module", "step", "message", "fault")
_COMMON: Final = [
    *("seq", "parent", "call", "stage", "name", "start_ns", "duration_ns"),
    *("thread", "rank", "status"),
]
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
        return _looked_up(self.sorted_seqs, self.place_of_seq, np.asarray(seqs, np.int64))


Nodes = dict[str, npt.NDArray[Any]]
"""Columns of stops that are not walked yet; `parent` and `call` are still seqs."""


class _Names:
    """Distinct texts, each with its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        return list(self._numbers)

    def of(self, column: pa.ChunkedArray | pa.Array) -> Numbers:
        """The number of each cell's text; a missing one counts as empty."""
        found = [self._of(part) for part in _parts(column)]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _of(self, part: pa.Array) -> Numbers:
        if not pa.types.is_dictionary(part.type):
            part = part.dictionary_encode()
        known = [text or "" for text in part.dictionary.to_pylist()] + [""]
        numbers = [self._numbers.setdefault(text, len(self._numbers)) for text in known]
        places = np.asarray(pc.fill_null(part.indices, len(known) - 1).to_numpy(), np.int64)
        return np.array(numbers, np.int64)[places]


def stops_of(trace: Trace) -> Stops:
    """The stops of a trace."""
    names, threads = _Names(), _Names()
    events = _events(trace, names, threads)
    # Pictures before what happened in their call, tokens after what happened in their step.
    parts = [_pictures(trace, names), events, _tokens(trace, names)]
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
        "token_entropy": _reals(rows["entropy"])[row].astype("<f4"),
        "token_probability": _reals(rows["probability"])[row].astype("<f4"),
        "token_row": _whole(rows["row"], 0)[row].astype("<i4"),
    }


def _events(trace: Trace, names: _Names, threads: _Names) -> Nodes:
    """All events by seq."""
    parts = [_event_rows(trace, kind, names, threads) for kind in EVENT_KINDS]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    seq = columns["seq"]
    if (seq[1:] >= seq[:-1]).all():
        return columns
    order = np.argsort(seq, kind="stable")
    return {name: values[order] for name, values in columns.items()}


def _event_rows(trace: Trace, kind: str, names: _Names, threads: _Names) -> Nodes:
    table = TABLE_OF[kind]
    own = {"module": ["step", "class_name"], "step": ["step"]}.get(kind, [])
    rows = _encoded(trace, table, [*_COMMON, *own])
    count = rows.num_rows
    name = names.of(rows["name"])
    if kind == "module":  # the model itself has an empty path
        (empty,) = names.of(pa.array([""]))
        name = np.where(name == empty, names.of(rows["class_name"]), name)
    return {
        "kind": np.full(count, KINDS.index(kind)),
        "row": np.arange(count),
        "seq": _whole(rows["seq"], -1),
        "parent": _whole(rows["parent"], -1),
        "call": _whole(rows["call"], -1),
        "name": name,
        "thread": _thread(rows, threads),
        "stage": _place_in(rows["stage"], tuple(STAGES)),
        "status": _place_in(rows["status"], CALL_STATUS),
        "start_ns": _reals(rows["start_ns"]),
        "duration_ns": _reals(rows["duration_ns"]),
        "step": _whole(rows["step"], -1) if own else np.full(count, -1),
    }


def _thread(rows: pa.Table, threads: _Names) -> Numbers:
    """The thread; of a run of ranks with the rank in front."""
    thread, rank = threads.of(rows["thread"]), _whole(rows["rank"], 0)
    if not rank.any():
        return thread
    texts = threads.texts
    pairs, place = np.unique(np.stack([rank, thread]), axis=1, return_inverse=True)
    named = threads.of(pa.array([f"rank {at} {texts[one]}" for at, one in pairs.T]))
    return named[place.ravel()]


def _encoded(trace: Trace, table: str, columns: list[str]) -> pa.Table:
    """Some columns of a table, each distinct text of a batch there once."""
    batches = list(trace.store.batches(table, columns, encoded=True))
    return pa.Table.from_batches(batches) if batches else trace.arrow(table, columns, limit=0)


def _pictures(trace: Trace, names: _Names) -> Nodes:
    rows = trace.arrow("images", ["event", "call", "kind", "index"])
    kind, index = pc.fill_null(rows["kind"], ""), rows["index"].cast(pa.string())
    named = pc.binary_join_element_wise(kind, pc.fill_null(index, ""), " ")
    return _facts(rows, "image", "encode", names.of(named))


def _tokens(trace: Trace, names: _Names) -> Nodes:
    """Chosen tokens, each below the forward that it was chosen in."""
    rows = trace.arrow("choices", ["event", "call", "step", "text", "token_id"])
    ids = pc.binary_join_element_wise("id", rows["token_id"].cast(pa.string()), " ")
    told = _facts(rows, "token", "decode", names.of(pc.coalesce(rows["text"], ids, "·")))
    told["step"] = _whole(rows["step"], -1)
    forwards = trace.arrow("steps", ["seq", "call", "step", "stage"])
    forward = _forward_of(told["call"], told["step"], forwards)
    found = forward >= 0
    if found.any():
        seqs = _whole(forwards["seq"], -1)
        stages = _place_in(forwards["stage"], tuple(STAGES))
        told["parent"] = np.where(found, seqs[forward], told["parent"])
        told["stage"] = np.where(found, stages[forward], told["stage"])
    return told


def _forward_of(call: Numbers, step: Numbers, forwards: pa.Table) -> Numbers:
    """The row of `steps` with the same call and step, -1 for none."""
    calls, steps = _whole(forwards["call"], -1), _whole(forwards["step"], -1)
    if not len(calls) or not len(call):
        return np.full(len(call), -1)
    order = np.lexsort([steps, calls])
    # One number for the pair: calls by their place among the distinct ones.
    distinct, code = np.unique(calls, return_inverse=True)
    width = int(max(steps.max(), step.max())) + 2
    keys = (code * width + steps + 1)[order]
    asked = _looked_up(distinct, np.arange(len(distinct)), call)
    return np.where(asked < 0, -1, _looked_up(keys, order, asked * width + step + 1))


def _facts(rows: pa.Table, kind: str, stage: str, name: Numbers) -> Nodes:
    count = rows.num_rows
    return {
        "kind": np.full(count, KINDS.index(kind)),
        "row": np.arange(count),
        "seq": np.full(count, -1),
        "parent": _whole(rows["event"], -1),
        "call": _whole(rows["call"], -1),
        "name": name,
        "thread": np.full(count, -1),
        "stage": np.full(count, list(STAGES).index(stage)),
        "status": np.zeros(count, np.int64),
        "start_ns": np.full(count, np.nan),
        "duration_ns": np.zeros(count),
        "step": np.full(count, -1),
    }


def _parents(nodes: Nodes, seqs: Numbers, first_event: int) -> Numbers:
    """The node that each hangs below: its parent's, else its call's; -1 where neither is there."""
    own = np.arange(len(nodes["seq"]))
    is_event = nodes["seq"] >= 0
    found = np.full(len(own), -1)
    for name in ("parent", "call"):
        asked = _looked_up(seqs, np.arange(len(seqs)) + first_event, nodes[name])
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


def _looked_up(keys: Numbers, values: Numbers, asked: Numbers) -> Numbers:
    """The value of each asked key, -1 for one that isn't there; keys rise."""
    if not len(keys):
        return np.full(len(asked), -1)
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, values[at], -1)


def _whole(column: pa.ChunkedArray, missing: int) -> Numbers:
    return np.asarray(pc.fill_null(column, missing).to_numpy(), np.int64)


def _reals(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    return np.array(column.cast(pa.float64()).to_numpy(), np.float64)


def _place_in(column: pa.ChunkedArray, known: tuple[str, ...]) -> Numbers:
    """The number of each text in a short list; an unknown one counts as the last."""
    found = [_place_of(part, known) for part in _parts(column)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _place_of(part: pa.Array, known: tuple[str, ...]) -> Numbers:
    if not pa.types.is_dictionary(part.type):
        part = part.dictionary_encode()
    last = len(known) - 1
    numbers = [known.index(one) if one in known else last for one in part.dictionary.to_pylist()]
    places = np.asarray(pc.fill_null(part.indices, len(numbers)).to_numpy(), np.int64)
    return np.array([*numbers, last], np.int64)[places]


def _parts(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
