"""Rules on the state in which a model was run: training mode, and gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.rules import rule
from tracer.trace import Trace


@rule("dropout_on", "fatal", "trace")
def dropout_on(trace: Trace) -> Iterator[Found]:
    """A model that answers in training mode: dropout falsifies every number."""
    calls = trace["calls"]
    answers = (calls["kind"] == "generate") | (calls["grad_mode"] != "grad").fillna(False)
    is_dropped = calls["training"].fillna(False).astype(bool) & (calls["dropout"] > 0).fillna(False)
    for model, rows in calls[answers & is_dropped].groupby("model"):
        yield Found(
            {"model": str(model), "count": len(rows), "dropout_share": rows["dropout"].max()},
            rows_of("calls", rows, "name", "training", "dropout", "grad_mode"),
        )


@rule("gradients_on", "warning", "trace")
def gradients_on(trace: Trace) -> Iterator[Found]:
    """Forwards outside training whose outputs keep every activation for a gradient."""
    calls = trace["calls"]
    forwards = calls[(calls["kind"] == "forward") & calls["keeps_graph"].fillna(False).astype(bool)]
    idle = forwards[forwards["training"].eq(False).fillna(False)]
    for model, rows in idle.groupby("model"):
        yield Found(
            {"model": str(model), "count": len(rows)},
            rows_of("calls", rows, "name", "grad_mode", "keeps_graph", "training"),
        )
