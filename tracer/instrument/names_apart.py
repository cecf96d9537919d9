"""Names of the model that no file has, against names of the files that the model has not.

Whole towers are lost when a checkpoint names its tensors under another prefix: the library then
lists every name on both sides and raises nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any


def compare(missing: Collection[str], unexpected: Collection[str]) -> dict[str, Any]:
    """How many names stand on each side and, where one prefix explains some of them, that rule.

    Returns:
        `missing` and `unexpected` as numbers, and `prefix`: what the file's names begin with, what
        the model's begin with instead, and how many names match then.
    """
    found: dict[str, Any] = {"missing": len(missing), "unexpected": len(unexpected)}
    rules = Counter((theirs, "") for theirs in _prefixes(unexpected, set(missing)))
    rules += Counter(("", ours) for ours in _prefixes(missing, set(unexpected)))
    if rules:
        (in_file, in_model), matched = rules.most_common(1)[0]
        found["prefix"] = {"file": in_file, "model": in_model, "names": matched}
    return found


def _prefixes(names: Collection[str], others: set[str]) -> Iterator[str]:
    """What each name has before one of the others, whole words only."""
    if not others:
        return
    for name in names:
        cut = name.find(".")
        while cut >= 0:
            if name[cut + 1 :] in others:
                yield name[: cut + 1]
                break
            cut = name.find(".", cut + 1)
