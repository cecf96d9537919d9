"""One module call under the recorder's hooks beside a bare hook pair, in nanoseconds.

python -m benchmarks.hooks
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch

from tracer.instrument.module_hooks import hook_module
from tracer.journal import Journal
from tracer.recorder import Options, Recorder

CALLS = 4000
ROUNDS = 15


def nanoseconds_per_call(call: Callable[[], object]) -> float:
    """Mean time of one call, in a block of calls."""
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / CALLS


def measure() -> dict[str, float]:
    """Added cost of a bare hook pair and of ours, medians over interleaved blocks."""
    torch.set_num_threads(1)
    tensor = torch.zeros(1, 8)
    plain, bare, ours = torch.nn.Identity(), torch.nn.Identity(), torch.nn.Identity()
    bare.register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
    bare.register_forward_hook(lambda module, args, kwargs, output: None, with_kwargs=True)
    journal = Journal(None)
    recorder = Recorder(journal, Options())
    list(hook_module(recorder, "model-1", "module", ours))
    state = recorder.thread_state()
    span = state.open("calls", "forward", "benchmark")
    state.place = "here", None  # as inside a model: every call from the same place
    blocks: dict[str, list[float]] = {"plain": [], "bare": [], "ours": []}
    drains = []
    for _ in range(ROUNDS):
        for name, module in (("plain", plain), ("bare", bare), ("ours", ours)):
            blocks[name].append(nanoseconds_per_call(lambda module=module: module(tensor)))
        start = time.perf_counter_ns()
        recorder.drain(state)
        drains.append((time.perf_counter_ns() - start) / CALLS)
    state.close(span)
    middle = {name: statistics.median(times) for name, times in blocks.items()}
    added_bare = middle["bare"] - middle["plain"]
    added_ours = middle["ours"] - middle["plain"]
    return {
        "plain_ns": round(middle["plain"]),
        "bare_pair_added_ns": round(added_bare),
        "recorder_added_ns": round(added_ours),
        "ratio": round(added_ours / added_bare, 2),
        "drain_ns": round(statistics.median(drains)),
        "bytes_in_memory": round(journal.bytes_written / recorder.drained_modules, 1),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
