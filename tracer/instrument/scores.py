"""Own copies of a step's scores, how processors are watched while they make them, what was picked.

Knows no run and writes no row.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple


@dataclasses.dataclass(slots=True)
class Scores:
    """A step's own copies; freed when the step is resolved. Shapes: (rows, vocabulary)."""

    raw: Any = None
    after: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    final: Any = None
    logits: Any = None
    chosen: Any = None  # (rows,)
    stopped: Any = None  # (rows,)
    fired: list[tuple[str, Any]] = dataclasses.field(default_factory=list)  # (rows,) each

    @property
    def is_complete(self) -> bool:
        """Whether the scores were seen, and what was chosen from them."""
        return self.raw is not None and self.final is not None and self.chosen is not None

    def at(self, rows: list[int]) -> Scores:
        """Own copies of some of the rows, in this order; the same matrix stays the same."""
        known: dict[int, Any] = {}

        def chosen(scores: Any) -> Any:
            if id(scores) not in known:
                known[id(scores)] = scores[rows]
            return known[id(scores)]

        after = [(name, chosen(scores)) for name, scores in self.after]
        return Scores(chosen(self.raw), after, chosen(self.final))


class Pick(NamedTuple):
    """A token picked in a step: from which row of the scores, and as what it is told."""

    source: int
    row: int
    offset: int = 0


class Probe:
    """Stands in for a processor in the library's own loop and keeps a copy of what it returned.

    The library looks at `inspect.signature(processor.__call__)` to decide what to pass, so the
    instance shows the processor's own `__call__`; calling goes through the class.
    """

    def __init__(self, processor: Any, scores: Scores, clock: Any) -> None:
        self._processor = processor
        self._scores = scores
        self._clock = clock
        self.own_ns = 0
        self.__dict__["__call__"] = processor.__call__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the processor; copy its result."""
        result = self._processor(*args, **kwargs)
        start = self._clock()
        self._scores.after.append((type(self._processor).__name__, result.detach().clone()))
        self.own_ns += self._clock() - start
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)
