"""Rules on where a finished model's values came from: random, mismatched, tied, left on meta."""

from __future__ import annotations

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.rules import Answers, rule
from tracer.trace import Trace


@rule("weights_initialised", "fatal", "trace", "huggingface/transformers#2431")
def weights_initialised(trace: Trace) -> Answers:
    """Parameters that no file held."""
    for model, placed in _placed(trace):
        random = placed[(placed["origin"] == "initialised") & (placed["kind"] == "parameter")]
        if len(random):
            yield Found(
                {
                    "model": model,
                    "count": len(random),
                    "whole": int((placed["kind"] == "parameter").sum()),
                    "first": random["param"].iloc[0],
                },
                rows_of("placements", random, "origin", "because", "shape"),
            )


def _placed(trace: Trace) -> list[tuple[str, pd.DataFrame]]:
    """Placements by model, each under its class and short id."""
    models = trace["models"].set_index("model")["class_name"]
    groups = trace["placements"].groupby("model", sort=False)
    return [(f"{models.get(name, name)} ({name})", own) for name, own in groups]
