"""Where the wall time of a load went: by stage, by thread and by file, nothing left over.

The loading thread's rows add up to the wall time of the user's call; worker threads run beside it,
so theirs are told apart. Times are host times: on an accelerator work is queued, not awaited.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from tracer.analysis.loads import Load, events_of, find_load
from tracer.trace import Trace

PARTS: Final = {
    "import": "code of the model family imported",
    "resolve": "from the asked name to files",
    "config": "configurations read",
    "metadata": "headers and index of the files; of a .bin all that is read at once",
    "meta_init": "the model built on meta",
    "queue": "names matched and reads handed to the workers",
    "read": "tensors indexed in their file: mapped, or really read",
    "cast": "tensors cast or copied to dtype and device",
    "wait": "the loading thread waits for a worker",
    "convert": "names and tensors turned into those of the model",
    "place": "tensors set as parameters",
    "loop": "the library's own work between one tensor and the next",
    "initialise": "what no file held",
    "tie": "names tied to one storage",
    "dispatch": "devices and hooks",
    "verify": "values compared with their sources",
    "tokenizer": "tokenizer read",
    "processor": "processor read",
    "recorder": "the lab's own work",
    "unexplained": "what no observed function covers",
}
"""What the time of a load is told by, in order, with what each part means."""

_ROOM: Final = ("queue", "loop", "unexplained")
_EXACT: Final = ("read", "cast", "wait", "convert", "place", "recorder")
"""Measured from call to return of the library's own function: no work of the recorder in them."""

_COLUMNS: Final = ["thread", "is_loading", "part", "file", "events", "total_ns"]
_NANOSECONDS: Final = ["wait_ns", "convert_ns", "place_ns"]


def load_time(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """The time of a load by thread, part and file.

    An event's own time, without what is named inside it, belongs to its stage. Waiting, converting
    and placing are known as sums a parameter; `queue` is derived from the moment of the last
    submission (generation 5), the recorder's part between events from the call's `recorder_ns`.

    Args:
        trace: A trace with a load, of any generation of the library.
        call: seq of the load's call; None for the last load.

    Returns:
        Columns thread, is_loading (the thread of the call, whose rows add up to the call's wall
        time), part (of `PARTS`), file (missing for what belongs to no one file), events,
        total_ns.
    """
    load = find_load(trace, call)
    if load is None or load.duration_ns is None:
        return _empty()
    events = events_of(trace, load)
    inside = events["parent"].map(dict(zip(events["seq"], events["thread"], strict=True)))
    # A worker's reads lie below an event of the loading thread, whose time they don't take.
    is_own = (inside == events["thread"]) | inside.isna()
    taken = events[is_own].groupby("parent")["duration_ns"].sum().to_dict()
    events["own_ns"] = events["duration_ns"] - [taken.get(seq, 0) for seq in events["seq"]]
    events["is_beside"] = ~is_own
    rows = [_plain(events), _reads(events)]
    rows += [_frames(trace, load, events)]
    found = pd.concat(rows, ignore_index=True)
    recorder = trace.read("calls", ["recorder_ns"], [("seq", "==", load.call)])["recorder_ns"]
    found = _with_recorder(found, load.thread, int(recorder.fillna(0).sum()))
    return _summed(found, load.thread)


def by_part(times: pd.DataFrame) -> pd.DataFrame:
    """What `load_time` gives, summed over files: a row a part, in order.

    Returns:
        Columns part, events, total_ns (the loading thread's; they add up to the wall time), share
        (of the wall time), workers_ns (all other threads together, while the loading thread goes
        on).
    """
    own = times[times["is_loading"]].groupby("part")[["events", "total_ns"]].sum()
    beside = times[~times["is_loading"]].groupby("part")[["events", "total_ns"]].sum()
    parts = [part for part in PARTS if part in own.index or part in beside.index]
    found = own.reindex(parts).fillna(0).astype("Int64")
    found["share"] = (found["total_ns"] / max(1, found["total_ns"].sum())).astype("Float64")
    found["workers_ns"] = beside["total_ns"].reindex(parts).fillna(0).astype("Int64")
    only_beside = ~found.index.isin(own.index)
    found.loc[only_beside, "events"] = beside["events"].reindex(found.index[only_beside])
    return found.rename_axis("part").reset_index()


def worker_overlap(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """For how long so many tensors were being read at once: did workers help, or wait in turn?

    Returns:
        Columns reading (threads that read at the same time; 0 for gaps between the first and the
        last read), total_ns, share (of the time from the first read to the last).
    """
    load = find_load(trace, call)
    where = [("call", "==", -1 if load is None else load.inner)]
    reads = trace.read("tensor_loads", ["start_ns", "duration_ns"], where).dropna()
    starts = reads["start_ns"].to_numpy("int64")
    ends = starts + reads["duration_ns"].to_numpy("int64")
    times = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts), int), -np.ones(len(ends), int)])
    order = np.lexsort((steps, times))  # where one ends as another begins, it ends first
    lengths = np.diff(times[order])
    count = steps[order].cumsum()[:-1] if len(order) else np.array([], int)
    found = pd.DataFrame({"reading": count, "total_ns": lengths}).groupby("reading").sum()
    found = found[found["total_ns"] > 0].astype("Int64")
    found["share"] = (found["total_ns"] / max(1, found["total_ns"].sum())).astype("Float64")
    return found.reset_index()


