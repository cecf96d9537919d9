"""What becomes a stop, as a trace holds it: events, chosen tokens and pictures, not walked yet.

A token hangs below the forward that it was chosen in, a picture below the call that met it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracer.replaying.columns import Names, encoded, looked_up, place_in, reals, threads_of, whole
from tracer.replaying.tree import Numbers
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

Nodes = dict[str, npt.NDArray[Any]]
"""Columns of stops that are not walked yet; `parent` and `call` are still seqs."""


def events_of(trace: Trace, names: Names, threads: Names) -> Nodes:
    """All events by seq."""
    parts = [_event_rows(trace, kind, names, threads) for kind in EVENT_KINDS]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["thread"] = threads_of(columns.pop("rank"), columns["thread"], threads)
    seq = columns["seq"]
    if (seq[1:] >= seq[:-1]).all():
        return columns
    order = np.argsort(seq, kind="stable")
    return {name: values[order] for name, values in columns.items()}


def _event_rows(trace: Trace, kind: str, names: Names, threads: Names) -> Nodes:
    table = TABLE_OF[kind]
    own = {"module": ["step", "class_name"], "step": ["step"]}.get(kind, [])
    rows = encoded(trace, table, [*_COMMON, *own])
    count = rows.num_rows
    name = names.of(rows["name"])
    if kind == "module":  # the model itself has an empty path
        (empty,) = names.of(pa.array([""]))
        name = np.where(name == empty, names.of(rows["class_name"]), name)
    return {
        "kind": np.full(count, KINDS.index(kind)),
        "row": np.arange(count),
        "seq": whole(rows["seq"], -1),
        "parent": whole(rows["parent"], -1),
        "call": whole(rows["call"], -1),
        "name": name,
        "rank": whole(rows["rank"], 0),
        "thread": threads.of(rows["thread"]),
        "stage": place_in(rows["stage"], tuple(STAGES)),
        "status": place_in(rows["status"], CALL_STATUS),
        "start_ns": reals(rows["start_ns"]),
        "duration_ns": reals(rows["duration_ns"]),
        "step": whole(rows["step"], -1) if own else np.full(count, -1),
    }


def pictures_of(trace: Trace, names: Names) -> Nodes:
    """All pictures, each below the call that met it."""
    rows = trace.arrow("images", ["event", "call", "kind", "index"])
    kind, index = pc.fill_null(rows["kind"], ""), rows["index"].cast(pa.string())
    named = pc.binary_join_element_wise(kind, pc.fill_null(index, ""), " ")
    return _facts(rows, "image", "encode", names.of(named))


def tokens_of(trace: Trace, names: Names) -> Nodes:
    """Chosen tokens, each below the forward that it was chosen in."""
    rows = trace.arrow("choices", ["event", "call", "step", "text", "token_id"])
    ids = pc.binary_join_element_wise("#", rows["token_id"].cast(pa.string()), "")
    told = _facts(rows, "token", "decode", names.of(pc.coalesce(rows["text"], ids, "·")))
    told["step"] = whole(rows["step"], -1)
    forwards = trace.arrow("steps", ["seq", "call", "step", "stage"])
    forward = _forward_of(told["call"], told["step"], forwards)
    found = forward >= 0
    if found.any():
        seqs = whole(forwards["seq"], -1)
        stages = place_in(forwards["stage"], tuple(STAGES))
        told["parent"] = np.where(found, seqs[forward], told["parent"])
        told["stage"] = np.where(found, stages[forward], told["stage"])
    return told


def _forward_of(call: Numbers, step: Numbers, forwards: pa.Table) -> Numbers:
    """The row of `steps` with the same call and step, -1 for none."""
    calls, steps = whole(forwards["call"], -1), whole(forwards["step"], -1)
    if not len(calls) or not len(call):
        return np.full(len(call), -1)
    order = np.lexsort([steps, calls])
    # One number for the pair: calls by their place among the distinct ones.
    distinct, code = np.unique(calls, return_inverse=True)
    width = int(max(steps.max(), step.max())) + 2
    keys = (code * width + steps + 1)[order]
    asked = looked_up(distinct, np.arange(len(distinct)), call)
    return np.where(asked < 0, -1, looked_up(keys, order, asked * width + step + 1))


def _facts(rows: pa.Table, kind: str, stage: str, name: Numbers) -> Nodes:
    count = rows.num_rows
    return {
        "kind": np.full(count, KINDS.index(kind)),
        "row": np.arange(count),
        "seq": np.full(count, -1),
        "parent": whole(rows["event"], -1),
        "call": whole(rows["call"], -1),
        "name": name,
        "thread": np.full(count, -1),
        "stage": np.full(count, list(STAGES).index(stage)),
        "status": np.zeros(count, np.int64),
        "start_ns": np.full(count, np.nan),
        "duration_ns": np.zeros(count),
        "step": np.full(count, -1),
    }
