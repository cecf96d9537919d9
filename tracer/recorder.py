"""One recording's clock, sequence, span stacks and buffers, and its one error boundary.

Knows no library: `instrument/` tells it what happened, in plain numbers and text, and it turns
that into rows for the journal. Hot events (module calls) are seven integers in an array until they
are drained between steps; everything else is a dict a row. Nothing here keeps a tensor.
"""

from __future__ import annotations

import array
import dataclasses
import itertools
import threading
import time
import traceback
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Protocol

import pyarrow as pa

from tracer import rows as row_forms
from tracer.places import Places

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

ACTIVE: Final[dict[int, ThreadState]] = {}
"""Thread ident to the state whose outermost span is open there: what a hook looks up first."""


class Sink(Protocol):
    """Where rows go: the part of a journal that the recorder uses."""

    @property
    def bytes_written(self) -> int: ...
    def append(self, table: str, batch: pa.RecordBatch) -> None: ...
    def append_starts(self, batch: pa.RecordBatch) -> None: ...


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


@dataclasses.dataclass(slots=True)
class Span:
    """An open event. `start` is the raw clock; `columns` become the row's own columns."""

    seq: int
    parent: int
    call: int
    table: str
    stage: str
    name: str
    start: int
    outer_context: int
    frames_below: int
    recorder_ns_before: int
    columns: dict[str, Any]


class ThreadState:
    """One thread's span stack inside one recording.

    `frames` holds the module calls that are open, above the spans that are: a hook pushes and pops
    there without looking at the spans. `context` says which call, step and stage hot rows belong
    to.
    """

    __slots__ = (
        "call",
        "context",
        "counts",
        "frames",
        "held",
        "ident",
        "load",
        "muted",
        "recorder",
        "recorder_ns",
        "rows",
        "run",
        "spans",
        "thread",
        "top",
        "values",
    )

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.ident = threading.get_ident()
        self.thread = threading.current_thread().name
        self.spans: list[Span] = []
        self.frames: list[tuple[int, int, int, int]] = []  # (seq, parent, slot, start)
        self.top = -1
        self.call = -1
        self.context = 0
        self.rows = array.array("q")
        self.values: dict[int, tuple[float, float, float, int]] = {}
        self.recorder_ns = 0
        self.counts: dict[str, int] = {}
        self.held: list[tuple[str, dict[str, Any]]] = []
        self.muted = False
        self.load: Any = None  # the innermost load of instrument/loading.py
        self.run: Any = None  # the innermost generate() of instrument/generation.py

    def open(self, table: str, stage: str, name: str, **columns: Any) -> Span:
        """Open a span below what is open in this thread; the first one makes the state active."""
        recorder = self.recorder
        if not self.spans:
            ACTIVE[self.ident] = self
        seq = recorder.next_seq()
        is_call = table == "calls"
        span = Span(
            seq,
            self.top,
            seq if is_call else self.call,
            table,
            stage,
            name,
            recorder.clock(),
            self.context,
            len(self.frames),
            self.recorder_ns,
            columns,
        )
        self.spans.append(span)
        self.top = seq
        if is_call:
            self.call = seq
            self.context = recorder.context(seq, -1, stage)
            recorder.write_start(self, span)
        return span

    def close(self, span: Span, status: str = "ok", **columns: Any) -> None:
        """Close a span; whatever is still open above it was interrupted and is written so."""
        row = self.close_held(span, status, **columns)
        if row is not None:
            self.release(row)

    def close_held(
        self, span: Span, status: str = "ok", **columns: Any
    ) -> tuple[str, dict[str, Any]] | None:
        """Close a span whose row will be completed and then given to `release`."""
        end = self.recorder.clock()
        if not any(one is span for one in self.spans):
            return None  # the recording ended first and wrote it as interrupted
        while self.spans[-1] is not span:
            self.release(self._finish(self.spans[-1], None, "interrupted"))
        span.columns.update(columns)
        row = self._finish(span, end, status)
        self.held.append(row)
        return row

    def release(self, row: tuple[str, dict[str, Any]]) -> None:
        """Write a held row."""
        self.held = [other for other in self.held if other is not row]
        self.recorder.add(*row)

    def _finish(self, span: Span, end: int | None, status: str) -> tuple[str, dict[str, Any]]:
        self.cut_frames(span.frames_below)
        self.spans.pop()
        self.top = span.parent
        self.context = span.outer_context
        if span.table == "calls":
            self.call = self._enclosing_call()
            span.columns["recorder_ns"] = self.recorder_ns - span.recorder_ns_before
        if not self.spans and ACTIVE.get(self.ident) is self:
            del ACTIVE[self.ident]
        return span.table, self.recorder.event_row(self, span, end, status)

    def _enclosing_call(self) -> int:
        return next((span.seq for span in reversed(self.spans) if span.table == "calls"), -1)

    def cut_frames(self, keep: int) -> None:
        """Write module calls above `keep` as interrupted: their closing hook never fired."""
        while len(self.frames) > keep:
            seq, parent, slot, start = self.frames.pop()
            signature = self.recorder.interrupted_signature(slot)
            self.rows.extend((seq, parent, self.context, start, -1, slot, signature))
            self.top = parent

    def end_all(self) -> None:
        """The recording ends while this thread is still inside a call."""
        while self.spans:
            self.release(self._finish(self.spans[-1], None, "interrupted"))
        for row in list(self.held):
            self.release(row)

    @contextmanager
    def own_work(self, name: str) -> Iterator[Span]:
        """The recorder's own work, as a span that is taken out of the library's time."""
        span = self.open("spans", "recorder", name)
        try:
            yield span
        finally:
            self.recorder_ns += self.recorder.clock() - span.start
            self.close(span)