def _empty() -> pd.DataFrame:
    types = {"is_loading": "boolean", "events": "Int64", "total_ns": "Int64"}
    return pd.DataFrame({name: pd.array([], types.get(name, "string")) for name in _COLUMNS})


def _rows(events: pd.DataFrame, part: Any, total: Any, count: Any = 1) -> pd.DataFrame:
    rows = events[["thread", "file"]].assign(part=part, total_ns=total, events=count)
    return rows[rows["total_ns"] != 0] if len(rows) else rows


def _is_frame(events: pd.DataFrame) -> pd.Series:
    """Library functions around the reads: their own time is told by what happens in it."""
    return (events["table"] == "spans") & (events["stage"] == "tensor_load")


def _plain(events: pd.DataFrame) -> pd.DataFrame:
    """Events whose own time is of their stage; a load's own body does nothing that has a name."""
    plain = events[(events["table"] != "tensor_loads") & ~_is_frame(events)]
    is_load = (plain["table"] == "calls") & (plain["stage"] == "resolve")
    return _rows(plain, plain["stage"].mask(is_load, "unexplained"), plain["own_ns"])


def _reads(events: pd.DataFrame) -> pd.DataFrame:
    """Reads in two parts. Of a tensor that came whole no read is seen, only the cast."""
    reads = events[events["table"] == "tensor_loads"]
    reading = reads["read_ns"].astype("Int64").fillna(0)
    read = _rows(reads[reads["read_ns"].notna()], "read", reading[reads["read_ns"].notna()])
    return pd.concat([read, _rows(reads, "cast", reads["duration_ns"] - reading)])


def _frames(trace: Trace, load: Load, events: pd.DataFrame) -> pd.DataFrame:
    """The own time of the functions around the reads: queue, wait, convert, place, and the rest."""
    frames = events[_is_frame(events)]
    named = _parameters(trace, load, events)
    queue = _rows(frames, "queue", [_handing_out(frame, events) for frame in frames.itertuples()])
    known = pd.concat([queue, named])
    told = known.groupby("thread")["total_ns"].sum()
    rest = frames.groupby("thread")["own_ns"].sum().sub(told, fill_value=0).reset_index(name="left")
    # Where such a function never ended, its time is that of what encloses it.
    part = ["loop" if left >= 0 else "unexplained" for left in rest["left"]]
    return pd.concat([known, _rows(rest.assign(file=pd.NA), part, rest["left"], 0)])


