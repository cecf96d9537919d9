"""One recording's clock, sequence, span stacks and buffers, and its one error boundary.

Knows no library: `instrument/` tells it what happened, in plain numbers and text, and it turns
that into rows for the journal. Hot events (module calls) are a tuple of numbers each until they are
drained between steps; everything else is a dict a row. Nothing here keeps a tensor.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
import traceback
import weakref
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol

import pyarrow as pa

from tracer import rows as row_forms
from tracer.places import Places
from tracer.spans import ACTIVE, Span, ThreadState

RANK_SHIFT: Final = 40
_FLUSH_NS: Final = 1_000_000_000
_FLUSH_ROWS: Final = 4096
# Over max_bytes these are given up in this order; calls, steps, choices and faults never.
_DROP_ORDER: Final = (
    ("logits",),
    ("modules",),
    ("candidates", "effects", "stops"),
    ("cache_layers",),
)


class Sink(Protocol):
    """Where rows go: the part of a journal that the recorder uses."""

    @property
    def bytes_written(self) -> int:
        """Bytes that rows have taken so far."""

    @property
    def is_durable(self) -> bool:
        """Whether rows outlive the process: there is a folder that takes them."""

    @property
    def failure(self) -> OSError | None:
        """What stopped writing to the disk; rows are kept in memory from then on."""

    def append(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows of a table."""

    def append_starts(self, batch: pa.RecordBatch) -> None:
        """Take start records of open spans."""


class Nowhere:
    """A sink that forgets: of a recording left to another process, or of one never to be read."""

    bytes_written = 0
    is_durable = False
    failure = None

    def append(self, table: str, batch: pa.RecordBatch) -> None:
        """Drop rows."""

    def append_starts(self, batch: pa.RecordBatch) -> None:
        """Drop start records."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a recording was asked to keep; `session.record` explains each."""

    detail: str = "layers"
    effects: bool = True
    top_k: int = 10
    values: bool = False
    logits: bool = False
    verify_weights: bool = False
    layers: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    redact_text: bool = False
    max_bytes: int | None = None


class Guard:
    """The error boundary: a failure of the recorder inside it becomes a `faults` row.

    KeyboardInterrupt and other non-`Exception`s pass, since they are the user's.
    """

    __slots__ = ("is_quiet", "recorder", "target")

    def __init__(self, recorder: Recorder, target: str, *, is_quiet: bool = False) -> None:
        self.recorder = recorder
        self.target = target
        self.is_quiet = is_quiet  # the work will be tried again in smaller pieces

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if self.is_quiet:
            return True
        self.recorder.failed(self.target, error)
        return True


