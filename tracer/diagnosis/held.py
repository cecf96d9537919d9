"""A trace that many rules ask: each table is read once, and it is known who asked for which.

Tables with a row a module call or with raw logits are not held: they may have millions of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracer.conditions import Where
from tracer.storage import Store
from tracer.trace import EVENTS, Trace

_LARGE: Final = frozenset({EVENTS, "modules", "logits", "candidates", "sources"})


class HeldTrace(Trace):
    """The same trace, its small tables in memory. Frames are shared: a rule changes none.

    Attributes:
        asked: Tables that were asked for since somebody cleared it.
        shared: What rules make of it and hand on to each other.
        not_whole: Tables that lack rows: given up for `max_bytes`, or lost from the folder.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace.store.remains())
        lost = [entry["table"] for entry in trace.manifest.get("lost", [])]
        self.not_whole = {*lost, *trace.manifest.get("dropped", [])}
        self.asked: set[str] = set()
        self.shared: dict[str, Any] = {}
        self._held: dict[str, Store] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        self._answers: dict[str, pd.DataFrame] = {}

    def arrow(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Where = None,
        limit: int | None = None,
    ) -> pa.Table:
        """As `Trace.arrow`, out of memory where the table is held."""
        self.asked.add(table)
        if table in _LARGE:
            return super().arrow(table, columns, where, limit)
        if table not in self._held:
            self._held[table] = Store.from_tables({}, {table: super().arrow(table)})
        return self._held[table].read(table, columns, where, limit)

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: Where = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """As `Trace.read`; the same question is answered once, each time with a frame of its own.

        Analyses ask for the same columns for every load, and making a frame takes longest.
        """
        if table in _LARGE or isinstance(where, pc.Expression):
            return super().read(table, columns, where, limit)
        self.asked.add(table)
        question = repr((table, columns, where, limit))
        if question not in self._answers:
            self._answers[question] = super().read(table, columns, where, limit)
        return self._answers[question].copy()

    def __getitem__(self, table: str) -> pd.DataFrame:
        """A whole table, as `Trace` gives it; the same frame for everybody who asks."""
        self.asked.add(table)
        if table in _LARGE:
            return super().__getitem__(table)
        if table not in self._frames:
            self._frames[table] = super().__getitem__(table)
        return self._frames[table]

    @property
    def options(self) -> dict[str, object]:
        """What the recording was asked for."""
        return dict(self.manifest.get("options", {}))
