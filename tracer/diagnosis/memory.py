"""Rules on memory: peaks of a load against its need, and what is kept after a call."""

from __future__ import annotations

import json
from typing import Any, Final

import pandas as pd

from tracer.analysis.load_memory import load_memory
from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.placed import model_title
from tracer.diagnosis.rules import Answers, rule
from tracer.trace import Trace

_MUCH_BYTES: Final = 256 * 2**20
_TIMES: Final = 1.5
_FEW_CACHES: Final = 2


@rule("load_peak", "warning", "trace", "huggingface/transformers#24393")
def load_peak(trace: Trace) -> Answers:
    """A load that took far more memory at its peak than the finished model needs."""
    sizes = trace["models"].set_index("model")["size_bytes"]
    for row in load_memory(trace).itertuples():
        need = sizes.get(row.model)
        if pd.isna(row.added_bytes) or pd.isna(need):
            continue
        excess = row.added_bytes - need
        if excess < _MUCH_BYTES or row.added_bytes < _TIMES * need:
            continue
        samples = trace["memory"]
        samples = samples[samples["call"] == row.call].sort_values("start_ns")
        yield Found(
            {
                "model": model_title(trace, row.model),
                "peak_bytes": row.added_bytes,
                "need_bytes": need,
                "format": row.format,
                "access": row.access,
                "cast": row.cast,
            },
            rows_of("memory", samples, "name", "anonymous_bytes", "file_bytes"),
        )


@rule("caches_kept", "warning", "trace")
def caches_kept(trace: Trace) -> Answers:
    """Caches of finished calls that were still held while later calls ran, and that none used."""
    calls = trace["calls"]
    calls = calls[(calls["kind"] == "generate") & calls["cache"].notna()].sort_values("seq")
    for row in calls.iloc[::-1].itertuples():
        later = set(calls.loc[calls["seq"] >= row.seq, "cache"])
        kept = [name for name in _alive(row.summary) if name not in later]
        if len(kept) <= _FEW_CACHES:
            continue
        owners = calls[calls["cache"].isin(kept)].drop_duplicates("cache", keep="last")
        yield Found(
            {
                "count": len(kept),
                "kept_bytes": _bytes(trace, kept),
                "seq": row.seq,
                "holders": sorted({_holder(trace, one) for one in owners.itertuples()}),
            },
            rows_of("calls", owners, "name", "cache", "cache_class", "cache_why"),
        )
        return  # the last call with such caches has the most of them


def _alive(summary: Any) -> list[str]:
    told = json.loads(summary) if isinstance(summary, str) else {}
    return list(told.get("caches_alive", []))


def _holder(trace: Trace, call: Any) -> str:
    """What can hold it, as far as the call's settings tell; else only that somebody does."""
    settings = trace["settings"]
    own = settings[(settings["call"] == call.seq) & (settings["effective"] == "true")]
    if "return_dict_in_generate" in set(own["setting"]):
        return "return_dict_in_generate=True"
    if str(call.cache_why).startswith("passed"):
        return "past_key_values"
    return str(call.cache_class)


def _bytes(trace: Trace, names: list[str]) -> int | None:
    steps = trace["steps"]
    last = (
        steps[steps["cache"].isin(names)].sort_values("seq").drop_duplicates("cache", keep="last")
    )
    return int(last["cache_bytes"].sum()) if last["cache_bytes"].notna().any() else None
