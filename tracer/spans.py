"""Spans of one thread inside one recording: what is open, what encloses what, whose time it is.

Module calls are kept apart as plain tuples (`frames`), since a hook pushes and pops one for every
module of every forward. Rows are handed to the recorder when a span closes.
"""

from __future__ import annotations

import dataclasses
import gc
import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tracer.clocks import close_schedule, open_schedule, waited_ns
from tracer.places import Reached
from tracer.rows import INTERRUPTED, Frame, HotRow, Shapes

if TYPE_CHECKING:
    from tracer.recorder import Recorder

ACTIVE: Final[dict[int, ThreadState]] = {}
"""Thread ident to the state whose outermost span is open there: what a hook looks up first."""


Place = tuple[str | None, Any]
"""From where a model is called: key of the call path, and its device; one object for the same."""


Mark = tuple[int, int, int, tuple[Any, ...]]
"""How a thread stood: open spans and module calls, held rows, and what else an observer changes."""

_STANDING: Final = (
    *("top", "call", "context", "place", "reached", "counts", "muted"),
    *("asked", "pipeline", "load", "run", "notes", "halts_collector"),
)
_standing_of: Final = operator.attrgetter(*_STANDING)


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
    waited_before: int | None = None
    waited_below: int = 0
    """Of a call: what its thread waited for a processor inside the spans directly below it."""
    row: tuple[str, dict[str, Any]] | None = None
    """Of a span that is being closed: made once, though an interrupt may come before it is gone."""


