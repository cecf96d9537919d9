"""Choices that go on from one another, and which of them stand in what a call returned.

For loops of which only the ids of their rows are known, test by test. Knows no run, no tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

Ids = list[int]


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A choice, and those that go on from it; without columns it stands for a prompt."""

    columns: dict[str, Any] = dataclasses.field(default_factory=dict)
    below: list[Node] = dataclasses.field(default_factory=list)

    def add(self, columns: dict[str, Any]) -> Node:
        """A choice that goes on from this one."""
        self.below.append(Node(columns))
        return self.below[-1]


class ChoiceTree:
    """The choices of all rows, each below the one before it."""

    def __init__(self, prompt: list[Ids]) -> None:
        self.is_crossed = False  # rows have changed places, or come from nowhere
        self._roots = [Node() for _ in prompt]
        self._prompt = prompt
        self._rows = prompt
        self._ends = list(self._roots)

    @property
    def width(self) -> int:
        """Ids of each row by now."""
        return len(self._rows[0]) if self._rows else 0

    def parents(self, rows: list[Ids]) -> list[int | None]:
        """The row that each of these goes on from: the same one, else the first with its ids."""
        found = [_parent(row, ids, self._rows) for row, ids in enumerate(rows)]
        if any(parent != row for row, parent in enumerate(found)):
            self.is_crossed = True
        return found

    def end(self, row: int) -> Node:
        """The last choice of a row."""
        return self._ends[row]

    def go_on(self, rows: list[Ids], ends: list[Node]) -> None:
        """From now on these are the rows, and the last choice of each."""
        self._rows, self._ends = rows, ends

    def mark(self, returned: Sequence[Ids] | None) -> list[list[Node]]:
        """Set of each choice whether it stands, and in which sequence first.

        Returns:
            The choices that each returned row is made of, as far as they are known.
        """
        width = len(self._prompt[0]) if self._prompt else 0
        paths = []
        for row, ids in enumerate(returned or ()):
            path = list(_along(self._begun(row, ids[:width]), ids[width:]))
            for node in path:
                node.columns.setdefault("accepted", True)
                node.columns.setdefault("sequence", row)
            paths.append(path)
        return paths

    def _begun(self, row: int, prompt: Ids) -> list[Node]:
        if not self.is_crossed and row < len(self._roots):
            return [self._roots[row]]
        return [
            root for root, begun in zip(self._roots, self._prompt, strict=True) if begun == prompt
        ]


def _parent(row: int, ids: Ids, before: list[Ids]) -> int | None:
    if row < len(before) and ids[: len(before[row])] == before[row]:
        return row
    return next((place for place, one in enumerate(before) if ids[: len(one)] == one), None)


def _along(nodes: list[Node], ids: Ids) -> list[Node]:
    """The choices that spell these ids; of rows that hold the same the first."""
    path = []
    for token_id in ids:
        nodes = [
            below for node in nodes for below in node.below if below.columns["token_id"] == token_id
        ]
        if not nodes:
            break
        path.append(nodes[0])
    return path
