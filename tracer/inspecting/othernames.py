"""Missing and unexpected names that are the same names written otherwise: the rule between them.

A loader that does not know a checkpoint's prefix, or a word that a wrapper put inside its names,
reports hundreds of missing and as many unexpected names and fills whole towers with random values.
One line says it better.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tracer.explain.sentences import Sentence, phrase
from tracer.inspecting.wrappers import WRAPPERS, Wrapper, wrapper_of

_FEWEST: Final = 2
_MOST_RULES: Final = 8
_MOST_OWNERS: Final = 8
_MOST_TRIED: Final = 32
_MOST_READ: Final = 256
"""Names that rules with a word inside are looked for in; found ones are then tried on all."""
_LONGEST_RUN: Final = 2
Shapes = Mapping[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class NameRule:
    """Names of the file that would fit if `stored` in them were `expected`.

    Attributes:
        stored: What stands in the file: a prefix with its dot, or words inside the name.
            A `*` in a prefix is a number that is the same in both, such as that of a layer.
        expected: What the model has there; empty where it has nothing.
        pairs: Name in the file by the name of the parameter that it fits.
        is_inside: Whether words inside the names differ, and not their beginning.
    """

    stored: str
    expected: str
    pairs: dict[str, str]
    is_inside: bool = False

    @property
    def told(self) -> Sentence:
        """What to do to the file's names."""
        if not self.stored:
            where = "put_inside" if self.is_inside else "put_prefix"
            return phrase(f"folders.{where}", expected=self.expected)
        if not self.expected:
            return phrase("folders.remove_prefix", stored=self.stored)
        return phrase("folders.replace_prefix", stored=self.stored, expected=self.expected)

    @property
    def sentence(self) -> str:
        """The same in the language that holds."""
        return str(self.told)

    @property
    def wrapper(self) -> Wrapper | None:
        """The tool that wrote `stored`, where it is a known one's and the model lacks it."""
        found = wrapper_of(self.stored.strip("."))
        return found if found is not None and found.stored not in self.expected else None


def name_rules(
    missing: Iterable[str], unexpected: Iterable[str], shapes: tuple[Shapes, Shapes] = ({}, {})
) -> list[NameRule]:
    """Rules that make unexpected names of missing ones, the one that explains most first.

    Two names of one module prove nothing: a head's weight and bias end like those of any other.
    A name may need two rules: what a prefix explains is taken off before words inside are looked
    for.

    Args:
        missing: Parameters of the model that no tensor of the file is for.
        unexpected: Names in the file that no parameter goes by.
        shapes: Of parameters and of tensors, by name; names of two shapes are no pair.
    """
    open_names = set(missing)
    extra = {name: name for name in unexpected}  # as it reads by the rules so far, to the file's
    found: list[NameRule] = []
    while len(found) < _MOST_RULES and open_names and extra:
        tried = [*_wrapped(extra), *_prefixed(extra, open_names), *_inside(extra, open_names)]
        rules = [
            NameRule(stored, expected, _pairs(one, open_names, extra, shapes), is_inside)
            for one in tried
            for stored, expected, is_inside in [one]
        ]
        rules = sorted(rules, key=lambda one: -len(one.pairs))
        best = next((one for one in rules if _proves(one.pairs) and not _is_open(one, rules)), None)
        if best is None:
            break
        found.append(best)
        open_names -= best.pairs.keys()
        taken = set(best.pairs.values())
        change = best.stored, best.expected, best.is_inside
        extra = {
            next(_applied(change, now), now): name
            for now, name in extra.items()
            if name not in taken
        }
    return sorted(found, key=lambda one: -len(one.pairs))


def numbered(prefix: str) -> tuple[str, tuple[str, ...]]:
    """A prefix with `*` for its numbers, and the numbers."""
    parts = prefix.split(".")
    numbers = tuple(part for part in parts if part.isdecimal())
    return ".".join("*" if part.isdecimal() else part for part in parts), numbers


Change = tuple[str, str, bool]
"""What a rule would be: stored, expected, whether inside."""


def _proves(pairs: Mapping[str, str]) -> bool:
    return len(pairs) >= _FEWEST and len({name.rpartition(".")[0] for name in pairs}) > 1


