"""Rules on a load: repeated, failed, slow, with Python of the folder's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from tracer.analysis.load_memory import cold_or_warm, where_paid
from tracer.analysis.loads import find_load
from tracer.diagnosis.finding import Found, Row, Severity, Untold, rows_of
from tracer.diagnosis.placed import misfit_tensors
from tracer.diagnosis.rules import Answers, rule
from tracer.schema import SHAPE_MISFIT
from tracer.trace import Trace

_DISKS: Final = "safetensors/safetensors#562, safetensors/safetensors#577"
_OVER_A_NETWORK: Final = (
    "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "9p", "drvfs", "v9fs", "fuse", "fuse.sshfs",
    "fuse.rclone", "fuse.gcsfuse", "fuse.s3fs", "fuse.glusterfs", "lustre", "ceph", "beegfs",
    "gpfs", "afs", "virtiofs",
)  # fmt: skip
_LONG_NS: Final = 1_000_000_000
_MANY_FAULTS: Final = 10_000
_MODEL_LOAD: Final = [("kind", "==", "from_pretrained"), ("stage", "==", "resolve")]


@rule("load_repeated", "warning", "trace")
def load_repeated(trace: Trace) -> Answers:
    """The same model read from the same files again and again in one process."""
    models = trace["models"]
    models = models[models["folder"].notna()]
    alike = ["rank", "folder", "revision", "class_name", "dtype", "attention", "device_map"]
    for _, own in models.groupby(alike, sort=False, dropna=False):
        if len(own) < 2 or _is_variant(trace, own):
            continue
        calls = trace["calls"].set_index("seq", drop=False)
        loads = [find_load(trace, int(call)) for call in own["call"]]
        times = [load.duration_ns or 0 for load in loads if load is not None]
        yield Found(
            {
                "folder": own["folder"].iloc[0],
                "class_name": own["class_name"].iloc[0],
                "count": len(own),
                "again_ns": sum(times[1:]),
                "again_bytes": int(own["size_bytes"].iloc[1:].fillna(0).sum()),
            },
            rows_of("models", own, "class_name", "folder", "call")
            + rows_of("calls", calls.loc[own["call"]], "name", "duration_ns"),
        )


def _is_variant(trace: Trace, models: pd.DataFrame) -> bool:
    """Whether the loads were asked for different things: a file, a subfolder, a quantisation."""
    settings = trace["settings"]
    settings = settings[settings["model"].isin(models["model"]) & (settings["scope"] == "load")]
    settings = settings[settings["asked"].notna()]
    asked = {
        model: frozenset(zip(own["setting"], own["asked"], strict=True))
        for model, own in settings.groupby("model")
    }
    return len({asked.get(model, frozenset()) for model in models["model"]}) > 1


@rule("load_failed", "fatal", "trace")
def load_failed(trace: Trace) -> Answers:
    """A load that ended in an error, with the cause that the files' bytes show."""
    for row, faults, misfit in _failures(trace):
        if len(faults) or len(misfit):
            yield Found(
                {"name": row["name"], "cause": _cause(faults, misfit)},
                _call_row(trace, row)
                + rows_of("faults", faults, "target", "reason")
                + rows_of("checkpoint_tensors", misfit, "shape", "because"),
            )


@rule("load_failed_elsewhere", "fatal", "trace")
def load_failed_elsewhere(trace: Trace) -> Answers:
    """A load that ended in an error which no file explains."""
    for row, faults, misfit in _failures(trace):
        if faults.empty and misfit.empty:
            ended = trace.manifest.get("ended")
            yield Found({"name": row["name"], "ended": ended}, _call_row(trace, row))


def _failures(trace: Trace) -> Iterator[tuple[pd.Series[Any], pd.DataFrame, pd.DataFrame]]:
    """Outermost loads that failed, with what was found wrong with their files and tensors."""
    calls = trace["calls"]
    loads = calls[calls["kind"] == "from_pretrained"]
    above = dict(zip(calls["seq"], calls["parent"], strict=True))
    above |= dict(zip(trace["spans"]["seq"], trace["spans"]["parent"], strict=True))
    known, faults, misfit = set(loads["seq"]), trace["faults"], misfit_tensors(trace)
    inside: dict[int, set[int]] = {}
    for seq in loads["seq"]:  # in order of start: what encloses a load comes before it
        outer = seq
        while outer in above:
            outer = above[outer]
            if outer in known:
                break
        owner = next((one for one, own in inside.items() if outer in own), seq)
        inside.setdefault(owner, set()).add(seq)
    for _, row in loads[(loads["status"] == "error") & loads["seq"].isin(inside)].iterrows():
        own = inside[row["seq"]]
        told = faults[faults["call"].isin(own) & faults["traceback"].isna()]
        yield row, told[told["reason"].notna()], misfit[misfit["call"].isin(own)]


