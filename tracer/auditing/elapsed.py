"""Check 5: named children explain the wall time of every call.

Times are taken as recorded: on an accelerator a child ends when its work is queued, not done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from tracer.auditing.source import EVIDENCE_LIMIT, Finding, Source, is_one_of, told
from tracer.explain.sentences import Sentence, then
from tracer.schema import EVENT_TABLES

# Time that no child explains: a share of the call, or a fixed part and one for each step.
_REST_SHARE: Final = 0.03
_REST_NS: Final = 1_000_000
_REST_STEP_NS: Final = 300_000
# These do nothing in their own body: without children they are unobserved, not leaves.
_MODEL_LOAD: Final = "load of a model"
_COMPOSITE: Final = {"generate", "pipeline", _MODEL_LOAD}
# The one waits for a thread of the library's, whose forwards are calls; the other is the work of a
# model's own class, of which the calls within are seen.
_NOT_JUDGED: Final = frozenset({"generate_batch", "own_generate"})
# Points in time, and the one event table with millions of rows, which is read only if needed.
_NO_CHILDREN: Final = {"memory", "messages", "faults", "modules"}
_NEEDED: Final = (
    *("seq", "parent", "call", "stage", "name", "thread", "kind"),
    *("start_ns", "duration_ns", "recorder_ns", "waited_ns", "gap_waited_ns", "select_ns"),
)
_DERIVED: Final = "select"  # a gap between two observed boundaries, named but not measured


def check_time(source: Source) -> Iterator[Finding]:
    """5: what no named child covers is a small rest of each call's time."""
    calls = source["calls"]
    calls = calls[is_one_of(calls["status"], "ok") & calls["duration_ns"].notna()]
    # Tokenizers and configurations are loaded by calls of the same kind that are leaves.
    is_model = is_one_of(calls["kind"], "from_pretrained") & calls["model"].notna()
    calls = calls.assign(kind=calls["kind"].mask(is_model, _MODEL_LOAD))
    tables = [name for name in EVENT_TABLES if name not in _NO_CHILDREN]
    shares = _shares(source, calls, tables)
    if not all(share.is_explained for share in shares) and "modules" not in source.dropped:
        shares = _shares(source, calls, [*tables, "modules"])
    judged = [share for share in shares if _can_judge(source, share)]
    leaves = [share.seq for share in shares if share not in judged]
    bad = [share.seq for share in judged if not share.is_explained]
    yield Finding("5 explained time", then(*_said(judged, leaves)), bad, len(judged))


def _said(judged: list[_Share], leaves: list[int]) -> Iterator[Sentence]:
    """How much was judged, where most is unexplained, and what could not be judged."""
    yield told("calls", number=len(judged))
    if judged:
        worst = max(judged, key=lambda share: share.rest_ns / max(1, share.total_ns))
        times = {"rest": worst.rest_ns, "total": worst.total_ns}
        times["derived"] = sum(share.derived_ns for share in judged)
        shown = {name: f"{time / 1e6:.3f}" for name, time in times.items()}
        kind = told("model_load") if worst.kind == _MODEL_LOAD else worst.kind
        yield told("worst", call=worst.seq, kind=kind, **shown)
    spared = [share for share in judged if share.is_explained and share.is_over]
    if spared:
        most = max(share.rest_ns for share in spared) / 1e6
        yield told("waited", number=len(spared), most=f"{most:.3f}")
    if leaves:
        yield told("leaves", calls=leaves[:EVIDENCE_LIMIT])


def _can_judge(source: Source, share: _Share) -> bool:
    """Whether a rest says something: a leaf explains itself by its own name."""
    if share.kind in _COMPOSITE:
        return True
    if share.kind in _NOT_JUDGED:
        return False
    return share.has_children and "modules" not in source.dropped


@dataclasses.dataclass(frozen=True)
class _Share:
    """How much of a call's wall time, less the recorder's, its direct children explain."""

    seq: int
    kind: str
    has_children: bool
    total_ns: int
    rest_ns: int
    derived_ns: int
    limit_ns: float
    waited_ns: int

    @property
    def is_over(self) -> bool:
        """Whether the rest alone is too large."""
        return self.rest_ns > self.limit_ns

    @property
    def is_explained(self) -> bool:
        """On a busy machine a thread stands still anywhere, also between two children."""
        return self.rest_ns <= self.limit_ns + self.waited_ns


def _shares(source: Source, calls: pd.DataFrame, tables: list[str]) -> list[_Share]:
    events = pd.concat([_timed(source[table]) for table in tables], ignore_index=True)
    # Most modules lie below other modules: only what lies directly below a call is grouped.
    by_parent = dict(iter(events[events["parent"].isin(calls["seq"])].groupby("parent")))
    recorder = events[is_one_of(events["stage"], "recorder")]
    by_call = dict(iter(recorder.groupby("call")))
    steps = source["steps"]["call"].value_counts().to_dict()
    nothing = events.iloc[:0]
    return [
        _share(
            call,
            by_parent.get(call.seq, nothing),
            by_call.get(call.seq, nothing),
            steps.get(call.seq, 0),
        )
        for call in _timed(calls).itertuples()
    ]


def _timed(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns that matter here, as plain integers and text; a table may have millions."""
    frame = rows[[name for name in _NEEDED if name in rows]].dropna(subset="duration_ns")
    if "waited_ns" in frame:
        # Where children are not spans, or a trace is older, the waiting may have been anywhere.
        frame["waited_ns"] = frame.get("gap_waited_ns", frame["waited_ns"]).fillna(
            frame["waited_ns"]
        )
    for name in ("start_ns", "duration_ns", "recorder_ns", "waited_ns", "select_ns"):
        frame[name] = frame[name].fillna(0).astype("int64") if name in frame else 0
    return frame


def _share(call: Any, below: pd.DataFrame, recorder: pd.DataFrame, steps: int) -> _Share:
    below = below[is_one_of(below["thread"], call.thread) & ~is_one_of(below["stage"], "recorder")]
    end = call.start_ns + call.duration_ns
    measured = _covered(below[~is_one_of(below["name"], _DERIVED)], call.start_ns, end)
    covered = _covered(below, call.start_ns, end)
    # What the recorder did inside the children is no part of what they explain. Steps and calls
    # know their own share; below other spans it stands as spans of its own.
    counted = below.loc[below["recorder_ns"] > 0, "seq"]
    deeper = recorder[is_one_of(recorder["thread"], call.thread)]
    # One that lies in another of the recorder's is told by that one.
    deeper = deeper[~deeper["parent"].isin([call.seq, *counted, *recorder["seq"]])]
    inside = int(below["recorder_ns"].sum() + deeper["duration_ns"].sum())
    total = call.duration_ns - call.recorder_ns
    rest = max(0, total - covered + min(inside, call.recorder_ns))
    derived = covered - measured + int(below["select_ns"].sum())
    limit = max(_REST_SHARE * total, _REST_NS + _REST_STEP_NS * steps)
    waited = int(call.waited_ns)
    return _Share(int(call.seq), call.kind, len(below) > 0, total, rest, derived, limit, waited)


def _covered(rows: pd.DataFrame, start: int, end: int) -> int:
    """Length of the union of the rows' times inside a window."""
    rows = rows.sort_values("start_ns")
    starts = rows["start_ns"].to_numpy().clip(start, end)
    ends = (rows["start_ns"] + rows["duration_ns"]).to_numpy().clip(start, end)
    reached = np.maximum.accumulate(np.concatenate([[start], ends]))
    return int(np.maximum(0, ends - np.maximum(starts, reached[:-1])).sum())
