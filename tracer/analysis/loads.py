"""Which load a question is about: the user's call, and the model's own load inside it.

`AutoModel.from_pretrained` is one call, the `PreTrainedModel.from_pretrained` below it another:
the code of a model family is imported between the two, so time is asked of the outer one.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import pandas as pd

from tracer.trace import Trace

_OF_READS: Final = ["param", "file", "size_bytes", "queue_ns", "read_ns", "cast_ns"]


@dataclasses.dataclass(frozen=True)
class Load:
    """One load of a model.

    Attributes:
        call: seq of the outermost `from_pretrained` round it.
        inner: seq of the model's own load, to which facts and reads belong.
        model: Short id of the model; None where it was never built.
        thread: Thread of the call.
        start_ns: Start of the outermost call.
        duration_ns: Its wall time; None where it never ended.
    """

    call: int
    inner: int
    model: str | None
    thread: str
    start_ns: int
    duration_ns: int | None


def find_load(trace: Trace, call: int | None = None) -> Load | None:
    """The load that a call is, encloses or belongs to; of None the last load of the trace.

    Args:
        trace: Any trace.
        call: seq of a `from_pretrained`, the outer or the inner one.

    Returns:
        None where the trace has no such load of a model.
    """
    columns = ["seq", "parent", "stage", "name", "model", "start_ns", "duration_ns", "thread"]
    calls = trace.read("calls", columns, [("kind", "==", "from_pretrained")])
    calls = calls[calls["stage"] == "resolve"].set_index("seq", drop=False).sort_index()
    if calls.empty:
        return None
    outer = _outermost(trace, calls)
    inner = pd.Series(calls.index, outer).groupby(level=0).max()  # the deepest began last
    with_model = calls.index[calls["model"].notna()]
    known = pd.Series(with_model, outer[with_model]).groupby(level=0).min()
    inner = known.combine_first(inner).astype("int64")
    wanted = int(inner.index.max()) if call is None else _owner(call, outer, inner)
    if wanted is None:
        return None
    row, own = calls.loc[wanted], calls.loc[inner[wanted] if call not in with_model else call]
    return Load(
        call=wanted,
        inner=int(own["seq"]),
        model=None if pd.isna(own["model"]) else str(own["model"]),
        thread=str(row["thread"]),
        start_ns=int(row["start_ns"]),
        duration_ns=None if pd.isna(row["duration_ns"]) else int(row["duration_ns"]),
    )


def _owner(call: int, outer: pd.Series, inner: pd.Series) -> int | None:
    return int(outer[call]) if call in outer.index else call if call in inner.index else None


def _outermost(trace: Trace, calls: pd.DataFrame) -> pd.Series:
    """For each call the outermost of the calls that enclose it; itself for most."""
    spans = trace.read("spans", ["seq", "call"]).set_index("seq")["call"]
    others = trace.read("calls", ["seq"])["seq"]
    call_of = pd.concat([spans, pd.Series(others.to_numpy(), others)])
    above = call_of.reindex(calls["parent"].to_numpy()).set_axis(calls.index)
    outer = pd.Series(calls.index, calls.index)
    for seq in calls.index:  # in order of start: what encloses a call comes before it
        parent = above[seq]
        if pd.notna(parent) and parent in outer.index:
            outer[seq] = outer[parent]
    return outer


def events_of(trace: Trace, load: Load) -> pd.DataFrame:
    """Events inside a load, of all threads, itself among them, in order of start.

    Returns:
        Columns seq, parent, stage, name, thread, start_ns, duration_ns, table, and of reads param,
        file, size_bytes, queue_ns, read_ns, cast_ns. What has no duration is left out; what lies
        in it belongs to what encloses it.
    """
    common = ["seq", "parent", "stage", "name", "thread", "start_ns", "duration_ns"]
    reads = trace.read("tensor_loads", [*common, *_OF_READS]).assign(table="tensor_loads")
    parts = [reads]
    for table in ("calls", "spans"):
        part = trace.read(table, common).assign(table=table)
        parts.append(part.assign(**{name: _missing(reads[name], part) for name in _OF_READS}))
    events = pd.concat(parts, ignore_index=True).sort_values("seq")
    parents = dict(zip(events["seq"], events["parent"], strict=True))
    ended = set(events.loc[events["duration_ns"].notna(), "seq"])
    inside = {load.call}
    for seq, parent in parents.items():
        if parent in inside:
            inside.add(seq)
    events = events[events["seq"].isin(inside & ended)].reset_index(drop=True)
    events["parent"] = [_ended(parent, parents, ended) for parent in events["parent"]]
    return events


def _missing(like: pd.Series, rows: pd.DataFrame) -> pd.Series:
    return pd.Series(pd.NA, rows.index, dtype=like.dtype)


def _ended(seq: int, parents: dict[int, int], ended: set[int]) -> int:
    while seq in parents and seq not in ended:
        seq = parents[seq]
    return seq


def load_stages(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Stages of a load one after the other on its thread: what stands directly below its calls.

    Returns:
        Columns stage, name, start_ns, duration_ns, in order of start; gaps have no name.
    """
    columns = ["stage", "name", "start_ns", "duration_ns"]
    load = find_load(trace, call)
    if load is None:
        return trace.read("spans", columns, [("seq", "==", -1)])
    events = events_of(trace, load)
    is_load = (events["table"] == "calls") & (events["stage"] == "resolve")
    own = events[~is_load & events["parent"].isin(events.loc[is_load, "seq"])]
    own = own[(own["thread"] == load.thread) & (own["table"] != "tensor_loads")]
    return own.sort_values("start_ns")[columns].reset_index(drop=True)