class ShortIds:
    """Readable ids of objects, kept without keeping the objects: model-1, model-2, ..."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._numbers = itertools.count(1)
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def of(self, thing: Any) -> str:
        """The id of an object, the same for the same object throughout the trace."""
        name = self._known.get(thing)
        if name is None:
            name = self._known[thing] = f"{self._word}-{next(self._numbers)}"
        return name

    def knows(self, thing: Any) -> bool:
        """Whether the object was named before."""
        return thing in self._known

    def alive(self) -> list[Any]:
        """The named objects that still exist."""
        return list(self._known)


class Recorder:
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
        self.sink = sink
        self.options = options
        self.strict = strict
        self.rank = rank
        self.clock = clock
        self.origin = clock()
        self.next_seq: Callable[[], int] = itertools.count(rank << RANK_SHIFT).__next__
        self.is_live = True
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
        self.followers: dict[str, Callable[[dict[str, Any]], None]] = {}  # by table
        self.drained_modules = 0
        self.dropped: list[str] = []
        self._pending: dict[str, list[row_forms.Row]] = defaultdict(list)
        self._pending_rows = 0
        self._later: list[tuple[str, Callable[[], None]]] = []
        self._last_flush = self.origin
        self._faults_said: set[tuple[str, str]] = set()
        self._lock = threading.RLock()

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

    def add_fact(self, table: str, event: int, call: int, **columns: Any) -> None:
        """Write a row of a fact table."""
        self.add(table, {"event": event, "call": call, "rank": self.rank} | columns)

    def add_point(self, table: str, stage: str, name: str, **columns: Any) -> None:
        """Write an event without duration: a memory sample, a message, a fault."""
        state = ACTIVE.get(threading.get_ident())
        inside = state is not None and state.recorder is self
        row = {
            "seq": self.next_seq(),
            "parent": state.top if inside and state else -1,
            "call": state.call if inside and state else -1,
            "stage": stage,
            "name": name,
            "start_ns": self.clock() - self.origin,
            "duration_ns": 0,
            "thread": threading.current_thread().name,
            "rank": self.rank,
            "status": "ok",
        }
        self.add(table, row | columns)

    def add(self, table: str, row: dict[str, Any]) -> None:
        """Buffer one row."""
        if table in self.dropped:
            return
        with self._lock:
            self._pending[table].append(row)
            self._pending_rows += 1
        if table in self.followers:
            with self.guard(f"follower of {table}"):
                self.followers[table](row)

    def has(self, table: str, row: dict[str, Any]) -> bool:
        """Whether this very row waits to be written."""
        return any(one is row for one in self._pending.get(table, ()))

    def add_facts(self, table: str, call: int, count: int, **columns: Any) -> None:
        """Buffer many rows of a fact table; a list is a column's cells, else all rows' cell."""
        self.add_rows(table, count, event=call, call=call, **columns)

    def add_rows(self, table: str, count: int, **columns: Any) -> None:
        """Buffer many rows of a table; a list is a column's cells, anything else all rows' cell."""
        if table in self.dropped or not count:
            return
        with self._lock:
            self._pending[table].append(row_forms.Block(count, {"rank": self.rank} | columns))
            self._pending_rows += count

    def add_later(self, target: str, make: Callable[[], None]) -> None:
        """Put off the making of rows until rows are handed over, mostly out of the user's call.

        Args:
            target: Name of the work, should it fail.
            make: Adds the rows, out of plain values that were taken while they were true.
        """
        self._later.append((target, make))

    def make_rows(self) -> None:
        """Make the rows that were put off, each lot whole: what an interrupt cuts off waits on."""
        while self._later:
            with self._lock:
                self._make_next()

    def _make_next(self) -> None:
        if not self._later:  # another thread was faster
            return
        target, make = self._later[0]
        before, said = self._pending, set(self._faults_said)
        self._pending = defaultdict(list)
        is_over = False
        try:
            with self.guard(target):
                make()
            is_over = True
        except Exception:  # of a strict recording
            is_over = True
            raise
        finally:
            made, self._pending = self._pending, before
            if is_over:
                del self._later[0]
                for table, rows in made.items():
                    self._pending[table] += rows
            else:
                self._faults_said = said

    def fault(
        self,
        target: str,
        reason: str,
        error: BaseException | None = None,
        *,
        call: int | None = None,
    ) -> None:
        """Say what was not observed and why; the same words are said once.

        Args:
            target: What it is about.
            reason: Why.
            error: What was raised.
            call: The call that it belongs to, where that may be over by now.
        """
        if (target, reason) in self._faults_said:
            return
        self._faults_said.add((target, reason))
        text = "".join(traceback.format_exception(error)) if error else None
        place = {} if call is None else {"parent": call, "call": call}
        told = {"target": target, "reason": reason, "traceback": text}
        self.add_point("faults", "recorder", target, **told, **place)

    def failed(self, target: str, error: Exception) -> None:
        """The lab's own work failed: a `faults` row; strict, the failure itself."""
        self.fault(target, f"the recorder failed: {error!r}", error)
        if self.strict:
            raise error

    def guard(self, target: str) -> Guard:
        """The error boundary round a piece of the recorder's own work."""
        return Guard(self, target)

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

    def drain(self, state: ThreadState) -> None:
        """Turn a thread's hot rows into a batch of `modules`."""
        hot, state.rows, state.shapes = state.rows, [], {}
        values, state.values = state.values, {}
        arguments, state.arguments = state.arguments, {}
        if not hot or "modules" in self.dropped:
            return
        self.drained_modules += len(hot)
        made = row_forms.module_batch(self, hot, state.thread, values, arguments)
        self.sink.append("modules", made)

    def flush(self) -> None:
        """Hand all buffered rows to the journal."""
        self.make_rows()
        with self._lock:
            pending, self._pending = self._pending, defaultdict(list)
            self._pending_rows = 0
        for table, rows in pending.items():
            if table not in self.dropped:
                self._write(table, rows)
        self._last_flush = self.clock()
        if self.is_live:  # after the last rows there is nothing left to give up
            self._honour_limit()

    def _write(self, table: str, rows: list[row_forms.Row]) -> None:
        """Write rows; where they can't all be stored, each that can't is a fault."""
        is_alone = len(rows) == 1 and isinstance(rows[0], dict)
        with Guard(self, table, is_quiet=not is_alone):
            self.sink.append(table, row_forms.batch(table, rows, self.options.redact_text))
            return
        if not is_alone:
            for row in rows:
                for one in [row] if isinstance(row, dict) else row.split():
                    self._write(table, [one])

    def _honour_limit(self) -> None:
        limit = self.options.max_bytes
        if limit is None or self.sink.bytes_written <= limit:
            return
        for tables in _DROP_ORDER:
            if tables[0] not in self.dropped:
                self.dropped.extend(tables)
                seq = self.next_seq()
                self.fault(
                    ", ".join(tables),
                    f"max_bytes={limit} reached: not recorded from seq {seq} on",
                )
                return

    def finish(self) -> None:
        """While events still count: let observers tell what they kept for the end."""
        if not self.at_end and not self._later:
            return
        with self.thread_state().own_work("end of the recording"):
            self.make_rows()
            for callback in self.at_end:
                with self.guard("end of the recording"):
                    callback()

    def abandon(self) -> None:
        """In a forked child: what is open here ends unseen, the files are the parent's."""
        self.is_live = False
        self.strict = False
        self.sink = Nowhere()
        self.listening.clear()
        self._lock = threading.RLock()  # another thread of the parent may have held it

    def end(self) -> None:
        """No more events: open spans are interrupted, everything gathered goes to the journal."""
        self.is_live = False
        for state in list(self.threads.values()):
            with self.guard("end of the recording"):
                state.end_all()
            with self.guard("end of the recording"):
                state.leave_thread()
            if ACTIVE.get(state.ident) is state:  # should that have failed, at least let go
                del ACTIVE[state.ident]
            with self.guard("modules"):
                self.drain(state)
        with self.guard("stacks, sources"):
            for table, rows in self.places.tables().items():
                for row in rows:
                    self.add(table, row)
        with self.guard("journal"):
            self.flush()
        if self.sink.failure is not None:
            self.fault("journal", f"the disk took no more rows: {self.sink.failure}")
        with self.guard("journal"):
            self.flush()  # what the last flush itself had to say
