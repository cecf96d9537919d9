"""What a trace lacks of what was recorded, in words: rows, ranks, or being of one run.

Reads a manifest's fields, which were checked when it was opened. Knows no table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracer.explain.sentences import Sentence, names, phrase, recorded


def shortcomings(manifest: Mapping[str, Any]) -> list[Any]:
    """What a trace lacks, one sentence each, disagreements among them."""
    said: list[Any] = [loss(each) for each in manifest.get("lost", [])]
    missing = manifest.get("missing_ranks", [])
    if missing:
        said.append(phrase("losses.no_rank", ranks=rank_names(missing)))
    return [*said, *map(recorded, manifest.get("disagreements", []))]


def loss(entry: Mapping[str, Any]) -> Sentence:
    """An entry of `lost`: how many rows a table had, and how many are there."""
    counts = {side: _rows(side, entry[side]) for side in ("written", "found")}
    if "rank" in entry:
        return phrase("losses.of_table_in_rank", table=entry["table"], rank=entry["rank"], **counts)
    return phrase("losses.of_table", table=entry["table"], **counts)


def _rows(side: str, number: int) -> Sentence:
    if number > 1:
        return phrase(f"losses.{side}_many", number=f"{number:,}")
    return phrase(f"losses.{side}_{'one' if number else 'none'}")


def rank_names(numbers: Sequence[int]) -> Sentence:
    """Ranks by number, runs of neighbours cut short: rank 0; ranks 0-3; ranks 0, 2."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return phrase(f"losses.rank{'s' if len(numbers) != 1 else ''}", numbers=names(*parts))
