"""Rules on where parameters lie: devices that nobody asked for, offload."""

from __future__ import annotations

import json
from typing import Any, Final

from tracer.analysis.placement import placed_tensors
from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.placed import model_title, placed_by_model
from tracer.diagnosis.rules import Answers, rule
from tracer.trace import Trace

_L14: Final = "huggingface/accelerate#3866, huggingface/accelerate#1613"
_CHOOSES: Final = {"auto", "balanced", "balanced_low_0", "sequential"}


@rule("offloaded_unasked", "warning", "trace", _L14)
def offloaded_unasked(trace: Trace) -> Answers:
    """Parameters on CPU or disk because `device_map` was left to choose."""
    for model, placed in placed_by_model(trace):
        away = placed[placed["residence"].isin(["offloaded_cpu", "offloaded_disk"])]
        asked = _setting(trace, model, "device_map", "asked")
        if away.empty or not isinstance(asked, str) or asked not in _CHOOSES:
            continue
        tensors = placed_tensors(trace, model).set_index("param")["size_bytes"]
        steps = trace["steps"]
        yield Found(
            {
                "model": model_title(trace, model),
                "asked": asked,
                "count": len(away),
                "whole": len(placed),
                "places": sorted({_place(name) for name in away["residence"]}),
                "away_bytes": int(tensors.reindex(away["param"]).fillna(0).sum()),
                "budget": _budget(_setting(trace, model, "max_memory", "effective")),
                "forwards": int((steps["model"] == model).sum()),
            },
            rows_of("placements", away, "residence", "device", "origin"),
        )


def _place(residence: str) -> str:
    return "CPU" if residence == "offloaded_cpu" else "disk"


def _budget(held: Any) -> str | None:
    return json.dumps(held) if held else None


def _setting(trace: Trace, model: str, name: str, column: str) -> Any:
    settings = trace["settings"]
    own = settings[(settings["model"] == model) & (settings["setting"] == name)][column].dropna()
    return json.loads(own.iloc[0]) if len(own) else None
