"""Rows of one recording on their way to the journal, and the one error boundary.

Rows are buffered, some are made later, and all are handed over between steps; over `max_bytes`
whole tables are given up. What fails here, or anywhere in the lab's own work, is a `faults` row.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from tracer import rows as row_forms
from tracer.sinks import Sink
from tracer.spans import ACTIVE

RANK_SHIFT: Final = 40
# Over max_bytes these are given up in this order; calls, steps, choices and faults never.
_DROP_ORDER: Final = (
    ("logits",),
    ("modules",),
    ("candidates", "effects", "stops"),
    ("cache_layers",),
)


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

    __slots__ = ("is_quiet", "ledger", "target")

    def __init__(self, ledger: Ledger, target: str, *, is_quiet: bool = False) -> None:
        self.ledger = ledger
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
        self.ledger.failed(self.target, error)
        return True


class Ledger:
    """What a recording writes down, row by row, and what it says of its own failures."""

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
        self.followers: dict[str, Callable[[dict[str, Any]], None]] = {}  # by table
        self.dropped: list[str] = []
        self._pending: dict[str, list[row_forms.Row]] = defaultdict(list)
        self._pending_rows = 0
        self._later: list[tuple[str, Callable[[], None]]] = []
        self._last_flush = self.origin
        self._faults_said: set[tuple[str, str]] = set()
        self._lock = threading.RLock()

    # Rows

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

    def add_rows(self, table: str, count: int, **columns: Any) -> None:
        """Buffer many rows of a table; a list is a column's cells, anything else all rows' cell."""
        if table in self.dropped or not count:
            return
        with self._lock:
            self._pending[table].append(row_forms.Block(count, {"rank": self.rank} | columns))
            self._pending_rows += count

    def add_fact(self, table: str, event: int, call: int, **columns: Any) -> None:
        """Write a row of a fact table."""
        self.add(table, {"event": event, "call": call, "rank": self.rank} | columns)

    def has(self, table: str, row: dict[str, Any]) -> bool:
        """Whether this very row waits to be written."""
        return any(one is row for one in self._pending.get(table, ()))

    def add_facts(self, table: str, call: int, count: int, **columns: Any) -> None:
        """Buffer many rows of a fact table; a list is a column's cells, else all rows' cell."""
        self.add_rows(table, count, event=call, call=call, **columns)

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

    # Rows made later

    def add_later(self, target: str, make: Callable[[], None]) -> None:
        """Put off the making of rows until rows are handed over, mostly out of the user's call.

        Args:
            target: Name of the work, should it fail.
            make: Adds the rows, out of plain values that were taken while they were true.
        """
        with self._lock:
            self._later.append((target, make))

    def make_rows(self) -> None:
        """Make the rows that were put off, each lot whole: what an interrupt cuts off waits on."""
        while self._later:
            with self._lock:
                self._make_next()

    def _make_next(self) -> None:
        if not self._later:  # another thread was faster
            return
        lot = self._later[0]
        before, said = self._pending, set(self._faults_said)
        try:
            self._pending = defaultdict(list)
            with self.guard(lot[0]):
                lot[1]()
            self._keep_lot(before)
        except Exception:  # of a strict recording
            self._keep_lot(before)
            raise
        except BaseException:
            if self._later and self._later[0] is lot:
                self._pending, self._faults_said = before, said
            raise

    def _keep_lot(self, before: dict[str, list[row_forms.Row]]) -> None:
        together = defaultdict(list, before)
        for table, rows in self._pending.items():
            together[table] = [*before.get(table, ()), *rows]
        # At once: Ctrl-C strikes before or after, never between.
        self._pending, self._later = together, self._later[1:]

    # What went wrong

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

    # Where rows go

    def flush(self) -> None:
        """Hand all buffered rows to the journal."""
        self.make_rows()
        with self._lock:
            for table in list(self._pending):
                self._write_pending(table)
            self._pending_rows = 0
        self._last_flush = self.clock()
        if self.is_live:  # after the last rows there is nothing left to give up
            self._honour_limit()

    def _write_pending(self, table: str) -> None:
        rows = list(self._pending[table])

        def let_go() -> None:
            waiting = self._pending[table]
            if rows and waiting and waiting[0] is rows[0]:
                del waiting[: len(rows)]

        if table in self.dropped:
            let_go()
        else:
            self.hand_over(table, lambda: self._write(table, rows), let_go)

    def hand_over(self, table: str, write: Callable[[], None], let_go: Callable[[], None]) -> None:
        """Write rows and let go of them: both or neither, wherever Ctrl-C strikes.

        Args:
            table: The rows' table.
            write: Gives them to the sink.
            let_go: Forgets them; again does nothing.
        """
        before = self.sink.rows_of(table)
        try:
            write()
            let_go()
        except BaseException as error:
            # What the lab can't write now it never can; what is kept waits for the next time.
            if isinstance(error, Exception) or self.sink.rows_of(table) != before:
                let_go()
            raise

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
