"""The audit of a run of several ranks: each rank is held against itself, the run against its ranks.

A rank loads and answers by itself, so every check is made for each; the answer has one row a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from tracer.auditing.source import EVIDENCE_LIMIT, Finding, Read, Source
from tracer.manifest import rank_names

Judge = Callable[[Source], list[Finding]]


def judge_ranks(read: Read, manifest: dict[str, Any], judge: Judge) -> list[Finding]:
    """Findings about a run: whether all ranks are there, then each check over all of them."""
    frames: dict[str, pd.DataFrame] = {}

    def of_run(table: str) -> pd.DataFrame:
        if table not in frames:
            frames[table] = read(table)
        return frames[table]

    by_check: dict[str, dict[int, Finding]] = {}
    for told in manifest["ranks"]:
        number = told["rank"]
        source = Source(_read_of(of_run, number), _told_of(manifest, told))
        for finding in judge(source):
            by_check.setdefault(finding.check, {})[number] = finding
    return [*_whole(manifest), *(_joined(found) for found in by_check.values())]


def _read_of(read: Read, number: int) -> Read:
    def of_rank(table: str) -> pd.DataFrame:
        rows = read(table)
        return rows[(rows["rank"] == number).fillna(False)] if "rank" in rows else rows

    return of_rank


def _told_of(manifest: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """A rank's own manifest, with what happened to the merged trace since."""
    lost = [
        loss for loss in manifest.get("lost", []) if loss.get("rank", told["rank"]) == told["rank"]
    ]
    return {**told, "lost": lost, "scrubbed": manifest.get("scrubbed", [])}


def _whole(manifest: dict[str, Any]) -> Iterator[Finding]:
    missing, disagreements = manifest.get("missing_ranks", []), manifest.get("disagreements", [])
    found = f"{len(manifest['ranks'])} of {manifest.get('world_size', '?')} ranks"
    found = "; ".join([found, *disagreements[:EVIDENCE_LIMIT]])
    expected = "every rank of the run has its recording, and all are of one run"
    bad = [*(f"rank {number} is missing" for number in missing), *disagreements]
    yield Finding("0 ranks whole", expected, found, bad, len(manifest["ranks"]))


def _joined(by_rank: dict[int, Finding]) -> Finding:
    """One finding for the run out of one a rank; names say of which rank they are."""
    first = next(iter(by_rank.values()))
    evidence = [
        f"rank {number}: {each}" if isinstance(each, str) else each
        for number, finding in by_rank.items()
        for each in finding.evidence
    ]
    by_text: dict[str, list[int]] = {}
    for number, finding in by_rank.items():
        by_text.setdefault(finding.found, []).append(number)
    found = "; ".join(f"{rank_names(numbers)}: {text}" for text, numbers in by_text.items())
    judged = sum(finding.judged for finding in by_rank.values())
    return Finding(first.check, first.expected, found, evidence, judged)
