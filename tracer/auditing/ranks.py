"""The audit of a run of several ranks: each rank is held against itself, the run against its ranks.

A rank loads and answers by itself, so every check is made for each; the answer has one row a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from tracer.auditing.source import EVIDENCE_LIMIT, Finding, Read, Source, told
from tracer.explain.sentences import Sentence, recorded, then
from tracer.shortcomings import rank_names

Judge = Callable[[Source], list[Finding]]


def judge_ranks(read: Read, manifest: dict[str, Any], judge: Judge) -> list[Finding]:
    """Findings about a run: whether all ranks are there, then each check over all of them."""
    frames: dict[str, pd.DataFrame] = {}

    def of_run(table: str) -> pd.DataFrame:
        if table not in frames:
            frames[table] = read(table)
        return frames[table]

    by_check: dict[str, dict[int, Finding]] = {}
    for own in manifest["ranks"]:
        number = own["rank"]
        source = Source(_read_of(of_run, number), _manifest_of(manifest, own))
        for finding in judge(source):
            by_check.setdefault(finding.check, {})[number] = finding
    return [*_whole(manifest), *(_joined(found) for found in by_check.values())]


def _read_of(read: Read, number: int) -> Read:
    def of_rank(table: str) -> pd.DataFrame:
        rows = read(table)
        return rows[(rows["rank"] == number).fillna(False)] if "rank" in rows else rows

    return of_rank


def _manifest_of(manifest: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A rank's own manifest, with what happened to the merged trace since."""
    lost = [
        loss for loss in manifest.get("lost", []) if loss.get("rank", own["rank"]) == own["rank"]
    ]
    return {**own, "lost": lost, "scrubbed": manifest.get("scrubbed", [])}


def _whole(manifest: dict[str, Any]) -> Iterator[Finding]:
    missing, disagreements = manifest.get("missing_ranks", []), manifest.get("disagreements", [])
    there = told("ranks", number=len(manifest["ranks"]), whole=manifest.get("world_size", "?"))
    found = then(there, *map(recorded, disagreements[:EVIDENCE_LIMIT]))
    bad = [*(f"rank {number} is missing" for number in missing), *disagreements]
    yield Finding("0 ranks whole", found, bad, len(manifest["ranks"]))


def _joined(by_rank: dict[int, Finding]) -> Finding:
    """One finding for the run out of one a rank; names say of which rank they are."""
    first = next(iter(by_rank.values()))
    evidence = [
        f"rank {number}: {each}" if isinstance(each, str) else each
        for number, finding in by_rank.items()
        for each in finding.evidence
    ]
    alike: dict[str, tuple[Sentence, list[int]]] = {}
    for number, finding in by_rank.items():
        alike.setdefault(str(finding.found), (finding.found, []))[1].append(number)
    found = then(
        *(told("of_ranks", ranks=rank_names(those), found=one) for one, those in alike.values())
    )
    judged = sum(finding.judged for finding in by_rank.values())
    return Finding(first.check, found, evidence, judged, first.expects)
