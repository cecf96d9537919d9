"""What the recorder itself costs in a recording: its own spans, and an estimate for the hooks."""

from __future__ import annotations

import statistics
import sys
from typing import Any, Final

from tracer.recorder import Nowhere, Options, Recorder

_ROUNDS: Final = 5
_CALLS: Final = 200


def cost(recorder: Recorder, wall_ns: int) -> dict[str, Any]:
    """Cost a module call, share of the run, and how each number came to be.

    The hooks can't time themselves without doubling their cost, so they are run here on a bare
    module, and the difference is multiplied by the calls of the recording: `estimated`.
    """
    spans_ns = sum(state.recorder_ns for state in recorder.threads.values())
    calls = recorder.drained_modules
    found: dict[str, Any] = {
        "own_spans_ns": spans_ns,
        "module_calls": calls,
        "module_call_ns": None,
        "share": None,
        "provenance": "own_spans_ns measured; module_call_ns and share estimated",
    }
    if "torch" in sys.modules and calls:
        each = _module_call_ns()
        found["module_call_ns"] = each
        found["share"] = round((spans_ns + each * calls) / wall_ns, 5) if wall_ns else None
    return found


def _module_call_ns() -> int:
    from tracer.instrument.module_hooks import hook_module

    torch = sys.modules["torch"]
    recorder = Recorder(Nowhere(), Options())
    state = recorder.thread_state()
    bare, hooked = torch.nn.Identity(), torch.nn.Identity()
    tensor = torch.zeros(1)
    differences = []
    try:
        state.open("spans", "recorder", "calibration")
        state.place = "here", None  # as inside a model: every call from the same place
        list(hook_module(recorder, "calibration", "module", hooked))
        for _ in range(_ROUNDS):
            times = []
            for module in (bare, hooked):
                begin = recorder.clock()
                for _ in range(_CALLS):
                    module(tensor)
                times.append(recorder.clock() - begin)
            differences.append((times[1] - times[0]) / _CALLS)
    finally:
        try:
            state.end_all()
        finally:
            state.leave_thread()
    return max(0, round(statistics.median(differences)))
