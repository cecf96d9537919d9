"""What the recorder itself costs in a recording: its own spans, and estimates for the rest.

Hooks and stand-ins can't time all of themselves without doubling their cost. Each kind is run here
a few times in the company that it has in a model, and the difference to the bare one is multiplied
by how often it ran in the recording. That is done once in a process: before its first recording,
or at that recording's end where torch came later.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable
from typing import Any, Final

from tracer.instrument.installer import INSTALLER
from tracer.instrument.targets import TARGETS
from tracer.ledger import Options
from tracer.recorder import Recorder
from tracer.sinks import Nowhere

_ROUNDS: Final = 5
_CALLS: Final = 24
_WIDTH: Final = 64  # of the small tensors that keep the processor's caches as busy as a layer does
_SPAN: Final = next(one for one in TARGETS if one.observe == "stages.span")


def prepare() -> None:
    """Find the prices now, while nothing is recorded, if torch is there to try them with."""
    if "torch" in sys.modules:
        _prices()


def cost(recorder: Recorder, wall_ns: int) -> dict[str, Any]:
    """The recorder's share of the run and how each number came to be.

    Args:
        recorder: The recording, ended.
        wall_ns: From its beginning to its end.

    Returns:
        own_spans_ns (measured), module_calls, module_call_ns (a call's hooks; missing where no
        module was hooked), observed_calls, observed_call_ns (what the stand-in of a library's
        function adds outside of its own spans), share (of wall_ns), provenance.
    """
    spans_ns = sum(state.recorder_ns for state in recorder.threads.values())
    calls, observed = recorder.drained_modules, sum(recorder.targets_seen.values())
    module_call_ns = observed_call_ns = None
    if "torch" in sys.modules and (calls or observed):
        prices = _prices()
        module_call_ns = prices[0] if calls else None
        observed_call_ns = prices[1]
    own_ns = spans_ns + (module_call_ns or 0) * calls + (observed_call_ns or 0) * observed
    return {
        "own_spans_ns": spans_ns,
        "module_calls": calls,
        "module_call_ns": module_call_ns,
        "observed_calls": observed,
        "observed_call_ns": observed_call_ns,
        "share": round(own_ns / wall_ns, 5) if wall_ns else None,
        "provenance": "own_spans_ns measured; module_call_ns, observed_call_ns, share estimated",
    }


@functools.cache
def _prices() -> tuple[int, int]:
    """A module call's hooks and an observed call's stand-in, measured once in a process."""
    probe = _Probe()
    try:
        return probe.module_call_ns(), probe.observed_call_ns()
    finally:
        probe.end()


class _Probe:
    """A recording of nothing, in which hooks and stand-ins are tried."""

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        self._recorder = Recorder(Nowhere(), Options())
        self._state = self._recorder.thread_state()
        self._state.open("calls", "forward", "calibration")
        self._state.place = "here", None  # as inside a model: every call from the same place
        self._weight = self._torch.ones(_WIDTH, _WIDTH)
        self._tensor = self._torch.ones(1, 1, _WIDTH)

    def end(self) -> None:
        """Nothing of it stays open."""
        try:
            self._state.end_all()
        finally:
            self._state.leave_thread()

    def module_call_ns(self) -> int:
        """What the hooks of a module add to its call."""
        from tracer.instrument.watching import watch_module

        identity = self._torch.nn.Identity
        bare, hooked = ([identity() for _ in range(_CALLS)] for _ in range(2))
        watched = [
            watch_module(self._recorder, "calibration", "module", module, by_torch=False)
            for module in hooked
        ]
        added = self._added_ns(
            [functools.partial(one, self._tensor) for one in bare],
            [functools.partial(one, self._tensor) for one in hooked],
        )
        for one in watched:
            one.remove()
        return added

    def observed_call_ns(self) -> int:
        """What the stand-in of a function adds to its call, without what it counts as its own."""
        functions: list[Callable[[], None]] = [lambda: None] * _CALLS
        observed = [INSTALLER.observed(_SPAN, function) for function in functions]
        return self._added_ns(functions, observed)

    def _added_ns(self, bare: list[Callable[[], Any]], changed: list[Callable[[], Any]]) -> int:
        self._run(changed)  # what is told once a module or function is told now
        added = [self._run(changed) - self._run(bare) for _ in range(_ROUNDS)]
        return max(0, round(statistics.median(added) / _CALLS))

    def _run(self, calls: list[Callable[[], Any]]) -> int:
        """Time of some calls with a layer's kind of work between them, own time left out.

        Alone in a loop code and data would stay in the processor's nearest caches, and a hook
        would cost a third of what it costs in a model.
        """
        clock, state, functional = self._recorder.clock, self._state, self._torch.nn.functional
        with self._torch.no_grad():
            before, start = state.recorder_ns, clock()
            for call in calls:
                call()
                made = functional.silu(functional.linear(self._tensor, self._weight))
                made * self._torch.rsqrt(made.pow(2).mean(-1, keepdim=True) + 1)
            return clock() - start - (state.recorder_ns - before)
