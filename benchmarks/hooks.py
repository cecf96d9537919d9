"""One module call under the recorder's hooks beside a bare hook pair, and an event's bytes.

python -m benchmarks hooks [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from benchmarks.figures import Figure, figure
from tracer.instrument.watching import watch_module
from tracer.journal import Journal
from tracer.ledger import Options
from tracer.recorder import Recorder

CALLS = 4000
ROUNDS = 15
MOST_BYTES = 100
MOST_PAIRS = 2.0


def measure(quick: bool) -> list[Figure]:
    """What a bare hook pair and ours add to a call, over interleaved blocks of calls."""
    calls, rounds = (200, 2) if quick else (CALLS, ROUNDS)
    tensor = torch.zeros(1, 8)
    plain, bare, ours = torch.nn.Identity(), torch.nn.Identity(), torch.nn.Identity()
    bare.register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
    bare.register_forward_hook(lambda module, args, kwargs, output: None, with_kwargs=True)
    journal = Journal(None)
    recorder = Recorder(journal, Options())
    handles = [watch_module(recorder, "model-1", "module", ours, by_torch=False)]
    state = recorder.thread_state()
    span = state.open("calls", "forward", "benchmark")
    state.place = "here", None  # as inside a model: every call from the same place
    blocks: dict[str, list[float]] = {"plain": [], "bare": [], "ours": []}
    drains = []
    for _ in range(rounds):
        for name, module in (("plain", plain), ("bare", bare), ("ours", ours)):
            blocks[name].append(_a_call(lambda module=module: module(tensor), calls))
        start = time.process_time_ns()
        recorder.drain(state)
        drains.append((time.process_time_ns() - start) / calls)
    state.close(span)
    for handle in handles:
        handle.remove()
    pairs = list(zip(blocks["plain"], blocks["bare"], blocks["ours"], strict=True))
    bare_ns = [bare - plain for plain, bare, _ in pairs]
    ours_ns = [ours - plain for plain, _, ours in pairs]
    # Differences of a short block may be nothing or less: no ratio then.
    times = [ours / bare for bare, ours in zip(bare_ns, ours_ns, strict=True) if bare > 0]
    size = journal.bytes_written / recorder.drained_modules
    return [
        figure("module call, bare pair", "ns", bare_ns),
        figure("module call, recorded", "ns", ours_ns),
        figure("module call, in bare pairs", "x", times or [1.0], budget=MOST_PAIRS),
        figure("module call, written between steps", "ns", drains),
        figure("module call, in memory", "bytes", [size], budget=MOST_BYTES),
    ]


def _a_call(call: Callable[[], object], calls: int) -> float:
    """Processor's nanoseconds of one call, in a block of calls."""
    start = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - start) / calls
