"""Missing and unexpected names that are the same names under another prefix: the rule between them.

A loader that does not know a checkpoint's prefix reports hundreds of missing and as many unexpected
names and fills whole towers with random values. One line says it better.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tracer.explain.sentences import Sentence, phrase

_FEWEST: Final = 2
_MOST_RULES: Final = 4
_MOST_OWNERS: Final = 8
_MOST_TRIED: Final = 32
Shapes = Mapping[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class PrefixRule:
    """Names of the file that begin with `stored` would fit if they began with `expected`.

    Attributes:
        stored: Prefix in the file, with its dot; empty where the file has none.
            A `*` stands for a number that is the same in both, such as that of a layer.
        expected: Prefix in the model, with its dot; empty where the model has none.
        pairs: Name in the file by the name of the parameter that it fits.
    """

    stored: str
    expected: str
    pairs: dict[str, str]

    @property
    def told(self) -> Sentence:
        """What to do to the file's names."""
        if not self.stored:
            return phrase("folders.put_prefix", expected=self.expected)
        if not self.expected:
            return phrase("folders.remove_prefix", stored=self.stored)
        return phrase("folders.replace_prefix", stored=self.stored, expected=self.expected)

    @property
    def sentence(self) -> str:
        """The same in the language that holds."""
        return str(self.told)


def prefix_rules(
    missing: Iterable[str], unexpected: Iterable[str], shapes: tuple[Shapes, Shapes] = ({}, {})
) -> list[PrefixRule]:
    """Rules that make unexpected names of missing ones, the one that explains most first.

    Two names of one module prove nothing: a head's weight and bias end like those of any other.

    Args:
        missing: Parameters of the model that no tensor of the file is for.
        unexpected: Names in the file that no parameter goes by.
        shapes: Of parameters and of tensors, by name; names of two shapes are no pair.
    """
    open_names, extra = set(missing), set(unexpected)
    found: list[PrefixRule] = []
    while len(found) < _MOST_RULES:
        by_suffix = _by_suffix(open_names)
        counts = Counter(rule for name in extra for rule in _rules(name, by_suffix))
        tried = sorted(counts, key=lambda each: (counts[each], each), reverse=True)[:_MOST_TRIED]
        rules = (PrefixRule(*each, _pairs(each, open_names, extra, shapes)) for each in tried)
        best = next((one for one in rules if _proves(one.pairs)), None)
        if best is None:
            break
        found.append(best)
        open_names -= best.pairs.keys()
        extra -= set(best.pairs.values())
    return found


def numbered(prefix: str) -> tuple[str, tuple[str, ...]]:
    """A prefix with `*` for its numbers, and the numbers."""
    parts = prefix.split(".")
    numbers = tuple(part for part in parts if part.isdecimal())
    return ".".join("*" if part.isdecimal() else part for part in parts), numbers


def _proves(pairs: Mapping[str, str]) -> bool:
    return len(pairs) >= _FEWEST and len({name.rpartition(".")[0] for name in pairs}) > 1


def _pairs(
    rule: tuple[str, str], missing: set[str], extra: set[str], shapes: tuple[Shapes, Shapes]
) -> dict[str, str]:
    """Parameters that a rule finds a tensor of the same shape for."""
    found = {}
    for name in sorted(extra):
        param = _applied(rule, name)
        if param in missing:
            ours, theirs = shapes[0].get(param), shapes[1].get(name)
            if ours is None or theirs is None or ours == theirs:
                found[param] = name
    return found


def _applied(rule: tuple[str, str], name: str) -> str:
    """The name that a rule makes of a name; empty where it does not begin as the rule says."""
    stored, expected = rule
    for prefix, suffix in _cuts(name):
        if prefix == stored:
            return expected + suffix
        masked, numbers = numbered(prefix)
        if "*" in stored and masked == stored:
            return _filled(expected, numbers) + suffix
    return ""


def _filled(masked: str, numbers: Iterable[str]) -> str:
    for number in numbers:
        masked = masked.replace("*", number, 1)
    return masked


def _by_suffix(names: Iterable[str]) -> dict[str, dict[str, set[str]]]:
    """Prefixes that stand before each ending of the names, under what they are without numbers."""
    found: dict[str, dict[str, set[str]]] = {}
    for name in names:
        for prefix, suffix in _cuts(name):
            found.setdefault(suffix, {}).setdefault(numbered(prefix)[0], set()).add(prefix)
    return found


def _cuts(name: str) -> Iterator[tuple[str, str]]:
    """Each way to cut a dotted name in two, the longest ending first."""
    yield "", name
    parts = name.split(".")
    for place in range(1, len(parts)):
        yield ".".join(parts[:place]) + ".", ".".join(parts[place:])


def _rules(name: str, by_suffix: dict[str, dict[str, set[str]]]) -> list[tuple[str, str]]:
    """Rules that the longest ending which a missing name shares would make."""
    for prefix, suffix in _cuts(name):
        # An ending such as `weight` is shared by hundreds and proves nothing.
        if suffix in by_suffix and len(by_suffix[suffix]) <= _MOST_OWNERS:
            masked, numbers = numbered(prefix)
            found: list[tuple[str, str]] = []
            for other, whole in by_suffix[suffix].items():
                alike = numbers and other.count("*") == len(numbers)
                if alike and _filled(other, numbers) in whole:
                    found.append((masked, other))
                elif len(whole) <= _MOST_OWNERS:
                    found += [(prefix, one) for one in whole]
            return found
    return []
