"""Rules on loads that ran at the same time in several threads, and what they left changed."""

from __future__ import annotations

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.rules import Answers, rule
from tracer.schema import SHARED_BY_THREADS
from tracer.trace import Trace


@rule("loads_at_once", "warning", "trace")
def loads_at_once(trace: Trace) -> Answers:
    """Loads of models that overlap in time, in different threads of one process."""
    loads = overlapping_loads(trace)
    if loads.empty:
        return
    empty = _without_values(trace, loads["seq"])
    yield Found(
        {
            "count": len(loads),
            "threads": int(loads[["rank", "thread"]].drop_duplicates().shape[0]),
            "empty": len(empty),
        },
        rows_of("calls", loads, "name", "thread", "start_ns", "duration_ns")
        + rows_of("placements", empty, "origin", "because", "residence"),
        "fatal" if len(empty) else "warning",
    )


@rule("process_changed", "fatal", "trace")
def process_changed(trace: Trace) -> Answers:
    """What loads replace in the whole process while they build, and found or left replaced."""
    faults = _faults(trace)
    if faults.empty:
        return
    empty = _without_values(trace, faults["call"])
    yield Found(
        {"changed": faults["target"].drop_duplicates().tolist(), "empty": len(empty)},
        rows_of("faults", faults, "target", "reason")
        + rows_of("placements", empty, "origin", "because", "residence"),
    )


def emptied_loads(trace: Trace) -> set[int]:
    """Calls of loads whose missing values are explained by other loads of the process."""
    return {*overlapping_loads(trace)["seq"], *_faults(trace)["call"]}


def overlapping_loads(trace: Trace) -> pd.DataFrame:
    """Rows of `calls`: loads of models during which another thread loaded a model as well."""
    calls = trace["calls"]
    # An Auto class's call also imports the family, which harms nobody.
    is_load = calls["kind"].eq("from_pretrained") & calls["stage"].eq("resolve")
    loads = calls[is_load & ~calls["name"].str.startswith("Auto")].sort_values("start_ns")
    ends = loads["start_ns"] + loads["duration_ns"].fillna(0)
    found: set[int] = set()
    for _, own in loads.assign(end=ends).groupby("rank"):
        going_on: list[tuple[int, str, int]] = []
        for row in own.itertuples():
            going_on = [one for one in going_on if one[2] > row.start_ns]
            others = [seq for seq, thread, _ in going_on if thread != row.thread]
            found.update([*others, row.seq] if others else [])
            going_on.append((row.seq, row.thread, row.end))
    return loads[loads["seq"].isin(found)]


def _without_values(trace: Trace, calls: pd.Series[int]) -> pd.DataFrame:
    """Rows of `placements`: what these loads left on meta."""
    placed = trace["placements"]
    return placed[placed["call"].isin(calls) & placed["residence"].eq("meta")]


def _faults(trace: Trace) -> pd.DataFrame:
    faults = trace["faults"]
    return faults[faults["target"].isin(SHARED_BY_THREADS)]
