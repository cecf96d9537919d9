"""What each file of a load cost and gave: bytes mapped and bytes read, speed, and what was left.

A mapped tensor is a view of the file's pages: nothing was read for it, so it has no speed. How
fast bytes came says nothing of a disk unless they came from one: that is in `load_memory.py`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from tracer.analysis.load_time import load_time
from tracer.analysis.loads import Load, find_load
from tracer.trace import Trace

_READ_WHOLE: Final = ("pread", "bytes")
_TIMES: Final = ("queue", "read", "cast", "wait", "convert", "place")


def read_tensors(trace: Trace, load: Load | None) -> pd.DataFrame:
    """The reads of a load, each told whether its bytes were really read.

    Returns:
        Columns key, file, worker, size_bytes, start_ns, duration_ns, read_ns, cast_ns,
        minor_faults, major_faults, and is_read: False for a view of the file's pages, missing
        where that is not known (a tensor that came whole out of a `.bin`).
    """
    columns = ["key", "file", "worker", "size_bytes", "start_ns", "duration_ns", "read_ns"]
    columns += ["cast_ns", "minor_faults", "major_faults", "mapped"]
    where = [("call", "==", -1 if load is None else load.inner)]
    reads = trace.read("tensor_loads", columns, where)
    access = _files(trace, load).set_index("file")["access"]
    whole = set(access.index[access.isin(_READ_WHOLE)])
    mapped = reads.pop("mapped")
    reads["is_read"] = (~mapped).mask(reads["file"].isin(whole) & mapped.notna(), True)
    return reads


def load_files(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """What each weight file gave and took.

    Args:
        trace: A trace with a load.
        call: seq of the load's call; None for the last load.

    Returns:
        Columns file, tensors, size_bytes (of the tensors), mapped_bytes (views: nothing read),
        read_bytes (really read, by an index or a cast), opened_ns (headers; of a `.bin` all that
        is read at once), queue_ns, read_ns, cast_ns, wait_ns, convert_ns, place_ns (of whichever
        thread), busy_ns (some thread was at one of its tensors), mb_per_s (read_bytes over the
        time in which they were; missing where nothing was read), minor_faults, major_faults.
    """
    load = find_load(trace, call)
    reads = read_tensors(trace, load)
    groups = list(reads.groupby("file", sort=True))
    found = pd.DataFrame([_account(name, own) for name, own in groups], columns=[*_OWN])
    files = _files(trace, load)
    found = found.merge(files[["file", "opened_ns"]], how="left", on="file")
    times = load_time(trace, call)
    for part in _TIMES:
        sums = times[times["part"] == part].groupby("file")["total_ns"].sum()
        found[f"{part}_ns"] = [sums.get(name, 0) for name in found["file"]]
    order = ["file", "tensors", "size_bytes", "mapped_bytes", "read_bytes", "opened_ns"]
    order += [f"{part}_ns" for part in _TIMES if part != "queue"]
    order += ["busy_ns", "mb_per_s", "minor_faults", "major_faults"]
    types = dict.fromkeys(order, "Int64") | {"file": "string", "mb_per_s": "Float64"}
    return found[order].astype(types)


def load_progress(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """What was known, loaded and left when the last tensor of each file had been read.

    Generation 5 reads all headers first and then goes by name through all files; generation 4
    goes file by file.

    Returns:
        Columns file (in the order in which they were finished), after_ns (since the call began),
        known_tensors (of files whose header had been read), loaded_tensors, loaded_bytes,
        left_tensors and left_bytes (in all headers, not loaded; in the end what nobody wanted).
    """
    load = find_load(trace, call)
    inner = -1 if load is None else load.inner
    held = trace.read("checkpoint_tensors", ["file", "size_bytes"], [("call", "==", inner)])
    reads = read_tensors(trace, load)
    reads["end_ns"] = reads["start_ns"] + reads["duration_ns"]
    if held.empty:  # tensors of a file without a header: what was loaded is all that is known
        held = reads[["file", "size_bytes"]]
    files = _files(trace, load).set_index("file")
    counts = held.groupby("file").size()
    rows = []
    for name, end in reads.groupby("file")["end_ns"].max().sort_values().items():
        done = reads[reads["end_ns"] <= end]
        known = files.index[files["known_ns"] <= end]
        loaded = int(done["size_bytes"].sum())
        row = {"file": name, "after_ns": end - (load.start_ns if load else 0)}
        row |= {"known_tensors": counts.reindex(known).sum(), "loaded_tensors": len(done)}
        row |= {"loaded_bytes": loaded, "left_tensors": len(held) - len(done)}
        rows.append(row | {"left_bytes": int(held["size_bytes"].sum()) - loaded})
    columns = ["file", "after_ns", "known_tensors", "loaded_tensors", "loaded_bytes"]
    columns += ["left_tensors", "left_bytes"]
    types = dict.fromkeys(columns, "Int64") | {"file": "string"}
    return pd.DataFrame(rows, columns=columns).astype(types)


_OWN: Final = (
    *("file", "tensors", "size_bytes", "mapped_bytes", "read_bytes", "busy_ns", "mb_per_s"),
    *("minor_faults", "major_faults"),
)


def _account(name: Any, own: pd.DataFrame) -> list[Any]:
    is_read, is_mapped = own["is_read"].fillna(False), (~own["is_read"]).fillna(False)
    read_bytes = own.loc[is_read, "size_bytes"].sum()
    reading = covered_ns(own[is_read])
    return [
        name, len(own), own["size_bytes"].sum(), own.loc[is_mapped, "size_bytes"].sum(),
        read_bytes, covered_ns(own),
        read_bytes / reading * 1e3 if read_bytes and reading else None,  # bytes a ns, in MB a s
        own["minor_faults"].sum(min_count=1), own["major_faults"].sum(min_count=1),
    ]  # fmt: skip


def covered_ns(events: pd.DataFrame) -> int:
    """Length of the union of some events' times: what happens at once counts once."""
    events = events.dropna(subset=["start_ns", "duration_ns"]).sort_values("start_ns")
    if events.empty:
        return 0
    starts = events["start_ns"].to_numpy("int64")
    ends = starts + events["duration_ns"].to_numpy("int64")
    reached = np.maximum.accumulate(np.concatenate([starts[:1], ends]))
    return int(np.maximum(0, ends - np.maximum(starts, reached[:-1])).sum())


