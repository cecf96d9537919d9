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
from tracer.auditing.source import Finding, Read, Source

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
        read: Gives a table by name as a frame with all its columns, empty where it has no rows.
        manifest: The trace's manifest. Looked at are `options`, `dropped` (tables given up for
            max_bytes), `scrubbed`, `targets` and `index_only` (keys by model that only the
            checkpoint's index names).

    Returns:
        One or more rows a check: `check`, `verdict` (holds, broken, not applicable), `expected`,
        `found`, and `evidence`, a JSON list of seqs or names, of which the first 100 are given.
    """
    source = Source(read, manifest)
    findings = [finding for check in _CHECKS for finding in _run(check, source)]
    return pd.DataFrame([finding.row() for finding in findings], columns=COLUMNS)


def _run(check: Callable[[Source], Iterator[Finding]], source: Source) -> list[Finding]:
    source.asked.clear()
    findings = list(check(source))
    lost = sorted(source.asked & source.dropped)
    if not lost:
        return findings
    found = f"{', '.join(lost)} given up for max_bytes"
    return [dataclasses.replace(each, found=found, evidence=[], judged=0) for each in findings]
