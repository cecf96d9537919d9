"""What a `Lab` keeps of its answers: caches and logits of the last ones, within bounds.

Both are needed to go on from an answer without encoding it again, and logits for what-if; both are
large. What is let go is said in the answer's trace, which keeps everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tracer.schema import EVENT_TABLES
from tracer.storage import Store, arrow_schema
from tracer.trace import Trace

if TYPE_CHECKING:
    from tracer.lab import Answer

KEPT_CACHES: Final = 8
"""Caches of so many answers are kept; an older answer is continued by encoding its ids again."""
KEPT_LOGITS_BYTES: Final = 512_000_000
"""Logits of the last answers are kept up to here, in memory; those of the newest whatever they are:
200 tokens of a vocabulary of 152k in bf16 are 61 MB at most."""
LOGITS: Final = "logits"


def let_go(answers: Sequence[Answer]) -> None:
    """Free what older answers hold beyond the bounds."""
    holding = [answer for answer in answers if answer.cache is not None]
    for answer in holding[:-KEPT_CACHES]:
        answer.cache = None
    used = 0
    for number, answer in enumerate(reversed(answers)):
        used += logits_bytes(answer)
        if number and used > KEPT_LOGITS_BYTES and logits_bytes(answer):
            _let_go_of_logits(answer)


def logits_bytes(answer: Answer) -> int:
    """Bytes of memory that an answer's logits take; none where they lie on a disk, or nowhere."""
    return 0 if answer.trace is None else answer.trace.store.memory_bytes(LOGITS)


def _let_go_of_logits(answer: Answer) -> None:
    # A cache may only be cropped where the logits show that the model computes alike without it.
    answer.cache = None
    if answer.trace is not None:
        reason = "no longer kept in memory: later answers needed the room; ask again for them"
        answer.trace = _without(answer.trace, LOGITS, reason)


def _without(trace: Trace, table: str, reason: str) -> Trace:
    """A trace that lacks one table and says why."""
    contents = {name: one for name, one in trace.store.contents.items() if name != table}
    faults = pa.concat_tables([trace.arrow("faults"), _fault(trace, table, reason)])
    given = Store.from_tables(trace.manifest, {"faults": faults})
    manifest = trace.manifest | {"dropped": [*trace.manifest.get("dropped", []), table]}
    return Trace(Store(manifest, contents | given.contents))


def _fault(trace: Trace, table: str, reason: str) -> pa.Table:
    last = max(
        (max(trace.arrow(name, ["seq"])["seq"].to_pylist(), default=-1) for name in EVENT_TABLES),
        default=-1,
    )
    row: dict[str, Any] = {"seq": last + 1, "parent": -1, "call": -1, "stage": "recorder"}
    row |= {"name": table, "start_ns": 0, "duration_ns": 0, "thread": "", "rank": 0}
    row |= {"status": "ok", "target": table, "reason": reason}
    return pa.Table.from_pylist([row], arrow_schema("faults"))
