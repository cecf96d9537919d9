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
_COMMON: Final = ["seq", "parent", "call", "stage", "name", "start_ns", "duration_ns"]
_COMMON += ["thread", "rank", "status"]
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


@dataclasses.dataclass(slots=True)
class _Rows:
    """Nodes before they are walked: columns of one length, `parent` and `call` still seqs."""

    columns: dict[str, npt.NDArray[Any]]
    names: pa.Array
    threads: pa.Array


def stops_of(trace: Trace) -> Stops:
    """The stops of a trace."""
    pictures, events, tokens = _pictures(trace), _events(trace), _tokens(trace)
    # Pictures before what happened in their call, tokens after what happened in their step.
    parts = [pictures, events, tokens]
    nodes = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in events.columns
    }
    first_event = len(pictures.names)
    seqs = events.columns["seq"]
    parent = _parents(nodes, seqs, first_event)
    _give_times(nodes, parent)
    walked = walk(parent)
    columns = {name: values[walked.order] for name, values in nodes.items()}
    name, names = _coded([part.names for part in parts])
    thread, threads = _coded([part.threads for part in parts])
    name, thread = name[walked.order], thread[walked.order]
    place = np.empty(len(walked.order), np.int64)
    place[walked.order] = np.arange(len(place))
    in_order = np.argsort(seqs, kind="stable")
    found = Stops(
        columns={},
        seq=columns["seq"],
        names=names,
        threads=threads,
        sorted_seqs=seqs[in_order],
        place_of_seq=place[first_event + in_order],
    )
    # A token said thrice is three tokens.
    is_data = np.isin(columns["kind"], [KINDS.index("token"), KINDS.index("image")])
    is_own = columns["stage"] == list(STAGES).index("recorder")
    folded = folds(walked, columns["kind"], np.where(is_data, -1, name), names, skipped=is_own)
    found.columns.update(_told(walked, columns, name, thread, found))
    found.columns.update(_folds_told(folded, names))
    found.columns.update(_tokens_told(trace, walked, columns))
    return found


def _told(
    walked: Walk, columns: dict[str, Any], name: Numbers, thread: Numbers, found: Stops
) -> dict[str, Any]:
    step = _inherited(walked, columns["step"])
    return {
        "parent": walked.parent.astype("<i4"),
        "depth": fitting(walked.depth),
        "last": walked.last.astype("<i4"),
        "kind": columns["kind"].astype("<u1"),
        "stage": columns["stage"].astype("<u1"),
        "status": columns["status"].astype("<u1"),
        "name": fitting(name),
        "thread": fitting(thread),
        "start": (columns["start_ns"] / _MILLISECOND).astype("<f8"),
        "duration": (columns["duration_ns"] / _MILLISECOND).astype("<f4"),
        "step": step.astype("<i4"),
        "call": found.of_seqs(columns["call"]).astype("<i4"),
        "row": columns["row"].astype("<i4"),
    }


def _folds_told(folded: Folds, names: list[str]) -> dict[str, Any]:
    start = len(names)
    names += folded.names
    return {
        "fold": folded.fold.astype("<i4"),
        "fold_first": folded.first.astype("<i4"),
        "fold_last": folded.last.astype("<i4"),
        "fold_count": folded.count.astype("<i4"),
        "fold_name": (folded.name + start).astype("<i4"),
    }


def _tokens_told(trace: Trace, walked: Walk, columns: dict[str, Any]) -> dict[str, Any]:
    stop = np.flatnonzero(columns["kind"] == KINDS.index("token"))
    rows = trace.arrow("choices", ["entropy", "probability", "row"])
    row = columns["row"][stop]
    return {
        "token_stop": stop.astype("<i4"),
        "token_entropy": _reals(rows["entropy"])[row].astype("<f4"),
        "token_probability": _reals(rows["probability"])[row].astype("<f4"),
        "token_row": _whole(rows["row"], 0)[row].astype("<i4"),
    }


def _events(trace: Trace) -> _Rows:
    """All events by seq."""
    parts = [_event_rows(trace, kind) for kind in EVENT_KINDS]
    names = pa.concat_arrays([part.names for part in parts])
    threads = pa.concat_arrays([part.threads for part in parts])
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns
    }
    order = np.argsort(columns["seq"], kind="stable")
    return _Rows(
        {name: values[order] for name, values in columns.items()},
        names.take(pa.array(order)),
        threads.take(pa.array(order)),
    )


