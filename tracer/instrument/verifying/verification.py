"""`verify_weights`: what a load has made, compared with its sources by content.

Runs after the user's call, as stage `verify`; the comparison itself is in `comparing.py`. The
verdicts go into the load's placements before these are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tracer.instrument.loads.load_notes import Load
from tracer.instrument.verifying.comparing import compare
from tracer.instrument.verifying.sources import Sources
from tracer.instrument.verifying.verdicts import NOT_COMPARED, Verdict


def verify(load: Load, model: Any) -> None:
    """Fill in what the load's placements say of their values."""
    state = load.state
    span = state.open("spans", "verify", "weights compared with their sources")
    # What the comparison asks of the library is no part of a load round this one.
    outer, state.load = state.load, None
    verdicts: dict[str, Verdict] = {}
    status = "interrupted"
    try:
        with state.recorder.guard("verify_weights"):
            verdicts = {each.param: each for each in _verdicts(load, model)}
        status = "ok" if verdicts else "error"
    finally:
        state.load = outer
        for row in load.placement_rows:
            _fill(row, verdicts.get(row["param"]), row["param"] in load.mismatched)
        state.close(span, status, summary=_summary(load.placement_rows))


def _verdicts(load: Load, model: Any) -> list[Verdict]:
    given: Mapping[str, Any] | None = load.arguments.get("state_dict")
    files = () if given is not None else dict.fromkeys([*load.headers, *load.files])
    renamings = None
    is_plain = load.of_adapter and not any(plan.operations for plan in load.plans.values())
    # A GGUF file's names are not the library's; those of base and adapter are told by the load.
    if (load.shards is not None and not load.packed) or is_plain:
        renamings = {key: plan.param for key, plan in load.plans.items()}
    with Sources(files, given, model=model, is_lenient=True) as sources:
        return compare(model, sources, renamings, conversions=load.conversions)


def _fill(row: dict[str, Any], verdict: Verdict | None, is_mismatched: bool) -> None:
    if verdict is None:
        row["verified_because"] = "the comparison did not come to its end"
    elif is_mismatched:
        row["verified_because"] = f"left out of the load: {verdict.because}"
    else:
        row["verified"] = verdict.verdict
        row["verified_because"] = verdict.because
        row["new_infinities"] = verdict.new_infinities
        row["new_zeros"] = verdict.new_zeros


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    verdicts = Counter(row["verified"] for row in rows)
    left = (row for row in rows if row["verified"] == NOT_COMPARED)
    return {
        **{name: verdicts[name] for name in ("equal", "different", NOT_COMPARED)},
        "because": Counter(row["verified_because"] for row in left),
    }
