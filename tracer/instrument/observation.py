"""One call that is observed, from before it to after it, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracer.instrument.loads import load_notes
from tracer.instrument.stages import Call, Observer, Outcome
from tracer.spans import ThreadState

Reentry = tuple[str, int, int]
"""An observed function, object and thread: within their call another one is `super()`'s."""


class Observation:
    """One observed call: the observer runs before it, then after it, inside the error boundary.

    Where it does not come to its end, by a fault of its own or by Ctrl-C, the thread is cut back to
    how it stood: nothing that it opened stays open, and what comes later is told as usual.
    """

    __slots__ = (
        *("_call", "_inside", "_is_begun", "_mark", "_observe", "_observer", "_reentry", "_state"),
        *("args", "kwargs"),
    )

    def __init__(
        self,
        state: ThreadState,
        call: Call,
        observe: Callable[..., Observer],
        reentry: Reentry | None,
        inside: set[Reentry],
    ) -> None:
        self.args = call.args
        self.kwargs = call.kwargs
        self._state = state
        self._call = call
        self._observe = observe
        self._reentry = reentry  # until the end the same target on the same object is `super()`'s
        self._inside = inside
        self._mark = state.mark()
        self._observer: Observer | None = None
        self._is_begun = False

    def begin(self) -> None:
        """Run the observer up to its yield; if it fails, the call goes on unobserved."""
        state = self._state
        recorder = state.recorder
        name = self._call.target.name
        recorder.targets_seen[name] += 1
        if self._reentry is not None:
            self._inside.add(self._reentry)
        before, started = state.recorder_ns, recorder.clock()
        try:
            self._observer = self._observe(state, self._call)
            changed = next(self._observer, None)
            if changed is not None:
                self.args, self.kwargs = changed
            self._is_begun = True
        except Exception as error:
            recorder.failed(name, error)
        finally:
            state.recorder_ns = before + recorder.clock() - started

    def end(self, result: Any, error: BaseException | None) -> Any:
        """Run the observer to its end; gives the result, or what it put in its place."""
        observer, self._observer = self._observer, None
        state = self._state
        recorder = state.recorder
        if error is None:
            recorder.targets_done[self._call.target.name] += 1
        if self._reentry is not None:
            self._inside.discard(self._reentry)
        outcome = Outcome(result, error)
        before, started = state.recorder_ns, recorder.clock()
        is_whole, status = False, "interrupted"
        try:
            if observer is not None and self._is_begun:
                is_whole = self._finish(observer, outcome)
            status = outcome.status
        finally:
            if not is_whole:
                self._cut_back(observer, status)
            state.recorder_ns = before + recorder.clock() - started
        return outcome.result

    def _finish(self, observer: Observer, outcome: Outcome) -> bool:
        try:
            observer.send(outcome)
            observer.close()
        except StopIteration:
            pass
        except Exception as failure:
            self._state.recorder.failed(self._call.target.name, failure)
            return False
        return True

    def _cut_back(self, observer: Observer | None, status: str) -> None:
        state = self._state
        if observer is not None:
            observer.close()
        load = state.load
        state.cut_back(self._mark, status)
        if load is not None and load is not state.load:
            load_notes.forget_jobs(load)
