"""Rules on numbers that are none: NaN and infinities, and the module where they began."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracer.diagnosis.finding import Found, Untold, rows_of
from tracer.diagnosis.generating import Generating, generations
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_COLUMNS = ["seq", "call", "path", "class_name", "step", "start_ns", "duration_ns", "dtype"]


@rule("nonfinite_module", "fatal", "trace")
def nonfinite_module(trace: Trace) -> Iterator[Found | Untold]:
    """The first module whose output held NaN or infinities, with everything before it whole."""
    found = trace.read("modules", [*_COLUMNS, "nonfinite", "abs_max"], pc.field("nonfinite") > 0)
    for _, rows in found.groupby("call"):
        # What ends first is the innermost: those around it only hand its numbers on.
        ended = rows.assign(end=rows["start_ns"] + rows["duration_ns"]).sort_values("end")
        first = ended.iloc[0]
        yield Found(
            {
                "path": str(first["path"]) or str(first["class_name"]),
                "class_name": str(first["class_name"]),
                "count": int(first["nonfinite"]),
                "dtype": str(first["dtype"]),
                "modules": len(rows["path"].unique()),
            },
            rows_of("modules", ended, "path", "class_name", "step", "dtype", "nonfinite"),
        )
    has_values = bool(trace.manifest.get("options", {}).get("values"))
    if found.empty and not has_values and (any(_without_number(trace)) or _failed_to_choose(trace)):
        yield Untold("values")


def _failed_to_choose(trace: Trace) -> bool:
    """Whether a sampled answer broke off between a forward and its choice, as with NaN it does."""
    for call in generations(trace):
        if call.call["status"] == "error" and len(call.steps) and not call.is_greedy:
            last = call.steps.iloc[-1]
            if not pd.isna(last["forward_ns"]) and (call.choices["step"] != last["step"]).all():
                return True
    return False


@rule("nonfinite_scores", "fatal", "trace")
def nonfinite_scores(trace: Trace) -> Iterator[Found]:
    """Tokens that were chosen out of scores that are no numbers."""
    for call, rows in _without_number(trace):
        yield Found(
            {"count": len(rows), "step": int(rows["step"].iloc[0])},
            rows_of("choices", rows, "token_id", "raw_logprob", "raw_entropy", "probability")
            + call.call_row("mode"),
        )


def _without_number(trace: Trace) -> Iterator[tuple[Generating, pd.DataFrame]]:
    """Calls with the choices whose raw log-probability was computed and is NaN."""
    for call in generations(trace):
        logs = pa.array(call.choices["raw_logprob"], from_pandas=False)
        rows = call.choices[pc.fill_null(pc.is_nan(logs), False).to_pylist()]
        if len(rows):
            yield call, rows
