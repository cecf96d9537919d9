"""Missing and unexpected names that are the same names under another prefix: the rule between them.

A loader that does not know a checkpoint's prefix reports hundreds of missing and as many unexpected
names and fills whole towers with random values. One line says it better.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

_FEWEST: Final = 2
_MOST_RULES: Final = 4
_MOST_OWNERS: Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class PrefixRule:
    """Names of the file that begin with `stored` would fit if they began with `expected`.

    Attributes:
        stored: Prefix in the file, with its dot; empty where the file has none.
        expected: Prefix in the model, with its dot; empty where the model has none.
        pairs: Name in the file by the name of the parameter that it fits.
    """

    stored: str
    expected: str
    pairs: dict[str, str]

    @property
    def sentence(self) -> str:
        """What to do to the file's names."""
        if not self.stored:
            return f"put {self.expected!r} before the file's names"
        if not self.expected:
            return f"remove {self.stored!r} from the file's names"
        return f"replace {self.stored!r} by {self.expected!r} in the file's names"


def prefix_rules(missing: Iterable[str], unexpected: Iterable[str]) -> list[PrefixRule]:
    """Rules that make unexpected names of missing ones, the one that explains most first.

    Args:
        missing: Parameters of the model that no tensor of the file is for.
        unexpected: Names in the file that no parameter goes by.
    """
    open_names, extra = set(missing), set(unexpected)
    found: list[PrefixRule] = []
    while len(found) < _MOST_RULES:
        by_suffix = _by_suffix(open_names)
        counts = Counter(rule for name in extra for rule in _rules(name, by_suffix))
        if not counts:
            break
        (stored, expected), _ = max(counts.items(), key=lambda each: (each[1], each[0]))
        pairs = {
            expected + name.removeprefix(stored): name
            for name in sorted(extra)
            if name.startswith(stored) and expected + name.removeprefix(stored) in open_names
        }
        if len(pairs) < _FEWEST:
            break
        found.append(PrefixRule(stored, expected, pairs))
        open_names -= pairs.keys()
        extra -= set(pairs.values())
    return found


def _by_suffix(names: Iterable[str]) -> dict[str, list[str]]:
    """Prefixes that stand before each ending of the names."""
    found: dict[str, list[str]] = {}
    for name in names:
        for prefix, suffix in _cuts(name):
            found.setdefault(suffix, []).append(prefix)
    return found


def _cuts(name: str) -> Iterator[tuple[str, str]]:
    """Each way to cut a dotted name in two, the longest ending first."""
    yield "", name
    parts = name.split(".")
    for place in range(1, len(parts)):
        yield ".".join(parts[:place]) + ".", ".".join(parts[place:])


def _rules(name: str, by_suffix: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Rules that the longest ending which a missing name shares would make."""
    for prefix, suffix in _cuts(name):
        # An ending such as `weight` is shared by hundreds and proves nothing.
        if suffix in by_suffix and len(by_suffix[suffix]) <= _MOST_OWNERS:
            return [(prefix, one) for one in by_suffix[suffix]]
    return []
