"""One recording: its threads and spans, its hot rows, and how it ends.

Knows no library: `instrument/` tells it what happened, in plain numbers and text, and it turns
that into rows of the ledger. Hot events (module calls) are a tuple of numbers each until they are
drained between steps; everything else is a dict a row. Nothing here keeps a tensor.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from tracer import rows as row_forms
from tracer.ledger import Ledger, Options
from tracer.places import Places
from tracer.short_ids import ShortIds
from tracer.sinks import Nowhere, Sink
from tracer.spans import ACTIVE, Span, ThreadState

_FLUSH_NS: Final = 1_000_000_000
_FLUSH_ROWS: Final = 4096
_WAIT_SECONDS: Final = 1.0


class Recorder(Ledger):
    """What one recording collects, from `session.record` to the closed trace."""

    def __init__(
        self,
        sink: Sink,
        options: Options,
        *,
        strict: bool = False,
        rank: int = 0,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        super().__init__(sink, options, strict=strict, rank=rank, clock=clock)
        self.threads: dict[int, ThreadState] = {}
        # Threads whose module calls count now: what a hook looks up first.
        self.listening: dict[int, ThreadState] = {}
        self.places = Places()
        self.slots: list[row_forms.ModuleSlot] = []
        self.contexts: list[tuple[int, int, str]] = [(-1, -1, "forward")]
        self.targets_seen: dict[str, int] = defaultdict(int)
        self.targets_done: dict[str, int] = defaultdict(int)  # of these, ended without an error
        self.models = ShortIds("model")
        self.caches = ShortIds("cache")
        self.notes: dict[str, Any] = {}  # what observers leave for each other, by their own names
        self.at_end: list[Callable[[], None]] = []
        self.drained_modules = 0
        self._waiting: threading.Timer | None = None
        self._told_places = False

    # What happened

    def thread_state(self) -> ThreadState:
        """This thread's state; a new one when the thread's ident was used by a dead thread."""
        ident = threading.get_ident()
        state = self.threads.get(ident)
        if state is None or state.thread != threading.current_thread().name:
            if state is not None:
                self.drain(state)
            state = self.threads[ident] = ThreadState(self)
        return state

    def event_row(
        self, state: ThreadState, span: Span, end: int | None, status: str
    ) -> dict[str, Any]:
        """The row of a span that closed."""
        row = {
            "seq": span.seq,
            "parent": span.parent,
            "call": span.call,
            "stage": span.stage,
            "name": span.name,
            "start_ns": span.start - self.origin,
            "duration_ns": None if end is None else end - span.start,
            "thread": state.thread,
            "rank": self.rank,
            "status": status,
        }
        return row | span.columns

    def context(self, call: int, step: int, stage: str) -> int:
        """A number that stands for a call, step and stage in hot rows."""
        self.contexts.append((call, step, stage))
        return len(self.contexts) - 1

    # Ids and interned descriptions

    def add_slot(self, slot: row_forms.ModuleSlot) -> int:
        """Register a module that will be hooked; hot rows name it by this number."""
        self.slots.append(slot)
        return len(self.slots) - 1

    # Where rows go

    def write_start(self, state: ThreadState, span: Span) -> None:
        """Tell the journal that a call began, so that a kill leaves it as interrupted."""
        if not self.sink.is_durable:
            return
        opened = [(span, state.thread)]
        self.sink.append_starts(row_forms.start_batch(opened, self.origin, self.rank))

    def flush_if_due(self, state: ThreadState) -> None:
        """Between steps and between batches of tensors: write what has gathered, once a second."""
        waiting = self._pending_rows + len(state.rows)
        # In memory nothing is safer for being handed over early.
        is_time = self.sink.is_durable and self.clock() - self._last_flush >= _FLUSH_NS
        if waiting < _FLUSH_ROWS and not is_time:
            return
        with state.own_work("rows to the journal"), self.guard("journal"):
            self.drain(state)
            self.flush()
            spans = [(span, state.thread) for span in state.spans if span.table != "calls"]
            if spans and self.sink.is_durable:
                self.sink.append_starts(row_forms.start_batch(spans, self.origin, self.rank))

    def write_soon(self) -> None:
        """A thread has left its last call: write what waits in a second, should nothing else do it.

        The next event may be far off, and a kill until then would make a call that had ended look
        interrupted.
        """
        if self._waiting is None and self.is_live and self.sink.is_durable:
            self._waiting = threading.Timer(_WAIT_SECONDS, self._write_what_waits)
            self._waiting.name, self._waiting.daemon = "tracer-journal", True
            self._waiting.start()

    def _write_what_waits(self) -> None:
        try:
            with self.guard("journal"):
                if self.is_live:
                    self.flush()
        finally:
            self._waiting = None
        if self._pending_rows or self._later:  # of a call that ended meanwhile
            self.write_soon()

    def _stop_waiting(self) -> None:
        while (waiting := self._waiting) is not None:
            waiting.cancel()
            waiting.join()
            if self._waiting is waiting:  # it was still to come
                self._waiting = None

    def drain(self, state: ThreadState) -> None:
        """Turn a thread's hot rows into a batch of `modules`."""
        hot = state.rows

        def let_go() -> None:
            if state.rows is hot:
                self.drained_modules += len(hot)
                state.rows, state.shapes, state.values, state.arguments = [], {}, {}, {}

        def write() -> None:
            given = state.thread, state.values, state.arguments
            self.sink.append("modules", row_forms.module_batch(self, hot, *given))

        if "modules" in self.dropped:
            state.rows, state.shapes, state.values, state.arguments = [], {}, {}, {}
        elif hot:
            self.hand_over("modules", write, let_go)

    def finish(self) -> None:
        """While events still count: let observers tell what they kept for the end."""
        if not self.at_end and not self._later:
            return
        with self.thread_state().own_work("end of the recording"):
            self.make_rows()
            while self.at_end:  # each lot whole: what an interrupt cuts off is made once more
                self.add_later("end of the recording", self.at_end[0])
                del self.at_end[0]
            self.make_rows()

    def leave_threads(self) -> None:
        """Let go of every thread: an interrupt may have kept `end` from doing so."""
        for state in list(self.threads.values()):
            state.leave_thread()

    def abandon(self) -> None:
        """In a forked child: what is open here ends unseen, the files are the parent's."""
        self.is_live = False
        self.strict = False
        self.sink = Nowhere()
        self.listening.clear()
        self._waiting = None  # threads of the parent are not here
        self._lock = threading.RLock()  # another thread of the parent may have held it

    def end(self) -> None:
        """No more events: open spans are interrupted, everything gathered goes to the journal."""
        self.is_live = False
        self._stop_waiting()
        for state in list(self.threads.values()):
            with self.guard("end of the recording"):
                state.end_all()
            with self.guard("end of the recording"):
                state.leave_thread()
            if ACTIVE.get(state.ident) is state:  # should that have failed, at least let go
                del ACTIVE[state.ident]
            with self.guard("modules"):
                self.drain(state)
        if not self._told_places:
            self.add_later("stacks, sources", self._tell_places)
        with self.guard("journal"):
            self.flush()
        if self.sink.failure is not None:
            self.fault("journal", f"the disk took no more rows: {self.sink.failure}")
        with self.guard("journal"):
            self.flush()  # what the last flush itself had to say

    def _tell_places(self) -> None:
        if self._told_places:
            return
        for table, rows in self.places.tables().items():
            for row in rows:
                self.add(table, row)
        self._told_places = True