def _files(trace: Trace, load: Load | None) -> pd.DataFrame:
    """The weight files of a load: access, time spent opening them, and when they were known."""
    inner = -1 if load is None else load.inner
    where: list[Any] = [("call", "==", inner), ("kind", "==", "weights")]
    files = trace.read("files", ["path", "access"], where).rename(columns={"path": "file"})
    spans = trace.read("spans", ["name", "start_ns", "duration_ns"], [
        ("call", "==", inner), ("stage", "==", "metadata"),
    ])  # fmt: skip
    spans["end_ns"] = spans["start_ns"] + spans["duration_ns"]
    opened = spans.groupby("name").agg(opened_ns=("duration_ns", "sum"), known_ns=("end_ns", "min"))
    return files.merge(opened.rename_axis("file").reset_index(), how="left", on="file")


def shard_map(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Where each tensor lies in its file, and when it was read.

    Returns:
        Columns file, key, dtype, offset_bytes, size_bytes, read_at_ns (start of the read, from the
        first one; missing where it never was), in the order of the files and offsets.
    """
    load = find_load(trace, call)
    where = [("call", "==", -1 if load is None else load.inner)]
    columns = ["file", "key", "dtype", "offset_bytes", "size_bytes"]
    tensors = trace.read("checkpoint_tensors", columns, where)
    reads = trace.read("tensor_loads", ["file", "key", "start_ns"], where)
    reads["read_at_ns"] = reads["start_ns"] - reads["start_ns"].min()
    first = reads.drop_duplicates(["file", "key"])[["file", "key", "read_at_ns"]]
    found = tensors.merge(first, how="left", on=["file", "key"])
    return found.sort_values(["file", "offset_bytes"]).reset_index(drop=True)
