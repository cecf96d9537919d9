"""Is this trace complete and true? Eight checks: tables in, verdicts out.

Each check compares what was recorded in one place with what was recorded independently in
another. Where that can't be done the verdict is `not applicable`, never `holds`. Pure pandas;
knows no Trace, no model and no file. The checks themselves are in `auditing/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

import pandas as pd

from tracer.auditing.elapsed import check_time
from tracer.auditing.generation import check_cache, check_last_token, check_tokens
from tracer.auditing.inputs import check_images, check_targets
from tracer.auditing.loading import check_fates, check_files, check_placements, check_values
from tracer.auditing.ranks import judge_ranks
from tracer.auditing.source import Finding, Read, Source, told
from tracer.explain.sentences import names, then
from tracer.manifest import check_manifest
from tracer.schema import SCHEMA_VERSION

COLUMNS: Final = ["check", "verdict", "expected", "found", "evidence"]

_CHECKS: Final[list[Callable[[Source], Iterator[Finding]]]] = [
    check_fates,
    check_placements,
    check_files,
    check_values,
    check_time,
    check_tokens,
    check_cache,
    check_last_token,
    check_images,
    check_targets,
]


def audit(read: Read, manifest: dict[str, Any]) -> pd.DataFrame:
    """Hold a trace against itself.

    Args:
        read: Gives a table by name as a frame with all its columns, empty where it has no rows;
            of `modules` the rows directly below a call will do.
        manifest: The trace's manifest. Looked at are `options`, `dropped` (tables given up for
            max_bytes), `lost` (tables that lack rows), `scrubbed`, `targets` and `index_only`
            (keys by model that only the checkpoint's index names); of a run of several ranks
            also `ranks`, their own manifests, by which each rank is judged.

    Raises:
        TraceFormatError: A field of the manifest holds something else than it must.

    Returns:
        One or more rows a check: `check`, `verdict` (holds, broken, not applicable), `expected`,
        `found`, and `evidence`, a JSON list of seqs or names, of which the first 100 are given.
    """
    return pd.DataFrame([each.row() for each in findings(read, manifest)], columns=COLUMNS)


def findings(read: Read, manifest: dict[str, Any]) -> list[Finding]:
    """The same, whose sentences can be said in any language."""
    check_manifest({"schema_version": SCHEMA_VERSION, **manifest}, "The trace's manifest")
    if "ranks" in manifest:
        return judge_ranks(read, manifest, _judge)
    return _judge(Source(read, manifest))


def _judge(source: Source) -> list[Finding]:
    found = [finding for check in _CHECKS for finding in _run(check, source)]
    return [*_losses(source), *found]


def _losses(source: Source) -> Iterator[Finding]:
    """0: a file that was taken away is no empty table. Nothing is said of a whole trace."""
    if source.lost:
        found = then(*source.lost.values())
        yield Finding("0 tables whole", found, list(source.lost), len(source.lost))


def _run(check: Callable[[Source], Iterator[Finding]], source: Source) -> list[Finding]:
    source.asked.clear()
    found = list(check(source))
    dropped, lost = sorted(source.asked & source.dropped), sorted(source.asked & {*source.lost})
    if not dropped and not lost:
        return found
    why = told("given_up", tables=names(*dropped))
    if lost:
        why = told("not_whole", tables=names(*lost))
    return [dataclasses.replace(each, found=why, evidence=[], judged=0) for each in found]
