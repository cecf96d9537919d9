"""A trace in some thirty lines of text, and the time that each stage took.

Is given a function that reads a table, so it knows no Trace; reads only the columns that it names.
It judges nothing (`audit.py` does), and what it lists it lists in the order of the run. Its own
words are those of the language that holds; what was recorded stays as it is.
"""

from __future__ import annotations

import collections
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracer import explain
from tracer.conditions import Where
from tracer.export.text import visible_text
from tracer.manifest import check_manifest
from tracer.schema import EVENT_TABLES, SCHEMA_VERSION, STAGES
from tracer.shortcomings import rank_names, shortcomings
from tracer.views.labels import (
    MISSING,
    aligned,
    bytes_label,
    count_label,
    cut_to_width,
    duration_label,
)

# Tables whose rows are stages of a call; a call's own time is that of the stages inside it.
_STAGED: Final = ("spans", "tensor_loads", "steps")
_STATES: Final = ("complete", "interrupted", "unknown")


class Read(Protocol):
    """What reads some columns and rows of a table into a frame, as `Trace.read` does."""

    def __call__(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Where = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """The asked columns of the rows that fulfil a condition, in stored order."""


def summary_text(read: Read, manifest: dict[str, Any], rows: Mapping[str, int]) -> str:
    """What happened, as lines of text that move no cursor.

    Args:
        read: Gives a table by name.
        manifest: The trace's manifest.
        rows: Number of rows by table, of tables that have some, in schema order.

    Raises:
        TraceFormatError: A field of the manifest holds something else than it must.
    """
    check_manifest({"schema_version": SCHEMA_VERSION, **manifest}, "The trace's manifest")
    parts = [
        _ending(read, manifest, rows),
        _models(read, rows.get("models", 0)),
        _calls(read),
        _stages(read),
        _faults(read),
        _recorder(manifest),
        _row_counts(rows),
    ]
    return "\n".join(visible_text(part) for part in parts if part)


def stage_totals(read: Read) -> pd.DataFrame:
    """Events, time and bytes of each stage that was seen, in the order of `schema.STAGES`.

    What lies inside an event of its own stage is part of that one: it is neither counted nor added
    again, so an import that another import caused is left out. A row whose duration is missing is
    an event, adds nothing and covers nothing. Times of threads are added up.

    Args:
        read: Gives a table by name: `trace.read`.

    Returns:
        `stage`, `events`, `total_ns` (missing where no event ended), `size_bytes` (bytes of the
        tensors read; missing for all stages but `tensor_load`).
    """
    columns = ["seq", "parent", "stage", "duration_ns"]
    rows = pd.concat([read(table, columns) for table in _STAGED], ignore_index=True)
    stages = pa.array(list(STAGES))
    codes = pc.index_in(pa.array(rows["stage"]), value_set=stages).fill_null(-1).to_numpy()
    covers = np.where(rows["duration_ns"].isna(), -1, codes)
    links = pd.concat([rows[["seq", "parent"]], read("calls", ["seq", "parent"])])
    inside = _stages_around(links, covers)[: len(rows)]
    is_covered = (inside >> np.maximum(codes, 0)) & 1 == 1
    # A missing or unknown stage has no number: there is nothing to add it to.
    is_counted = (codes >= 0) & ~is_covered
    outer = pd.DataFrame({"code": codes, "duration_ns": rows["duration_ns"]})[is_counted]
    durations = outer.groupby("code")["duration_ns"]
    totals = pd.DataFrame({"events": durations.size(), "total_ns": durations.sum(min_count=1)})
    totals.insert(0, "stage", pd.array([list(STAGES)[code] for code in totals.index], "string"))
    sizes = read("tensor_loads", ["size_bytes"])["size_bytes"].sum(min_count=1)
    is_load = totals["stage"] == "tensor_load"
    totals["size_bytes"] = pd.array([sizes if load else pd.NA for load in is_load], "Int64")
    return totals.astype({"events": "Int64", "total_ns": "Int64"}).reset_index(drop=True)


def _stages_around(links: pd.DataFrame, codes: Any) -> Any:
    """For each event the stages of all that enclose it, as one bit a stage.

    Args:
        links: `seq` and `parent` of events.
        codes: Number of the stage of the first events; -1 or no entry adds no bit.
    """
    seqs = links["seq"].fillna(-1).to_numpy("int64")
    parents = links["parent"].fillna(-1).to_numpy("int64")
    outside = len(seqs)  # where every path up ends
    order = np.argsort(seqs, kind="stable")
    places = np.minimum(np.searchsorted(seqs, parents, sorter=order), max(outside - 1, 0))
    above = np.full(outside + 1, outside)
    # A parent began before its child; whatever else a file says would lead in a circle.
    is_known = (seqs[order[places]] == parents) & (parents < seqs)
    above[:outside] = np.where(is_known, order[places], outside)
    own = np.zeros(outside + 1, dtype=np.int64)
    own[: len(codes)] = np.where(codes < 0, 0, 1 << np.maximum(codes, 0))
    around = own[above]
    # Each round doubles the number of ancestors that were looked at.
    while (above != outside).any():
        around |= around[above]
        above = above[above]
    return around


def _ending(read: Read, manifest: dict[str, Any], counts: Mapping[str, int]) -> str:
    """How the run ended, an interrupted one first of all, and how much was recorded."""
    lines = (_ranks if "ranks" in manifest else _state)(read, manifest, counts)
    lines += [_say("not_complete", what=text) for text in shortcomings(manifest)]
    contents = {
        "calls": explain.count("call", counts.get("calls", 0)),
        "models": explain.count("model", counts.get("models", 0)),
        "rows": explain.count("row", sum(counts.values())),
        "tables": explain.count("table", len(counts)),
    }
    return "\n".join([*lines, _say("contents", **contents)])


def _say(phrase: str, **values: Any) -> str:
    return explain.text(f"summary.{phrase}", **values)


def _state_of(manifest: dict[str, Any]) -> str:
    state = manifest.get("state", "unknown")
    return explain.text(f"states.{state}") if state in _STATES else state


def _how(ended: str) -> str:
    """How a run ended: the lab's own word for a good end, else the exception as recorded."""
    return explain.text("states.completed") if ended == "completed" else ended


def _state(read: Read, manifest: dict[str, Any], counts: Mapping[str, int]) -> list[str]:
    lines = [_say("ending", state=_state_of(manifest))]
    if manifest.get("state") == "interrupted":
        spans = sum(_open_spans(read, table).sum() for table in EVENT_TABLES if table in counts)
        open_spans = explain.count("open_span", spans)
        lines = [_say("interrupted", why=_interruption(manifest), open_spans=open_spans)]
    if manifest.get("ended"):
        lines.append(_say("ended", how=_how(manifest["ended"])))
    if manifest.get("storage_failure") and manifest.get("state") != "interrupted":
        lines.append(_say("disk_refused", failure=manifest["storage_failure"]))
    return lines


def _ranks(read: Read, manifest: dict[str, Any], counts: Mapping[str, int]) -> list[str]:
    """The same of a run of several ranks: what holds for all, then each rank that differs."""
    ranks, missing = manifest["ranks"], manifest.get("missing_ranks", [])
    found = {"state": _state_of(manifest), "ranks": explain.count("rank", len(ranks))}
    whole = len(ranks) + len(missing)
    lines = [_say("ranks_of", whole=whole, **found) if missing else _say("ranks", **found)]
    if any(rank.get("state") == "interrupted" for rank in ranks):
        open_spans: collections.Counter[int] = collections.Counter()
        for table in EVENT_TABLES:
            if table in counts:
                open_spans.update(_open_spans(read, table).groupby(level=0).sum().to_dict())
    for rank in ranks:
        number, failure = rank["rank"], rank.get("storage_failure")
        if rank.get("state") == "interrupted":
            spans = explain.count("open_span", open_spans[number])
            why = _interruption(rank)
            lines.append(_say("rank_interrupted", rank=number, why=why, open_spans=spans))
        elif failure:
            lines.append(_say("rank_disk_refused", rank=number, failure=failure))
    endings: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.get("ended"):
            endings.setdefault(rank["ended"], []).append(rank["rank"])
    for how, numbers in endings.items():
        lines.append(_say("ranks_ended", ranks=rank_names(numbers), how=_how(how)))
    if manifest.get("time_line"):
        lines.append(_say("time_line", how=explain.said_again(manifest["time_line"])))
    return lines


# Numbers of "no space left on device" and "disk quota exceeded" on Linux and macOS.
_FULL: Final = ("[Errno 28]", "[Errno 69]", "[Errno 122]")


def _interruption(manifest: dict[str, Any]) -> str:
    """Why a recording did not close, where that is known."""
    failure = manifest.get("storage_failure")
    if not failure:
        return _say("never_closed")
    is_full = failure.startswith(_FULL)
    return _say("disk_full" if is_full else "disk_refused_rows", failure=failure)


def _open_spans(read: Read, table: str) -> pd.Series:
    """For each row, with its rank as index, whether it is a span that never ended."""
    # No condition: on the streams of a recording it would read every column.
    rows = read(table, ["rank", "status", "duration_ns"])
    is_open = (rows["status"] == "interrupted") & rows["duration_ns"].isna()
    return is_open.fillna(False).astype(int).set_axis(rows["rank"].fillna(-1))


# More calls, models or faults than this are counted, not listed.
_LISTED: Final = 6


def _section(title: str, rows: list[list[str]], right: Sequence[int], total: int) -> str:
    if not rows:
        return ""
    left = total - len(rows)
    more = "\n  " + _say("more", number=f"{left:,}") if left > 0 else ""
    return f"{_say(title)}\n{aligned(rows, right)}{more}"


def _models(read: Read, total: int) -> str:
    columns = ["model", "class_name", "parameters", "size_bytes", "dtype", "attention"]
    frame = read("models", columns, limit=_LISTED)
    rows = [
        [
            _cell(model.model),
            _cell(model.class_name),
            _parameters(model.parameters),
            bytes_label(model.size_bytes),
            _cell(model.dtype),
            _cell(model.attention),
        ]
        for model in frame.itertuples()
    ]
    return _section("models", rows, (2, 3), total)


def _parameters(number: Any) -> str:
    return MISSING if pd.isna(number) else explain.count("parameter", int(number))


def _calls(read: Read) -> str:
    columns = ["seq", "name", "model", "duration_ns", "status", "finish"]
    frame = read("calls", columns, [("parent", "==", -1)]).sort_values("seq")
    rows = [
        [
            f"#{call.seq}",
            _cell(call.name),
            _cell(call.model),
            duration_label(call.duration_ns),
            _cell(call.status),
            "" if pd.isna(call.finish) else _say("finish", why=_cell(call.finish)),
        ]
        for call in frame.head(_LISTED).itertuples()
    ]
    return _section("calls", rows, (3,), len(frame))


def _stages(read: Read) -> str:
    totals = stage_totals(read)
    rows = [
        [
            _say("stage", name=total.stage, title=explain.stage(total.stage).title),
            count_label(total.events),
            duration_label(total.total_ns),
            "" if pd.isna(total.size_bytes) else bytes_label(total.size_bytes),
        ]
        for total in totals.itertuples()
    ]
    return _section("stages", rows, (1, 2, 3), len(rows))


def _faults(read: Read) -> str:
    frame = read("faults", ["target", "reason"])
    counts = collections.Counter(
        (_cell(fault.target), _cell(fault.reason)) for fault in frame.itertuples()
    )
    if not counts:
        return _say("no_faults")
    rows = [
        [f"{count:,} x", target, cut_to_width(explain.said_again(reason), 70)]
        for (target, reason), count in counts.most_common(_LISTED)
    ]
    return _section("faults", rows, (0,), len(counts))


def _recorder(manifest: Mapping[str, Any]) -> str:
    """What the recorder says that it cost; a run of several ranks says it in each."""
    share = manifest.get("recorder", {}).get("share")
    is_number = isinstance(share, float) and 0 <= share <= 1
    return _say("recorder_share", share=f"{share * 100:.1f} %") if is_number else ""


def _row_counts(counts: Mapping[str, int]) -> str:
    # A no-break space keeps a table and its number on one line.
    listed = ", ".join(f"{table}\u00a0{rows:,}" for table, rows in counts.items())
    lines = textwrap.wrap(listed or _say("none"), 90)
    return _say("row_counts") + "\n      ".join(lines).replace("\u00a0", " ")


def _cell(value: Any) -> str:
    return "-" if pd.isna(value) else " ".join(str(value).split())
