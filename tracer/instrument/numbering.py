"""Numbered sources, such as experts, that were merged into one parameter: each in its own place?

The library's own conversion can't tell whether it merged them in the right order, so this check
does without it: a slice must hold the values of the sources of its number, in whatever order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tracer.instrument import differences

_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.)")
_WRAP: Final = 1 << 64
_CHUNK: Final = 1 << 22  # elements at a time: a checksum works in 64 bits
_NAMED: Final = 4


class Numbered:
    """Sources of one parameter, by number, with a checksum of what was read of each number."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._number_of = numbers(keys)
        self._sums: dict[int, int] = defaultdict(int)

    def note(self, key: str, tensor: Any) -> None:
        """One source was read."""
        if key in self._number_of:
            number = self._number_of[key]
            self._sums[number] = (self._sums[number] + _checksum(tensor)) % _WRAP

    def misplaced(self, merged: Any) -> str | None:
        """Which slices hold the values of other numbers; None if none does or it can't be told."""
        order = sorted(self._sums)
        if len(order) < 2 or merged.dim() < 2 or merged.shape[0] != len(order):
            return None
        mine = [_checksum(one) for one in merged]
        if sum(mine) % _WRAP != sum(self._sums.values()) % _WRAP:
            return None  # calculated, not merely put together
        of_sum = {self._sums[number]: number for number in order}
        moved = [
            f"{number} holds {of_sum.get(have, 'a mixture')}"
            for number, have in zip(order, mine, strict=True)
            if have != self._sums[number]
        ]
        if not moved:
            return None
        rest = f", and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
        return f"merges its numbered sources in another order: {', '.join(moved[:_NAMED])}{rest}"


def numbers(keys: Sequence[str]) -> dict[str, int]:
    """The one number in which names differ, by name; {} where they differ in none or in several."""
    found = {key: [int(number) for number in _NUMBER.findall(key)] for key in keys}
    if len({len(each) for each in found.values()}) != 1:
        return {}
    columns = list(zip(*found.values(), strict=True))
    varying = [place for place, column in enumerate(columns) if len({*column}) > 1]
    if len(varying) != 1:
        return {}
    return {key: each[varying[0]] for key, each in found.items()}


def _checksum(tensor: Any) -> int:
    """The same for the same values in any order; the values' bits are spread out first."""
    flat = differences.bits(tensor).reshape(-1)
    total = 0
    for piece in flat.split(_CHUNK):
        spread = piece.long() * -7046029254386353131
        spread ^= spread >> 29
        spread *= -4658895280553007687
        spread ^= spread >> 32
        total += int(spread.sum())
    return total % _WRAP