class ThreadState:
    """One thread's span stack inside one recording.

    `frames` holds the module calls that are open, above the spans that are: a hook pushes and pops
    there without looking at the spans. `context` says which call, step and stage hot rows belong
    to, `place` from where the model was called whose modules run, `reached` by which frame.
    """

    __slots__ = (
        "arguments",
        "asked",
        "below",
        "call",
        "context",
        "counts",
        "frames",
        "halts_collector",
        "held",
        "ident",
        "load",
        "muted",
        "notes",
        "pipeline",
        "place",
        "reached",
        "recorder",
        "recorder_ns",
        "rows",
        "run",
        "schedule",
        "shapes",
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
        self.frames: list[Frame] = []
        self.top = -1
        self.call = -1
        self.context = 0
        self.place: Place | None = None  # of the outermost model that runs
        self.reached: Reached | None = None  # the frame that called it
        self.rows: list[HotRow] = []
        self.shapes: dict[Shapes, Shapes] = {}  # of the rows, each pair once
        self.values: dict[int, tuple[float, float, float, int]] = {}
        self.arguments: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}  # and what was made
        self.recorder_ns = 0
        self.schedule: int | None = None  # file of the system that tells how long it waited
        self.counts: dict[str, int] = {}
        self.held: list[tuple[str, dict[str, Any]]] = []
        self.halts_collector = False  # for the lab's own work, while the user has it on
        self.muted = False  # module calls don't count now; changed by `mute`
        self.below: ThreadState | None = None  # another recording's, whose call is open round ours
        self.asked: dict[str, Any] | None = None  # arguments of the Auto class's call
        self.pipeline: dict[str, Any] | None = None  # arguments of the pipeline that is being made
        self.notes: dict[str, Any] = {}  # what else observers keep; replaced as a whole by `note`
        self.load: Any = None  # the innermost load of instrument/loading.py
        self.run: Any = None  # the innermost generate() of instrument/generation.py

    def open(self, table: str, stage: str, name: str, **columns: Any) -> Span:
        """Open a span below what is open in this thread; the first one makes the state active."""
        recorder = self.recorder
        if not self.spans:
            self._take_thread()
        seq = recorder.next_seq()
        is_call = table == "calls"
        is_measured = is_call or (self.spans and self.spans[-1].table == "calls")
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
            waited_ns(self.schedule) if is_measured else None,
        )
        self.spans.append(span)
        self.top = seq
        if is_call:
            self.call = seq
            self.context = recorder.context(seq, -1, stage)
            recorder.write_start(self, span)
        return span

    def _take_thread(self) -> None:
        """From now on the thread's events are this recording's, not those of one around it."""
        if (below := ACTIVE.get(self.ident)) is not self:
            self.below = below
        if self.below is not None:
            self.below.recorder.listening.pop(self.ident, None)
        ACTIVE[self.ident] = self
        if self.schedule is None:
            self.schedule = open_schedule()
        if not self.muted:
            self.recorder.listening[self.ident] = self

    def leave_thread(self) -> None:
        """Nothing of this recording is open any more: the one around it goes on."""
        self.recorder.listening.pop(self.ident, None)
        below = self.below if self.below is not None and self.below.spans else None
        if ACTIVE.get(self.ident) is self:
            if below is None:
                del ACTIVE[self.ident]
            else:
                ACTIVE[self.ident] = below
        if below is not None and ACTIVE.get(self.ident) is below and not below.muted:
            below.recorder.listening[self.ident] = below
        self.below = None  # last: what an interrupt cuts off here is done again
        schedule, self.schedule = self.schedule, None
        close_schedule(schedule)

    def mute(self, muted: bool) -> None:
        """Let module calls count or not."""
        self.muted = muted
        if muted or ACTIVE.get(self.ident) is not self:
            self.recorder.listening.pop(self.ident, None)
        else:
            self.recorder.listening[self.ident] = self

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
        if not ((self.spans and self.spans[-1] is span) or any(one is span for one in self.spans)):
            return None  # the recording ended first and wrote it as interrupted
        while self.spans[-1] is not span:
            self.release(self._finish(self.spans[-1], None, "interrupted"))
        span.columns.update(columns)
        return self._finish(span, end, status)

    def release(self, row: tuple[str, dict[str, Any]]) -> None:
        """Write a held row; one that is held no more was written when its call was cut short."""
        others = [other for other in self.held if other is not row]
        if len(others) < len(self.held):
            self.recorder.add(*row)
            self.held = others
        if not self.spans:
            self.recorder.write_soon()

    def _finish(self, span: Span, end: int | None, status: str) -> tuple[str, dict[str, Any]]:
        """Close the innermost span. Its row is held before it is gone: an interrupt loses none."""
        self.cut_frames(span.frames_below)
        self.top = span.parent
        self.context = span.outer_context
        row = span.row
        if row is None:
            if span.waited_before is not None:
                self._note_waiting(span, span.waited_before)
            if span.table == "calls":
                span.columns["recorder_ns"] = self.recorder_ns - span.recorder_ns_before
            row = span.row = span.table, self.recorder.event_row(self, span, end, status)
            self.held.append(row)
        elif not any(one is row for one in self.held):
            self.held.append(row)
        self.spans.pop()
        if span.table == "calls":
            self.call = self._enclosing_call()
        if not self.spans:
            self.leave_thread()
        return row

    def _note_waiting(self, span: Span, before: int) -> None:
        """How long the thread waited for a processor: in a call, and outside of its children."""
        now = waited_ns(self.schedule)
        if now is None:
            return
        if span.table == "calls":
            span.columns["waited_ns"] = now - before
            span.columns["gap_waited_ns"] = max(0, now - before - span.waited_below)
        around = self.spans[-2] if len(self.spans) > 1 else None
        if around is not None and around.table == "calls":
            around.waited_below += now - before

    def _enclosing_call(self) -> int:
        return next((span.seq for span in reversed(self.spans) if span.table == "calls"), -1)

    def cut_frames(self, keep: int) -> None:
        """Write module calls above `keep` as interrupted: their closing hook never fired."""
        while len(self.frames) > keep:
            frame = self.frames.pop()
            self.rows.append((frame, self.context, None, (None, None), None, INTERRUPTED))
            self.top = frame[1]

    def end_all(self) -> None:
        """The recording ends while this thread is still inside a call."""
        while self.spans:
            self.release(self._finish(self.spans[-1], None, "interrupted"))
        self._release_held(0)
        self._collect_again(halted=False)

    def note(self, name: str, value: Any) -> None:
        """Keep something for other observers of this thread, until the call that notes it ends.

        Where an interrupt ends that call inside the lab, its `cut_short` is called if it has one.
        """
        self.notes = {**self.notes, name: value}

    def mark(self) -> Mark:
        """How the thread stands as an observed call begins."""
        return len(self.spans), len(self.frames), len(self.held), _standing_of(self)

    def cut_back(self, mark: Mark, status: str = "interrupted") -> None:
        """Let the thread stand as it did: an interrupt or a fault of the lab cut its work short.

        What was opened since is closed, the outermost of it with a duration and `status`.
        """
        spans, frames, held, standing = mark
        if len(self.spans) > spans:
            self.close(self.spans[spans], status)
        self.cut_frames(frames)
        self._release_held(held)
        outer = standing[_STANDING.index("notes")]
        for name, value in self.notes.items():
            if value is not outer.get(name) and hasattr(value, "cut_short"):
                value.cut_short()
        self._collect_again(standing[_STANDING.index("halts_collector")])
        for name, value in zip(_STANDING, standing, strict=True):
            setattr(self, name, value)
        if self.spans:
            self.mute(self.muted)
        else:
            self.leave_thread()

    def _release_held(self, keep: int) -> None:
        """Write what is held but the first few; an interrupt may have come right after writing."""
        for row in self.held[keep:]:
            if self.recorder.has(*row):
                self.held = [other for other in self.held if other is not row]
            else:
                self.release(row)

    def own_time(self) -> OwnTime:
        """Count what happens inside as the recorder's time, without a row of its own."""
        return OwnTime(self)

    @contextmanager
    def own_work(self, name: str) -> Iterator[Span]:
        """The recorder's own work, as a span that is taken out of the library's time."""
        with self.own_time(), self.uncollected():
            span = self.open("spans", "recorder", name)
            try:
                yield span
            finally:
                self.close(span)

    @contextmanager
    def uncollected(self) -> Iterator[None]:
        """Python's collector waits: it would walk over the model for rows that live for moments.

        With 20,000 parameters it takes more time than the making of all rows.
        """
        outer = self.halts_collector
        try:
            self.halts_collector = outer or gc.isenabled()
            gc.disable()
            yield
        finally:
            self._collect_again(outer)

    def _collect_again(self, halted: bool) -> None:
        if self.halts_collector and not halted:
            gc.enable()
        self.halts_collector = halted


class OwnTime:
    """Adds the time of a block to the thread's recorder time; nested blocks count once."""

    __slots__ = ("_before", "_start", "_state")

    def __init__(self, state: ThreadState) -> None:
        self._state = state

    def __enter__(self) -> None:
        self._before = self._state.recorder_ns
        self._start = self._state.recorder.clock()

    def __exit__(self, *_: object) -> None:
        self._state.recorder_ns = self._before + self._state.recorder.clock() - self._start
