"""A step of generate() is over: what it left is read, its rows are written, its copies are freed.

That happens at the next boundary, after the library itself has waited for the device, so that the
lab adds no synchronisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracer.instrument.answering import caches, choices, drafts
from tracer.instrument.answering.feeding import read_ends, read_pair
from tracer.instrument.answering.step import Step

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run


def resolve(run: Run, step: Step, *, goes_on: bool) -> None:
    """Complete the row of a step that has closed, and tell what was chosen in it."""
    state, recorder = run.state, run.recorder
    with state.own_work("step resolved"):
        with recorder.guard("steps"):
            _complete_row(run, step, goes_on)
        if step.chose or run.loop is not None:  # which tells a choice by what it feeds next
            with recorder.guard("choices"):
                _tell_choices(run, step)
        if step.row is not None:
            state.release(step.row)
        recorder.flush_if_due(state)


def _tell_choices(run: Run, step: Step) -> None:
    if run.loop is not None:
        run.loop.tell(run, step)
    elif run.beams is not None:
        run.beams.tell(run, step)
    elif run.follows == "drafts":
        drafts.tell(run, step)
    elif run.follows == "rows" and step.scores.is_complete:
        choices.tell(run, step.number, step.scores)


def _complete_row(run: Run, step: Step, goes_on: bool) -> None:
    if step.row is None:
        return
    columns = step.columns
    cache = run.last_cache
    if cache is not None and not step.in_forward:  # it ran past the model's own `__call__`
        step.seen_after, step.is_fed = caches.counted(cache, step.fed_at), True
    before = None if cache is None else caches.read(step.seen_before)
    after = caches.read(step.seen_after)
    fed_from, fed_to = read_pair(step.fed_at)
    counts = cache is not None and caches.counts_tokens(cache)
    if counts and fed_from is not None and fed_to is not None:
        before = fed_from if before is None else before
        after = fed_to + 1 if after is None and step.is_fed else after
    if step.is_fed and before == after == 0:  # the library made it, the model never looks at it
        cache = before = after = None
        run.cache_unused()
    first, last = read_ends(step.positions)
    # A forward without a choice after it; in a loop of another making the choice may come late.
    if goes_on and run.follows and not run.rounds and not _ends_prompt(run, columns):
        columns["kind"] = "chunk"
        if cache is not None and not step.in_forward:
            run.recorder.fault(
                "steps",
                "chunks of the prompt run past the model's own call: "
                "their forward's time and its outermost module are not seen",
            )
    columns |= {
        "cache": None if cache is None else caches.name(run.recorder, cache, run),
        "cache_tokens_before": before,
        "cache_tokens_after": after,
        "recorder_ns": step.own_ns,
        # Where all rows had ended before, the library throws away what this forward gave.
        "undone": bool(run.finished) and all(run.finished),
        "first_position": first,
        "last_position": last,
        "rope_index_calls": run.state.counts.pop("rope_index_calls", 0),
        "rotary_applications": run.state.counts.pop("rotary_applications", 0),
        "rotary_calls": _rotary_calls(run, step),
    }
    if step.timer is not None:
        columns["device_ns"] = step.timer.read()
    fed = columns.get("input_tokens")
    run.cached_after = after if step.is_fed else run.cached_after
    if columns["kind"] in ("prefill", "chunk") and fed is not None:
        run.prompt_fed += fed - columns.get("drafted_tokens", 0)
        run.prompt_ns = (run.prompt_ns or 0) + columns.get("forward_ns", 0)
    if last is not None and fed is not None:
        index = (before or 0) + fed - 1
        columns["position_offset"] = last - index
    if cache is not None:
        columns["cache_bytes"] = caches.tell(
            run.recorder,
            run.span.seq,
            step.number,
            columns["cache"],
            cache,
            after if step.fed_at is not None and caches.is_preallocated(cache) else None,
        )
    step.row[1].update(columns)


def _ends_prompt(run: Run, columns: dict[str, Any]) -> bool:
    """Whether a loop of another making has fed its prompt, or goes on behind it."""
    return run.loop is not None and (
        columns["kind"] == "decode" or run.is_prompt_fed(columns.get("input_tokens") or 0)
    )


def _rotary_calls(run: Run, step: Step) -> int | None:
    if run.recorder.options.detail == "stages" or run.state.muted:
        return None
    return caches.count_rotary(run.recorder, run.state.rows, step.rotary_rows)