def _event_rows(trace: Trace, kind: str) -> _Rows:
    table = TABLE_OF[kind]
    has_step = kind in ("module", "step")
    own = ["step", "class_name"] if kind == "module" else ["step"] if kind == "step" else []
    rows = trace.arrow(table, [*_COMMON, *own])
    count = rows.num_rows
    names = _texts(rows["name"])
    if kind == "module":  # the model itself has an empty path
        names = pc.if_else(pc.equal(names, ""), _texts(rows["class_name"]), names)
    step = _whole(rows["step"], -1) if has_step else np.full(count, -1)
    columns = {
        "kind": np.full(count, KINDS.index(kind)),
        "row": np.arange(count),
        "seq": _whole(rows["seq"], -1),
        "parent": _whole(rows["parent"], -1),
        "call": _whole(rows["call"], -1),
        "stage": _place_in(rows["stage"], tuple(STAGES)),
        "status": _place_in(rows["status"], CALL_STATUS),
        "start_ns": _reals(rows["start_ns"]),
        "duration_ns": _reals(rows["duration_ns"]),
        "step": step,
    }
    return _Rows(columns, names, _thread_names(rows))


def _pictures(trace: Trace) -> _Rows:
    rows = trace.arrow("images", ["event", "call", "kind", "index"])
    names = pc.binary_join_element_wise(
        _texts(rows["kind"]), _texts(rows["index"].cast(pa.string())), " "
    )
    return _facts(rows, "image", "encode", names)


def _tokens(trace: Trace) -> _Rows:
    """Chosen tokens, each below the forward that it was chosen in."""
    rows = trace.arrow("choices", ["event", "call", "step", "text", "token_id"])
    ids = pc.binary_join_element_wise("id", rows["token_id"].cast(pa.string()), " ")
    names = pc.coalesce(rows["text"], ids, "·")
    told = _facts(rows, "token", "decode", _texts(names))
    step = _whole(rows["step"], -1)
    forwards = trace.arrow("steps", ["seq", "call", "step", "stage"])
    forward = _forward_of(told.columns["call"], step, forwards)
    found = forward >= 0
    if found.any():
        seqs = _whole(forwards["seq"], -1)
        stages = _place_in(forwards["stage"], tuple(STAGES))
        told.columns["parent"] = np.where(found, seqs[forward], told.columns["parent"])
        told.columns["stage"] = np.where(found, stages[forward], told.columns["stage"])
    told.columns["step"] = step
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


def _facts(rows: pa.Table, kind: str, stage: str, names: pa.Array) -> _Rows:
    count = rows.num_rows
    columns = {
        "kind": np.full(count, KINDS.index(kind)),
        "row": np.arange(count),
        "seq": np.full(count, -1),
        "parent": _whole(rows["event"], -1),
        "call": _whole(rows["call"], -1),
        "stage": np.full(count, list(STAGES).index(stage)),
        "status": np.zeros(count, np.int64),
        "start_ns": np.full(count, np.nan),
        "duration_ns": np.zeros(count),
        "step": np.full(count, -1),
    }
    return _Rows(columns, names, pa.nulls(count, pa.string()))


def _parents(nodes: dict[str, Any], seqs: Numbers, first_event: int) -> Numbers:
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


def _give_times(nodes: dict[str, Any], parent: Numbers) -> None:
    """A picture comes when its call begins, a token when its forward has ended."""
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
    found = pc.index_in(column, value_set=pa.array(known))
    return _whole(found, len(known) - 1)


def _texts(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    return pc.fill_null(whole, "")


def _thread_names(rows: pa.Table) -> pa.Array:
    """The thread; of a run of ranks with the rank in front."""
    thread, rank = _texts(rows["thread"]), rows["rank"]
    if not pc.any(pc.not_equal(rank, 0)).as_py():
        return thread
    return pc.binary_join_element_wise("rank", _texts(rank.cast(pa.string())), thread, " ")


def _coded(parts: list[pa.Array]) -> tuple[Numbers, list[str]]:
    """Texts as numbers, and the distinct texts that they point into."""
    whole = pc.fill_null(pa.concat_arrays(parts), "")
    coded = whole.dictionary_encode()
    return np.asarray(coded.indices.to_numpy(), np.int64), coded.dictionary.to_pylist()