class Guard:
    """The error boundary: a failure of the recorder inside it becomes a `faults` row.

    KeyboardInterrupt and other non-`Exception`s pass, since they are the user's.
    """

    __slots__ = ("recorder", "target")

    def __init__(self, recorder: Recorder, target: str) -> None:
        self.recorder = recorder
        self.target = target

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.recorder.fault(self.target, f"the recorder failed: {error!r}", error)
        return not self.recorder.strict


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
        self.places = Places()
        self.slots: list[row_forms.ModuleSlot] = []
        self.signatures: list[row_forms.Signature] = []
        self.contexts: list[tuple[int, int, str]] = [(-1, -1, "forward")]
        self.targets_seen: dict[str, int] = defaultdict(int)
        self.models = ShortIds("model")
        self.caches = ShortIds("cache")
        self.notes: dict[str, Any] = {}  # what observers leave for each other, by their own names
        self.at_end: list[Callable[[], None]] = []
        self.drained_modules = 0
        self.dropped: list[str] = []
        self._pending: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._pending_rows = 0
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

    def fault(self, target: str, reason: str, error: BaseException | None = None) -> None:
        """Say what was not observed and why; the same words are said once."""
        if (target, reason) in self._faults_said:
            return
        self._faults_said.add((target, reason))
        text = "".join(traceback.format_exception(error)) if error else None
        self.add_point("faults", "recorder", target, target=target, reason=reason, traceback=text)

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

    def add_signature(self, signature: row_forms.Signature) -> int:
        """Register what is the same for many calls of a module: shapes, dtype, source, stack."""
        self.signatures.append(signature)
        return len(self.signatures) - 1

    def interrupted_signature(self, slot: int) -> int:
        """The signature of a call of this module that never ended."""
        known = self.slots[slot].interrupted
        if known is None:
            known = self.add_signature(row_forms.Signature(status="interrupted"))
            self.slots[slot].interrupted = known
        return known

    # Where rows go

    def write_start(self, state: ThreadState, span: Span) -> None:
        """Tell the journal that a call began, so that a kill leaves it as interrupted."""
        opened = [(span, state.thread)]
        self.sink.append_starts(row_forms.start_batch(opened, self.origin, self.rank))

    def flush_if_due(self, state: ThreadState) -> None:
        """Between steps and between batches of tensors: write what has gathered, once a second."""
        waiting = self._pending_rows + len(state.rows) // row_forms.HOT_WIDTH
        if waiting < _FLUSH_ROWS and self.clock() - self._last_flush < _FLUSH_NS:
            return
        with state.own_work("rows to the journal"), self.guard("journal"):
            self.drain(state)
            self.flush()
            spans = [(span, state.thread) for span in state.spans if span.table != "calls"]
            if spans:
                self.sink.append_starts(row_forms.start_batch(spans, self.origin, self.rank))

    def drain(self, state: ThreadState) -> None:
        """Turn a thread's hot rows into a batch of `modules`."""
        hot, state.rows = state.rows, array.array("q")
        values, state.values = state.values, {}
        if not hot or "modules" in self.dropped:
            return
        self.drained_modules += len(hot) // row_forms.HOT_WIDTH
        self.sink.append("modules", row_forms.module_batch(self, hot, state.thread, values))

    def flush(self) -> None:
        """Hand all buffered rows to the journal."""
        with self._lock:
            pending, self._pending = self._pending, defaultdict(list)
            self._pending_rows = 0
        for table, rows in pending.items():
            if table not in self.dropped:
                self.sink.append(table, row_forms.batch(table, rows, self.options.redact_text))
        self._last_flush = self.clock()
        self._honour_limit()

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
        for callback in self.at_end:
            with self.guard("end of the recording"):
                callback()

    def end(self) -> None:
        """No more events: open spans are interrupted, everything gathered goes to the journal."""
        self.is_live = False
        for state in list(self.threads.values()):
            state.end_all()
            ACTIVE.pop(state.ident, None)
            self.drain(state)
        for table, rows in self.places.tables().items():
            for row in rows:
                self.add(table, row)
        self.flush()
