"""What a loop feeds that asks the library for nothing: with it the model says what was chosen.

The ids that a forward is fed, behind those in its cache, are a row as it stands; what is new in it
was chosen from the forward before, in a way that only the loop knows. So the model's own opinion of
a choice is told, where one forward alone was fed the ids before it, and nothing of the rest.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from tracer.instrument.answering.choice_tree import Ids, Node
from tracer.instrument.answering.spreads import Spread

_KEPT: Final = 4
"""Forwards whose logits wait for the choices made from them; a loop may take several for one."""


class Feeding:
    """Rows as they were fed, and own copies of what the last forwards made of them."""

    def __init__(self) -> None:
        self._whole: Any = None  # (rows, tokens), of the last forward
        self._made: list[tuple[Any, Any]] = []  # such rows with logits: (rows, vocabulary)

    def began(self, ids: Any, held: int | None) -> Any:
        """The whole rows behind what a forward is fed; None where they are not known."""
        before, self._whole = self._whole, None
        if ids is None or ids.ndim != 2 or ids.is_floating_point() or held is None:
            return None
        if held == 0:
            self._whole = ids.clone()
        elif before is not None and len(before) == len(ids) and before.shape[1] >= held:
            self._whole = sys.modules["torch"].cat([before[:, :held], ids], 1)
        return self._whole

    def made(self, logits: Any) -> None:
        """What a forward made at the last place of each row."""
        if self._whole is not None and len(self._whole) == len(logits):
            self._made.append((self._whole, logits))  # read between steps: a device isn't awaited
            del self._made[:-_KEPT]

    def tell(self, chosen: list[tuple[Ids, Node]]) -> None:
        """The model's own opinion of each choice, where a forward alone had the ids before it."""
        made: list[tuple[list[Ids], Any]] = [(ids.tolist(), logits) for ids, logits in self._made]
        for rows, logits in made:
            others = [other for other, _ in made if other is not rows]
            mine = [
                (rows.index(history), node)
                for history, node in chosen
                if history in rows and not any(history in other for other in others)
            ]
            if mine:
                _tell(logits[[place for place, _ in mine]], [node for _, node in mine])


def _tell(logits: Any, nodes: list[Node]) -> None:
    with sys.modules["torch"].no_grad():
        spread = Spread.over_all(logits)
        scores = spread.at([[node.columns["token_id"]] for node in nodes])
        ranks = spread.rank(scores)
    for row, node in enumerate(nodes):
        node.columns |= {
            "raw_logprob": scores[row][0] - spread.log_total[row],
            "raw_rank": ranks[row][0],
            "raw_entropy": spread.entropy[row],
        }
