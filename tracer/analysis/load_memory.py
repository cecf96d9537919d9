"""Memory and disk of a load: its peak, whether the files were in memory already, and who paid.

Memory is sampled at boundaries, every 50 ms while tensors are read, and around the first forward
of a model: a peak between two samples is not seen. Disk bytes and page faults are the process's.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import pandas as pd

from tracer.analysis.load_files import read_tensors
from tracer.analysis.loads import Load, find_load
from tracer.trace import Trace

_BEFORE_FORWARD: Final = "before the first forward"
_AFTER_FORWARD: Final = "after the first forward"
_MEASURES: Final = ["anonymous_bytes", "file_bytes", "device_allocated_bytes", "disk_bytes"]
_FAULTS: Final = ["minor_faults", "major_faults"]
# Of files on another machine, or in memory alone, the kernel may count nothing as read from disk.
_LOCAL: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay"})
_COLD, _PARTLY = 0.5, 0.02
"""From these shares of the touched bytes on, what came from the disk makes a run cold or partly."""


def load_memory(trace: Trace) -> pd.DataFrame:
    """Peak anonymous memory of each load beside the bytes of its weights, by the path they took.

    A mapped file needs none; a copy, a cast or a `.bin` that is read needs its own. Whatever else
    the process allocates meanwhile is in it.

    Returns:
        One row a load: call, model, format (of the weight files that were read), access, cast
        (stored and loaded dtype where they differ), weight_bytes (of the tensors read, as stored),
        samples, before_bytes, peak_bytes and after_bytes (anonymous memory), added_bytes (peak
        less before), times_weights (added over weight_bytes), file_added_bytes and
        device_added_bytes (the same for mapped pages and accelerators).
    """
    rows = [_memory_of(trace, load) for load in _loads(trace)]
    columns = ["call", "model", "format", "access", "cast", "weight_bytes", "samples"]
    columns += ["before_bytes", "peak_bytes", "after_bytes", "added_bytes", "times_weights"]
    columns += ["file_added_bytes", "device_added_bytes"]
    types = dict.fromkeys(columns, "Int64") | {"times_weights": "Float64"}
    types |= dict.fromkeys(["model", "format", "access", "cast"], "string")
    return pd.DataFrame(rows, columns=columns).astype(types)


def where_paid(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Who paid for the bytes: mapped reads, reads that cast or copy, or the first forward.

    Returns:
        A row each for `mapped` (tensors left as views), `read` (tensors cast or copied), `load`
        (all of the load, these two in it) and `first forward`: phase, tensors, size_bytes,
        total_ns (of reads all threads together), minor_faults, major_faults (of reads the
        thread's, else the process's), disk_bytes, file_added_bytes (pages of files that became
        resident), anonymous_added_bytes. Missing is what was not measured.
    """
    load = find_load(trace, call)
    rows: list[dict[str, Any]] = []
    if load is not None:
        reads = read_tensors(trace, load)
        rows = [_reads_row("mapped", reads[(~reads["is_read"]).fillna(False)])]
        rows += [_reads_row("read", reads[reads["is_read"].fillna(False)])]
        samples = _samples(trace)
        own = samples[samples["call"] == load.inner]
        rows.append(_growth("load", own) | {"total_ns": load.duration_ns})
        rows[-1] |= {"tensors": len(reads), "size_bytes": _weight_bytes(trace, load, reads)}
        forward = _first_forward(trace, load, samples)
        if not forward.empty:
            rows.append(_growth("first forward", forward))
    columns = ["phase", "tensors", "size_bytes", "total_ns", "minor_faults", "major_faults"]
    columns += ["disk_bytes", "file_added_bytes", "anonymous_added_bytes"]
    types = dict.fromkeys(columns, "Int64") | {"phase": "string"}
    return pd.DataFrame(rows, columns=columns).astype(types)