def _handing_out(frame: Any, events: pd.DataFrame) -> int:
    """From the frame's start to the last read's submission, less what is named in between."""
    below = events[events["parent"] == frame.seq]
    reads = below[(below["table"] == "tensor_loads") & below["queue_ns"].notna()]
    if reads.empty:
        return 0
    last = (reads["start_ns"] - reads["queue_ns"]).max()
    before = below[~below["is_beside"] & (below["start_ns"] < last) & (below["table"] == "spans")]
    return int(max(0, last - frame.start_ns - before["duration_ns"].sum()))


def _parameters(trace: Trace, load: Load, events: pd.DataFrame) -> pd.DataFrame:
    """What setting the parameters took: by thread and file where both are known."""
    columns = ["param", "sources", *_NANOSECONDS]
    placed = trace.read("placements", columns, [("call", "==", load.inner)])
    reads = events[events["table"] == "tensor_loads"]
    pairs = reads[["param", "file"]].dropna().drop_duplicates()
    files = pairs.drop_duplicates("param", keep=False).set_index("param")["file"].to_dict()
    placed["file"] = pd.array([files.get(name) for name in placed["param"]], "string")
    # In generation 4 the thread that reads a tensor sets it; in 5 the loading thread does.
    own = reads[~reads["is_beside"]].groupby("param").agg({"thread": "first", "duration_ns": "sum"})
    readers = own["thread"].to_dict()
    placed["thread"] = [readers.get(name, load.thread) for name in placed["param"]]
    # Without workers the loading thread reads when it asks for the tensor: that is no waiting.
    reading = own["duration_ns"].to_dict()
    waits = zip(placed["wait_ns"].fillna(0), placed["param"], strict=True)
    placed["wait_ns"] = [max(0, wait - reading.get(name, 0)) for wait, name in waits]
    placed[_NANOSECONDS] = placed[_NANOSECONDS].fillna(0).astype("int64")
    parts = [_rows(placed, name.removesuffix("_ns"), placed[name]) for name in _NANOSECONDS]
    return pd.concat(parts)


def _with_recorder(found: pd.DataFrame, thread: str, recorder_ns: int) -> pd.DataFrame:
    """Take the recorder's work between events out of the parts in which it was done.

    It is spread by their length over what lies between the library's functions, and what does not
    find room there over the functions themselves.
    """
    own = found["thread"] == thread
    found = found.assign(total_ns=found["total_ns"].astype("int64"))
    left = max(0, recorder_ns - found.loc[own & (found["part"] == "recorder"), "total_ns"].sum())
    row = {"thread": thread, "file": pd.NA, "part": "recorder", "total_ns": left, "events": 0}
    for is_room in (found["part"].isin(_ROOM), ~found["part"].isin([*_ROOM, *_EXACT])):
        room = found.loc[own & is_room, "total_ns"].clip(lower=0)
        taken = min(left, int(room.sum()))
        if taken:
            share = (room.cumsum() * (taken / room.sum())).round().astype("int64")
            found.loc[room.index, "total_ns"] -= share.diff().fillna(share.iloc[0]).astype("int64")
            left -= taken
    row["total_ns"] -= left
    return pd.concat([found, pd.DataFrame([row])], ignore_index=True)


def _summed(found: pd.DataFrame, thread: str) -> pd.DataFrame:
    keys = ["thread", "part", "file"]
    sums = found.groupby(keys, dropna=False, as_index=False)[["events", "total_ns"]].sum()
    sums["is_loading"] = sums["thread"] == thread
    order = {part: place for place, part in enumerate(PARTS)}
    sums["place"] = [order.get(part, len(order)) for part in sums["part"]]
    sums = sums.sort_values(
        ["is_loading", "thread", "place", "file"], ascending=[False] + [True] * 3
    )
    types = {"is_loading": "boolean", "events": "Int64", "total_ns": "Int64"}
    types |= dict.fromkeys(["thread", "part", "file"], "string")
    return sums[_COLUMNS].astype(types).reset_index(drop=True)
