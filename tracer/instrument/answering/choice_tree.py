"""Choices that go on from one another, and which of them stand in what a call returned.

For loops of which only the ids of their rows are known, test by test: rows may change places, be
taken out, come in, or be taken back to an earlier choice. Knows no run, no tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

Ids = list[int]


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A choice, and those that go on from it; one without columns stands for a prompt.

    Attributes:
        row: Where it stood in the test that was the first to show it.
        is_lost: Whether it goes on from ids of which nobody knows whence they came.
        reason: Why a stopping test said that its row ends here.
        text: What has read the row up to here, until a choice that goes on takes it over.
        is_end: Whether a returned sequence ends with it.
    """

    row: int
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)
    above: Node | None = None
    below: list[Node] = dataclasses.field(default_factory=list)
    is_lost: bool = False
    reason: str | None = None
    text: Any = None
    is_end: bool = False

    def add(self, row: int, columns: dict[str, Any]) -> Node:
        """A choice that goes on from this one."""
        self.below.append(Node(row, columns, self, is_lost=self.is_lost))
        return self.below[-1]

    def path(self) -> list[Node]:
        """The choices from the prompt to this one."""
        path, node = [], self
        while node.above is not None:
            path.append(node)
            node = node.above
        return path[::-1]

    def root(self) -> Node:
        """The prompt that it goes on from in the end."""
        node = self
        while node.above is not None:
            node = node.above
        return node

    def finish_text(self) -> None:
        """Give a last choice what the bytes behind it read as, once."""
        text, self.text = self.text, None
        if text is not None and self.columns["text"] is not None:
            self.columns["text"] += text.finish()

    def last(self) -> Node | None:
        """The last of the choices that go on from here; None where the ways part."""
        node = self
        while len(node.below) == 1:
            node = node.below[0]
        return None if node.below else node


class Begun(NamedTuple):
    """What a row of ids goes on from: a choice, its row, and how many ids are known with it."""

    node: Node
    row: int
    known: int


class Way(NamedTuple):
    """A returned sequence: its prompt, its choices, and the ids behind them."""

    root: Node
    path: list[Node]
    rest: Ids

    @property
    def end(self) -> Node:
        """Its last choice, or its prompt."""
        return self.path[-1] if self.path else self.root


class ChoiceTree:
    """The choices of all rows, each below the one before it."""

    def __init__(self, prompt: list[Ids], pad: int | None = None) -> None:
        self.is_crossed = False  # rows have changed places, or come from nowhere
        self._roots = [Node(row) for row in range(len(prompt))]
        self._prompt = prompt
        self._pad = pad
        self._rows = prompt
        self._ends = list(self._roots)

    @property
    def width(self) -> int:
        """Ids of each row by now."""
        return len(self._rows[0]) if self._rows else 0

    @property
    def is_forked(self) -> bool:
        """Whether several choices go on from one."""
        waiting = list(self._roots)
        while waiting:
            below = waiting.pop().below
            if len(below) > 1:
                return True
            waiting += below
        return False

    def begun(self, rows: list[Ids]) -> list[Begun | None]:
        """What each row goes on from: what stood in its place, else in another, else earlier."""
        return [self._before(row, ids) or self._earlier(ids) for row, ids in enumerate(rows)]

    def _before(self, row: int, ids: Ids) -> Begun | None:
        """The row of the test before that these ids go on from."""
        places = [row, *range(len(self._rows))] if row < len(self._rows) else range(len(self._rows))
        for place in places:
            known = self._rows[place]
            if ids[: len(known)] == known:
                return Begun(self._ends[place], place, len(known))
        return None

    def _earlier(self, ids: Ids) -> Begun | None:
        """The last choice that these ids share with any that were shown, padded anew perhaps."""
        return self._deepest(ids, self._prompt, 0) or self._deepest(
            bare := self.bare(ids), list(map(self.bare, self._prompt)), len(ids) - len(bare)
        )

    def _deepest(self, ids: Ids, prompts: list[Ids], pads: int) -> Begun | None:
        ways = []
        for root, prompt in zip(self._roots, prompts, strict=True):
            if ids[: len(prompt)] == prompt:
                node = _deepest(root, ids[len(prompt) :])
                ways.append(Begun(node, node.row, pads + len(prompt) + len(node.path())))
        return max(ways, key=lambda one: one.known, default=None)

    def bare(self, ids: Ids) -> Ids:
        """Ids without the padding on their left, which a loop may set anew."""
        first = next((n for n, one in enumerate(ids) if one != self._pad), len(ids))
        return ids[first:]

    def go_on(self, rows: list[Ids], begun: list[Begun | None], ends: list[Node]) -> None:
        """From now on these are the rows, what they went on from, and the last choice of each."""
        if any(one is None or one.row != row for row, one in enumerate(begun)):
            self.is_crossed = True
        self._rows, self._ends = rows, ends

    def mark(self, returned: Sequence[Ids]) -> list[Way]:
        """Set of each choice that stands that it does, and in which sequence first."""
        ways = []
        for sequence, ids in enumerate(returned):
            found = self._way(sequence, ids)
            for node in found.path:
                node.columns.setdefault("accepted", True)
                node.columns.setdefault("sequence", sequence)
            found.end.is_end = True
            ways.append(found)
        return ways

    def _way(self, sequence: int, ids: Ids) -> Way:
        ways = []
        for root, prompt in zip(self._roots, self._prompt, strict=True):
            if ids[: len(prompt)] == prompt:
                path = _deepest(root, ids[len(prompt) :]).path()
                ways.append(Way(root, path, ids[len(prompt) + len(path) :]))
        # Of prompts that are the same its own, else one whose choices nobody has been given yet.
        return max(
            ways,
            key=lambda way: (len(way.path), way.root.row == sequence, not way.end.is_end),
        )


def _deepest(root: Node, ids: Ids) -> Node:
    """The last of the choices that spell these ids, as far as there are any."""
    nodes = [root]
    for token_id in ids:
        further = [
            below for node in nodes for below in node.below if below.columns["token_id"] == token_id
        ]
        if not further:
            break
        nodes = further
    return max(nodes, key=lambda node: (not node.is_end, node.reason is not None))