def _cause(faults: pd.DataFrame, misfit: pd.DataFrame) -> str:
    """The last word on the first file that is wrong; else the first tensor of another shape."""
    if faults.empty:
        first = misfit.iloc[0]
        return f"{first['key']} {first['shape']}: {SHAPE_MISFIT}{first['param']}"
    return str(faults.loc[faults["target"] == faults["target"].iloc[0], "reason"].iloc[-1])


def _call_row(trace: Trace, row: pd.Series[Any]) -> tuple[Row, ...]:
    calls = trace["calls"]
    return rows_of("calls", calls[calls["seq"] == row["seq"]], "name", "status", "duration_ns")


@rule("load_slow", "warning", "trace", _DISKS)
def load_slow(trace: Trace) -> Answers:
    """A load that waited for bytes: from a network, from a cold disk, page by page."""
    calls = trace.read("calls", ["seq", "model"], _MODEL_LOAD)
    for seq in calls.loc[calls["model"].notna(), "seq"]:
        load = find_load(trace, int(seq))
        if load is None or (load.duration_ns or 0) < _LONG_NS:
            continue
        judged = cold_or_warm(trace, int(seq)).iloc[0]
        paid = where_paid(trace, int(seq)).set_index("phase")
        faults = _whole(paid.loc["load", "major_faults"])
        systems = str(judged["filesystem"] or "")
        is_remote = any(name in _OVER_A_NETWORK for name in systems.split(", "))
        is_cold = judged["verdict"] in {"cold", "partly cold"}
        if not (is_remote or is_cold or faults > _MANY_FAULTS):
            if judged["verdict"] == "unknown":
                yield Untold("cold_run")
            continue
        files = trace["files"]
        files = files[(files["call"] == load.inner) & (files["kind"] == "weights")]
        yield Found(
            {
                "duration_ns": load.duration_ns,
                "filesystem": systems or None,
                "disk_bytes": judged["disk_bytes"],
                "faults": faults,
                "verdict": judged["verdict"],
            },
            rows_of("files", files, "filesystem", "access", "size_bytes")
            + rows_of("calls", trace["calls"].query("seq == @load.call"), "name", "duration_ns"),
            "warning" if is_remote or is_cold else "note",
        )


@rule("remote_code_unneeded", "warning", "trace")
def remote_code_unneeded(trace: Trace) -> Answers:
    """`trust_remote_code=True` for a folder that brings no code."""
    for own, scripts, is_run in _trusting(trace):
        if not is_run and scripts.empty:
            yield Found(
                {"folder": _folder(trace, own), "count": len(own)},
                rows_of("settings", own, "asked", "origin"),
            )


@rule("remote_code_run", "note", "trace")
def remote_code_run(trace: Trace) -> Answers:
    """Python of the folder's own that ran, since the caller trusted it."""
    for own, scripts, is_run in _trusting(trace):
        if is_run:
            severity: Severity = "note"
            yield Found(
                {"folder": _folder(trace, own), "files": scripts["path"].tolist()},
                rows_of("settings", own, "asked", "origin")
                + rows_of("files", scripts, "kind", "size_bytes"),
                severity,
            )


def _trusting(trace: Trace) -> list[tuple[pd.DataFrame, pd.DataFrame, bool]]:
    """Settings that trust remote code by load, Python files beside it, and whether any ran."""
    settings = trace["settings"]
    asked = settings[(settings["setting"] == "trust_remote_code") & settings["asked"].notna()]
    asked = asked[asked["asked"].map(_is_true)]
    if asked.empty:
        return []
    files = trace["files"]
    files = files[files["kind"] == "code"]
    # The library asks for the path of such a file only to import it.
    return [(asked, files, bool(files["read"].fillna(False).any()))]


def _is_true(text: str) -> bool:
    return json.loads(text) is True


def _folder(trace: Trace, own: pd.DataFrame) -> str | None:
    models = trace["models"]
    folders = models.loc[models["model"].isin(own["model"]), "asked"].dropna()
    return str(folders.iloc[0]) if len(folders) else None


def _whole(value: Any) -> int:
    return 0 if pd.isna(value) else int(value)
