"""Samples of memory: at stage boundaries, now and then between reads, around a first forward.

A row of `memory` each. The first forward of a model pays for what its load only mapped; no module
hook takes a sample, nor any later step.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument import measure
from tracer.spans import ThreadState

if TYPE_CHECKING:
    from tracer.instrument.loads.load_notes import Load

SAMPLED_EVERY_NS: Final = 50_000_000
"""How often the memory is asked for between two reads."""
_BEFORE: Final = "before the first forward"
_AFTER: Final = "after the first forward"


def sample_memory(state: ThreadState, stage: str, name: str) -> None:
    """One row of `memory`, at a boundary between stages."""
    with state.own_work("memory sample"):
        state.recorder.add_point("memory", stage, name, **_now(measure.process_memory()))


def resident_now(load: Load, now: int) -> int | None:
    """Resident memory, asked for now and then only; it is noted as a sample of memory as well.

    The sample belongs to the load, not to the read: an interrupt may cost that one its row.

    Args:
        load: The load whose tensor was just read.
        now: The recorder's clock.
    """
    if now - load.last_sample_ns < SAMPLED_EVERY_NS:
        return None
    load.last_sample_ns = now
    process = measure.quick_process_memory()
    found = _now(process)
    seq, thread = load.state.recorder.next_seq(), threading.current_thread().name
    load.samples.append(
        {"seq": seq, "parent": load.call, "start_ns": now, "thread": thread} | found
    )
    return process["rss_bytes"]


def write_samples(load: Load, is_over: bool) -> None:
    """Turn what was sampled between reads into rows of `memory`; in the end the load keeps it."""
    samples = list(load.samples)
    recorder = load.state.recorder
    columns = {name: [one[name] for one in samples] for name in (samples[0] if samples else ())}
    columns["start_ns"] = [start - recorder.origin for start in columns.get("start_ns", ())]
    recorder.add_rows(
        "memory",
        len(samples),
        call=load.call,
        stage="tensor_load",
        name="between reads",
        duration_ns=0,
        status="ok",
        **columns,
    )
    if not is_over:
        del load.samples[: len(samples)]


def first_forward(state: ThreadState, model: str, *, ended: bool) -> None:
    """A model, or a part of it, is about to run, or has run: sampled once a recording."""
    what = _AFTER if ended else _BEFORE
    sampled: set[tuple[str, str]] = state.recorder.notes.setdefault("forwards sampled", set())
    if (model, what) in sampled:
        return
    sampled.add((model, what))
    start = state.recorder.clock()
    sample_memory(state, "forward", what)
    if state.run is not None and state.run.step is not None:
        state.run.step.own_ns += state.recorder.clock() - start


def _now(process: dict[str, int | None]) -> dict[str, Any]:
    device, faults = measure.device_memory(), measure.process_faults()
    return {**process, **device, **faults, "disk_bytes": measure.disk_bytes()}