def _is_open(rule: NameRule, rules: list[NameRule]) -> bool:
    """Whether another rule that explains as much says otherwise: then neither is known.

    A rule of words that a wrapper is known to write is believed.
    """
    if rule.wrapper is not None:
        return False
    rivals = [one for one in rules if one is not rule and len(one.pairs) >= len(rule.pairs)]
    names = {name: param for param, name in rule.pairs.items()}
    return any(
        rule.pairs.get(param, name) != name or names.get(name, param) != param
        for one in rivals
        for param, name in one.pairs.items()
    )


def _pairs(
    change: Change, missing: set[str], extra: Mapping[str, str], shapes: tuple[Shapes, Shapes]
) -> dict[str, str]:
    """Parameters that a rule finds a tensor of the same shape for."""
    found = {}
    for now in sorted(extra):
        for param in _applied(change, now):
            if param in missing:
                name = extra[now]
                ours, theirs = shapes[0].get(param), shapes[1].get(name)
                if ours is None or theirs is None or ours == theirs:
                    found[param] = name
    return found


def _applied(change: Change, name: str) -> Iterator[str]:
    """Each name that a rule makes of a name; none where it does not fit."""
    stored, expected, is_inside = change
    if is_inside:
        yield from _applied_inside(stored.split("."), expected.split(".") if expected else [], name)
        return
    for prefix, suffix in _cuts(name):
        if prefix == stored:
            yield expected + suffix
            return
        masked, numbers = numbered(prefix)
        if "*" in stored and masked == stored:
            yield _filled(expected, numbers) + suffix
            return


def _applied_inside(stored: list[str], expected: list[str], name: str) -> Iterator[str]:
    parts = name.split(".")
    stored = [one for one in stored if one]
    for place in range(len(parts) - len(stored) + 1):
        if parts[place : place + len(stored)] == stored:
            yield ".".join([*parts[:place], *expected, *parts[place + len(stored) :]])


def _wrapped(names: Iterable[str]) -> list[Change]:
    """Changes that undo what known wrappers wrote into these names."""
    dotted = [f".{name}." for name in names]
    return [
        (f"{one.stored}.", one.expected, False)
        if one.only_first
        else (one.stored, one.expected, True)
        for one in WRAPPERS
        if any(f".{one.stored}." in name for name in dotted)
    ]


def _prefixed(names: Iterable[str], missing: set[str]) -> list[Change]:
    """Changes of prefix that the longest shared endings make likely, those of most names first."""
    by_suffix = _by_suffix(missing)
    counts = Counter(rule for name in names for rule in _prefix_changes(name, by_suffix))
    tried = sorted(counts, key=lambda each: (counts[each], each), reverse=True)
    return [(*each, False) for each in tried[:_MOST_TRIED]]


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


def _prefix_changes(name: str, by_suffix: dict[str, dict[str, set[str]]]) -> list[tuple[str, str]]:
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


def _inside(names: Mapping[str, str], missing: set[str]) -> list[Change]:
    """Changes of words inside: name and parameter are alike before and behind them."""
    listed = sorted(names)
    read = listed[:: max(1, len(listed) // _MOST_READ)]
    theirs: dict[str, list[tuple[str, ...]]] = {}
    for name in read:
        for frame, run in _runs(name):
            theirs.setdefault(frame, []).append(run)
    counts: Counter[tuple[str, str]] = Counter()
    for param in missing:
        for frame, ours in _runs(param):
            for run in theirs.get(frame, ()):
                if run != ours and not _is_wider(run, ours):
                    counts[".".join(run), ".".join(ours)] += 1
    tried = sorted(counts, key=lambda each: (counts[each], each), reverse=True)
    return [(*each, True) for each in tried[:_MOST_TRIED] if counts[each] >= _FEWEST]


def _runs(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each short run of words in a name behind its first, and what stands around it."""
    parts = name.split(".")
    for start in range(1, len(parts) + 1):
        for end in range(start, min(start + _LONGEST_RUN, len(parts)) + 1):
            run = tuple(parts[start:end])
            if not any(word.isdecimal() for word in run):  # another number is another layer
                yield ".".join(parts[:start]) + " " + ".".join(parts[end:]), run


def _is_wider(run: tuple[str, ...], ours: tuple[str, ...]) -> bool:
    """Whether both begin or end with the same word: a shorter run says the same."""
    return bool(run and ours) and (run[0] == ours[0] or run[-1] == ours[-1])
