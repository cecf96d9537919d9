"""One step of a generate(): what is noted of it while it is open, and until it is resolved."""

from __future__ import annotations

import dataclasses
from typing import Any

from tracer.instrument.answering.beams import Round
from tracer.instrument.answering.device_time import DeviceTimer
from tracer.instrument.answering.scores import Scores
from tracer.spans import Span

Row = tuple[str, dict[str, Any]]


@dataclasses.dataclass(slots=True)
class Step:
    """The step that is open or waits to be resolved."""

    number: int
    span: Span
    start_ns: int
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)
    own_ns: int = 0
    forward_start: int = 0
    timer: DeviceTimer | None = None
    in_forward: bool = False
    is_fed: bool = False
    processors_end: int | None = None
    row: Row | None = None
    positions: Any = None
    seen_before: Any = None
    seen_after: Any = None
    fed_at: Any = None  # first and last index in the sequence, where the library says so
    chose: bool = False
    scores: Scores = dataclasses.field(default_factory=Scores)
    rotary_rows: int = 0
    drafted: Any = None  # ids that assisted decoding proposed: (drafts,)
    earlier: list[Scores] = dataclasses.field(default_factory=list)  # of its places before this
    selection: Round | None = None  # of beam search
