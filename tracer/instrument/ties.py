"""Names that are, or should be, one parameter: judged by their memory, not by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tracer.instrument import differences
from tracer.instrument.verdicts import DIFFERENT, EQUAL, NOT_COMPARED, Verdicts


def judge_ties(verdicts: Verdicts, names: list[str]) -> None:
    """Of names that the class ties, tell those that do not share the memory of the others.

    Where a file holds other values for one of them and it has these, the library has kept it
    apart, and nothing is wrong.
    """
    memories = _grouped(verdicts.memory, names)
    ranked = sorted(
        memories.values(),
        key=lambda group: (not any(verdicts.is_right(name) for name in group), -len(group)),
    )
    for name in (name for group in ranked[1:] for name in group):
        _judge_loose(verdicts, name, ranked[0][0])


def _judge_loose(verdicts: Verdicts, name: str, main: str) -> None:
    own, reason = verdicts.values(name)
    other, _ = verdicts.values(main)
    if own is None or other is None:
        verdicts.say(name, NOT_COMPARED, reason or f"tied to {main}, which can't be compared")
        return
    is_copy = differences.is_same(own, other)
    if is_copy and (verdicts.is_away(name) or verdicts.is_away(main)):
        if name not in verdicts.of:
            verdicts.say(name, EQUAL, f"has the values of {main}", "memory")
        return
    if not is_copy and verdicts.is_right(name):
        return
    what = "is a copy of it" if is_copy else differences.told(own, other, f"{main}")
    verdicts.say(name, DIFFERENT, f"is not tied to {main}, as its class ties it: {what}", "memory")


def judge_shared(verdicts: Verdicts) -> None:
    """Names of one memory are one parameter, which is told of once."""
    for names in _grouped(verdicts.memory, verdicts.named).values():
        known = [name for name in names if name in verdicts.of]
        right = [name for name in known if verdicts.is_right(name)]
        for name in names if len(names) > 1 and known else ():
            main = (right or known)[0]
            if name != main and not verdicts.is_right(name):
                _judge_alias(verdicts, name, main)


def _judge_alias(verdicts: Verdicts, name: str, main: str) -> None:
    if verdicts.is_right(main) and verdicts.is_wrong(name):
        what = f"shares the memory of {main}, but a file holds other values for it"
        verdicts.say(name, DIFFERENT, what, "memory", verdicts.of[name].keys)
    else:
        is_known = verdicts.of[main].verdict != NOT_COMPARED
        said = EQUAL if is_known else NOT_COMPARED
        verdicts.say(name, said, f"shares the memory of {main}", "memory")


def _grouped(key: Callable[[str], Any], names: Iterable[str]) -> dict[Any, list[str]]:
    groups: dict[Any, list[str]] = {}
    for name in names:
        groups.setdefault(key(name), []).append(name)
    return groups
