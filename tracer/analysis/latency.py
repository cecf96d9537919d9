"""When each token came: the time to the first one, and the gap before each further one."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.generation import call_or_last
from tracer.trace import Trace

_COLUMNS = ["call", "step", "kind", "tokens", "text", "at_ns", "gap_ns"]


def token_times(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """When each step of a generate had its tokens, without the recorder's own time.

    Args:
        trace: A trace with a generate call.
        call: seq of the call; the last one without.

    Returns:
        A row a step that chose tokens: call, step, kind, tokens (of row 0; several in assisted
        decoding; missing where choices are not followed, as in beam search), text (theirs, missing
        without a tokenizer), at_ns (from the start of the call;
        that of the first row is the time to the first token), gap_ns (since the tokens before,
        or the call's start).
    """
    call = call_or_last(trace, call)
    where = [("call", "==", call)]
    timed = ["seq", "step", "kind", "start_ns", "duration_ns", "recorder_ns"]
    steps = trace.read("steps", timed, where).dropna(subset=["duration_ns"]).sort_values("seq")
    starts = trace.read("calls", ["start_ns", "thread"], [("seq", "==", call)])
    chosen = trace.read("choices", ["step", "row", "offset", "text"], where)
    chosen = chosen[chosen["row"] == 0].sort_values(["step", "offset"]).groupby("step")["text"]
    steps["tokens"] = steps["step"].map(chosen.size()).astype("Int64")
    steps["text"] = steps["step"].map(chosen.agg(_joined)).astype("string")
    # What the recorder did inside steps they know; the rest of its work are spans of their own.
    own_in_steps = steps["recorder_ns"].fillna(0).cumsum()
    # All but the last chunk of a prefill choose nothing.
    is_choosing = steps["tokens"].notna() if len(chosen) else steps["kind"].ne("chunk").fillna(True)
    steps = steps[is_choosing].copy()
    steps["call"] = call
    if steps.empty or starts.empty:
        return steps.assign(at_ns=steps["start_ns"], gap_ns=steps["start_ns"]).iloc[:0][_COLUMNS]
    start, thread = starts.iloc[0]
    ends = steps["start_ns"] + steps["duration_ns"]
    own = own_in_steps[is_choosing] + _recorder_until(trace, call, thread, ends)
    steps["at_ns"] = ends - start - own
    steps["gap_ns"] = steps["at_ns"].diff().fillna(steps["at_ns"])
    return steps[_COLUMNS].reset_index(drop=True)


def _recorder_until(trace: Trace, call: int, thread: str, ends: pd.Series) -> pd.Series:
    """The recorder's spans of a call on its thread that were over by then, added up."""
    where = [("call", "==", call), ("stage", "==", "recorder"), ("thread", "==", thread)]
    spans = trace.read("spans", ["seq", "parent", "start_ns", "duration_ns"], where).dropna()
    # One may lie inside another: writing to disk, while a step is resolved.
    spans = spans[~spans["parent"].isin(spans["seq"])].sort_values("start_ns")
    over = (spans["start_ns"] + spans["duration_ns"]).to_numpy(dtype="int64")
    so_far = spans["duration_ns"].cumsum().to_numpy(dtype="int64")
    counts = over.searchsorted(ends.to_numpy(dtype="int64"), side="right")
    return pd.Series([int(so_far[count - 1]) if count else 0 for count in counts], ends.index)


def _joined(texts: pd.Series) -> str | None:
    known = texts.dropna()
    return None if known.empty else "".join(known)
