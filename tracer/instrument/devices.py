"""Which device each parameter is meant for: the map in force, and the memory that decided it.

Read in transformers 5.24.0 (integrations/accelerate.py), 4.57.6 and 4.51.3 (modeling_utils.py).
"""

from __future__ import annotations

from typing import Any

from tracer.instrument.reads import Load
from tracer.instrument.stages import Call, Observer, open_span
from tracer.spans import ThreadState


def device_map(state: ThreadState, call: Call) -> Observer:
    """`_get_device_map`: "auto" and its like become a device for each part of the model."""
    span = open_span(state, call)
    outcome = yield None
    load, summary = state.load, None
    if outcome.error is None and load is not None:
        load.device_map = dict(outcome.result)
        devices = [str(one) for one in load.device_map.values()]
        summary = {"parts": {device: devices.count(device) for device in dict.fromkeys(devices)}}
        if load.budget is not None:
            summary["budget_bytes"] = load.budget
    state.close(span, outcome.status, summary=summary)


def budget(state: ThreadState, call: Call) -> Observer:
    """`infer_auto_device_map`: the bytes that each device may take, free memory looked up."""
    span = open_span(state, call)
    if state.load is not None:
        given = call.argument(1, "max_memory") or {}
        state.load.budget = {str(device): size for device, size in given.items()}
    outcome = yield None
    state.close(span, outcome.status)


def planned(load: Load, param: str) -> str | None:
    """Device that the map plans for a parameter: that of the longest name that holds it."""
    if load.device_map is None:
        return "cpu" if load.arguments.get("device_map") is None else None
    name = param
    while name and name not in load.device_map:
        name = name.rpartition(".")[0]
    found: Any = load.device_map.get(name)
    return None if found is None else _device(found)


def _device(device: Any) -> str:
    """An accelerator may go by its number alone."""
    return f"cuda:{device}" if isinstance(device, int) else str(device)