def cold_or_warm(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Whether the weights came from the disk, judged by bytes that were really read from it.

    A load that only maps its files tells nothing by itself: the first forward then does. How fast
    a warm load was says nothing of the disk.

    Returns:
        One row: verdict (`cold`, `partly cold`, `warm`, `unknown`), because, touched_bytes (of
        weights read in the load, or used by the first forward too where that was recorded),
        disk_bytes (in the load and that forward), disk_mb_per_s (at least so much: over the times
        between samples in which bytes came; missing unless cold), filesystem.
    """
    columns = ["verdict", "because", "touched_bytes", "disk_bytes", "disk_mb_per_s", "filesystem"]
    load = find_load(trace, call)
    rows = []
    if load is not None:
        paid = where_paid(trace, load.call).set_index("phase")
        systems = _weight_files(trace, load)["filesystem"].dropna().unique()
        rows = [_verdict(paid, sorted(systems))]
        if rows[0]["verdict"] == "cold":
            rows[0]["disk_mb_per_s"] = _disk_rate(trace, load)
    types = {"touched_bytes": "Int64", "disk_bytes": "Int64", "disk_mb_per_s": "Float64"}
    types |= dict.fromkeys(["verdict", "because", "filesystem"], "string")
    return pd.DataFrame(rows, columns=columns).astype(types)


def _verdict(paid: pd.DataFrame, systems: list[str]) -> dict[str, Any]:
    has_forward = "first forward" in paid.index
    phases = ["load", "first forward"] if has_forward else ["load"]
    touched = paid.loc["load" if has_forward else "read", "size_bytes"]
    disk = paid.loc[phases, "disk_bytes"].sum(skipna=False)
    # The kernel reads ahead of a page that is touched: of mapped files too much may have come.
    whole = touched or paid.loc["load", "size_bytes"]
    share = 0 if pd.isna(disk) or not whole else disk / whole
    found = {"touched_bytes": touched, "disk_bytes": disk, "filesystem": ", ".join(systems)}
    if pd.isna(disk):
        return found | {"verdict": "unknown", "because": "the system hides what came from the disk"}
    if share < _PARTLY:
        return found | _not_cold(touched, systems)
    verdict = "cold" if share >= _COLD else "partly cold"
    because = f"{min(1, share):.0%} of the weights' bytes came from the disk"
    return found | {"verdict": verdict, "because": because}


def _disk_rate(trace: Trace, load: Load) -> float | None:
    samples = _samples(trace)
    spans = [samples[samples["call"] == load.inner], _first_forward(trace, load, samples)]
    steps = pd.concat([span[["disk_bytes", "start_ns"]].diff() for span in spans])
    steps = steps[(steps["disk_bytes"] > 0).fillna(False)]
    spent = int(steps["start_ns"].sum())
    return int(steps["disk_bytes"].sum()) / spent * 1e3 if spent else None  # bytes a ns, MB a s


def _not_cold(touched: Any, systems: list[str]) -> dict[str, str]:
    strange = [name for name in systems if name not in _LOCAL]
    if not touched:
        because = "tensors were mapped and nothing of them read, nor was a forward recorded"
        return {"verdict": "unknown", "because": because}
    if strange or not systems:
        name = ", ".join(strange) or "a file system that is not known"
        because = f"what comes from {name} may not count as read from a disk"
        return {"verdict": "unknown", "because": because}
    return {"verdict": "warm", "because": "the bytes were in memory already: no speed of a disk"}


def _memory_of(trace: Trace, load: Load) -> dict[str, Any]:
    where = [("call", "==", load.inner)]
    columns = ["size_bytes", "stored_dtype", "loaded_dtype"]
    reads = trace.read("tensor_loads", columns, where)
    samples = _samples(trace)
    own = samples[samples["call"] == load.inner]
    files = _weight_files(trace, load)
    growth = _growth("", own, peak=True)
    anonymous = own["anonymous_bytes"].dropna()
    weights = _weight_bytes(trace, load, reads)
    found = {"call": load.call, "model": load.model, "weight_bytes": weights}
    found |= {"format": _joined(files["format"]), "access": _joined(files["access"])}
    found |= {"cast": _casts(reads), "samples": len(anonymous)}
    found |= {"added_bytes": growth["anonymous_added_bytes"]}
    found |= {name: growth[name] for name in ("file_added_bytes", "device_added_bytes")}
    if not anonymous.empty:
        found["before_bytes"], found["after_bytes"] = anonymous.iloc[0], anonymous.iloc[-1]
        found["peak_bytes"] = anonymous.max()
        found["times_weights"] = growth["anonymous_added_bytes"] / weights if weights else None
    return found


def _weight_bytes(trace: Trace, load: Load, reads: pd.DataFrame) -> int:
    """Bytes of the tensors read; tied ones share their bytes in a `.bin`, which is no longer."""
    tensors = int(reads["size_bytes"].sum())
    on_disk = _weight_files(trace, load)["size_bytes"].sum()
    return min(tensors, int(on_disk)) if on_disk else tensors


def _casts(reads: pd.DataFrame) -> str | None:
    cast = reads[(reads["stored_dtype"] != reads["loaded_dtype"]).fillna(False)]
    pairs = cast[["stored_dtype", "loaded_dtype"]].drop_duplicates()
    return (
        ", ".join(f"{pair.stored_dtype} to {pair.loaded_dtype}" for pair in pairs.itertuples())
        or None
    )


def _joined(values: pd.Series) -> str | None:
    return ", ".join(sorted(values.dropna().unique())) or None


def _reads_row(phase: str, reads: pd.DataFrame) -> dict[str, Any]:
    sums = reads[["size_bytes", "duration_ns", *_FAULTS]].sum(min_count=1)
    return {
        "phase": phase,
        "tensors": len(reads),
        "size_bytes": sums["size_bytes"] if len(reads) else 0,
        "total_ns": sums["duration_ns"] if len(reads) else 0,
        **{name: sums[name] for name in _FAULTS},
    }


def _growth(phase: str, samples: pd.DataFrame, *, peak: bool = False) -> dict[str, Any]:
    """What grew between the first and the last (or the highest) of some samples, where known."""

    def grown(name: str) -> Any:
        values = samples[name].dropna()
        if len(values) < 2:
            return pd.NA
        return (values.max() if peak else values.iloc[-1]) - values.iloc[0]

    return {
        "phase": phase,
        "total_ns": samples["start_ns"].max() - samples["start_ns"].min(),
        **{name: grown(name) for name in [*_FAULTS, "disk_bytes"]},
        "file_added_bytes": grown("file_bytes"),
        "anonymous_added_bytes": grown("anonymous_bytes"),
        "device_added_bytes": grown("device_allocated_bytes"),
    }


def _samples(trace: Trace) -> pd.DataFrame:
    columns = ["call", "name", "start_ns", *_MEASURES, *_FAULTS]
    return trace.read("memory", columns).sort_values("start_ns")


def _first_forward(trace: Trace, load: Load, samples: pd.DataFrame) -> pd.DataFrame:
    """The two samples around the first forward of the load's model, later than the load."""
    calls = trace.read("calls", ["seq"], [("model", "==", load.model or "")])["seq"]
    own = samples[samples["call"].isin(calls) & (samples["start_ns"] >= load.start_ns)]
    around = own[own["name"].isin([_BEFORE_FORWARD, _AFTER_FORWARD])]
    return around if set(around["name"]) == {_BEFORE_FORWARD, _AFTER_FORWARD} else around.iloc[:0]


def _weight_files(trace: Trace, load: Load) -> pd.DataFrame:
    where: list[Any] = [("call", "==", load.inner), ("kind", "==", "weights"), ("read", "==", True)]
    return trace.read("files", ["format", "access", "filesystem", "size_bytes"], where)


def _loads(trace: Trace) -> list[Load]:
    """Each model's own load, in order; a failed one that never had a model is left out."""
    columns = [("kind", "==", "from_pretrained"), ("stage", "==", "resolve")]
    calls = trace.read("calls", ["seq", "model"], columns)
    found = [find_load(trace, seq) for seq in calls.loc[calls["model"].notna(), "seq"]]
    return [
        dataclasses.replace(load, inner=seq)
        for load, seq in zip(found, calls.loc[calls["model"].notna(), "seq"], strict=True)
        if load is not None
    ]
