"""Single tensors on their way from file to parameter: submitted, read, cast, waited for, set.

`_materialize_copy` runs in a worker thread and gets nothing but a slice, so a load is found by the
identity of the slices that it handed out (core_model_loading.py, 5.24). Each observer adds a few
numbers to its `Load`; rows are made between batches and at the end.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path
from typing import Any

from tracer.checkpoint import Header
from tracer.instrument import measure
from tracer.instrument.stages import Call, Observer
from tracer.spans import ThreadState

JOBS: dict[int, Load] = {}
"""Identity of a slice or tensor that a load will read, to that load."""

_RSS_EVERY_NS = 5_000_000
_BATCH = 512


@dataclasses.dataclass(slots=True)
class ParamTimes:
    """What one parameter cost the loading thread, in nanoseconds."""

    wait_ns: int = 0
    convert_ns: int = 0
    place_ns: int = 0


@dataclasses.dataclass(slots=True)
class Plan:
    """Where the library wants a checkpoint tensor to go."""

    param: str
    pattern: str | None
    rule: str
    operations: list[str]


@dataclasses.dataclass(slots=True)
class Load:
    """One `PreTrainedModel.from_pretrained` as it goes on. Holds names and numbers, no tensor."""

    state: ThreadState
    call: int
    asked: str | None = None
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    model: str | None = None
    files: list[str] = dataclasses.field(default_factory=list)
    keys: dict[int, str] = dataclasses.field(default_factory=dict)
    file_of: dict[str, str] = dataclasses.field(default_factory=dict)
    headers: dict[str, Header] = dataclasses.field(default_factory=dict)
    submitted: dict[int, int] = dataclasses.field(default_factory=dict)
    plans: dict[str, Plan] = dataclasses.field(default_factory=dict)
    times: dict[str, ParamTimes] = dataclasses.field(default_factory=dict)
    placed: set[str] = dataclasses.field(default_factory=set)
    reads: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    weights_seq: int = -1
    build_span: Any = None
    before_fill: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    expected: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    mismatched: set[str] = dataclasses.field(default_factory=set)
    dtype_why: str | None = None
    dtype: str | None = None
    given: dict[str, tuple[list[int], str | None, int]] = dataclasses.field(default_factory=dict)
    placement_rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last_rss_ns: int = 0
    current: str | None = None
    read_source: str | None = None
    read_stack: str | None = None

    def times_of(self, param: str) -> ParamTimes:
        """The times of a parameter, made on first use."""
        times = self.times.get(param)
        if times is None:
            times = self.times[param] = ParamTimes()
        return times


def job_state(args: tuple[Any, ...]) -> ThreadState | None:
    """The loading thread's state behind a worker's job; None when nobody records that load."""
    load = JOBS.get(id(args[0])) if args else None
    return load.state if load is not None else None


class _TimedSlice:
    """Stands in for a slice inside `_materialize_copy`: notes when the bytes were there."""

    __slots__ = ("_clock", "_inner", "read_at")

    def __init__(self, inner: Any, clock: Any) -> None:
        self._inner = inner
        self._clock = clock
        self.read_at = 0

    def __getitem__(self, index: Any) -> Any:
        tensor = self._inner[index]
        self.read_at = self._clock()
        return tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def submitted(state: ThreadState, call: Call) -> Observer:
    """`spawn_materialize`: the moment a read is handed to the pool."""
    tensor = call.argument(1, "tensor")
    load = JOBS.get(id(tensor))
    if load is not None:
        load.submitted[id(tensor)] = state.recorder.clock()
        if call.argument(4, "sharding_op") is not None:
            state.recorder.fault(
                "core_model_loading._materialize_copy",
                "tensors are sharded as they are read (tensor parallel): reads are not timed",
            )
    yield None


def read(state: ThreadState, call: Call) -> Observer:
    """`_materialize_copy`: one read in a worker thread, split into read and cast."""
    recorder = state.recorder
    given = call.args[0]
    load = JOBS[id(given)]
    key = load.keys[id(given)]
    if load.read_source is None:
        _remember_place(load, call)
    timed = _TimedSlice(given, recorder.clock)
    faults = measure.thread_faults()
    seq, start = recorder.next_seq(), recorder.clock()
    outcome = yield ((timed, *call.args[1:]), call.kwargs)
    end = recorder.clock()
    after = measure.thread_faults()
    tensor = outcome.result
    read_at = timed.read_at or end
    rss = None
    if end - load.last_rss_ns >= _RSS_EVERY_NS:
        load.last_rss_ns = end
        rss = measure.process_memory()["rss_bytes"]
    load.reads.append(
        (
            seq,
            key,
            start,
            end,
            read_at,
            load.submitted.pop(id(given), start),
            threading.current_thread().name,
            outcome.status,
            None if tensor is None else str(tensor.dtype),
            None if tensor is None else str(tensor.device),
            _is_mapped(load, key, tensor),
            rss,
            None if faults is None or after is None else after[0] - faults[0],
            None if faults is None or after is None else after[1] - faults[1],
        )
    )


def _is_mapped(load: Load, key: str, tensor: Any) -> bool | None:
    """Whether the result is still a view of the file's pages: same dtype, on the CPU."""
    entry = load.headers.get(load.file_of.get(key, ""))
    if tensor is None or entry is None or key not in entry.tensors:
        return None
    return tensor.device.type == "cpu" and STORED_DTYPES.get(
        entry.tensors[key].dtype
    ) == measure.dtype_name(tensor.dtype)


STORED_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""dtype names of the safetensors format, as torch calls them."""


def _remember_place(load: Load, call: Call) -> None:
    places = load.state.recorder.places
    load.read_source = places.source(call.function)
    load.read_stack = places.stack(sys._getframe())


def planned(state: ThreadState, call: Call) -> Observer:
    """`WeightTransform.add_tensor`: the library says which parameter a tensor is for."""
    yield None
    if state.load is not None:
        transform, param, key, pattern = call.args[:4]
        operations = [type(step).__name__ for step in getattr(transform, "operations", None) or ()]
        rule = type(transform).__name__
        state.load.plans[key] = Plan(param, pattern if pattern != key else None, rule, operations)


def waited(state: ThreadState, call: Call) -> Observer:
    """`materialize_tensors`: the loading thread waits for the workers."""
    start = state.recorder.clock()
    yield None
    load = state.load
    if load is not None and load.current is not None:
        load.times_of(load.current).wait_ns += state.recorder.clock() - start


def converted(state: ThreadState, call: Call) -> Observer:
    """`convert`: wait and conversion together; the wait is taken out."""
    load = state.load
    start = state.recorder.clock()
    if load is not None:
        load.current = call.argument(1, "layer_name")
    yield None
    if load is not None and load.current is not None:
        times = load.times_of(load.current)
        times.convert_ns += max(0, state.recorder.clock() - start - times.wait_ns)
        load.current = None


def placed(state: ThreadState, call: Call) -> Observer:
    """`set_param_for_module`: a finished tensor becomes a parameter."""
    start = state.recorder.clock()
    outcome = yield None
    load = state.load
    if load is None:
        return
    param = call.argument(1, "target_name")
    load.times_of(param).place_ns += state.recorder.clock() - start
    # A tensor of another shape is noted as mismatched and not set.
    odd = getattr(call.argument(3, "loading_info"), "mismatched_keys", ())
    if outcome.error is None and all(entry[0] != param for entry in odd):
        load.placed.add(param)
    if len(load.reads) >= _BATCH:
        write_reads(load, is_over=False)
        state.recorder.flush_if_due(state)


def offloaded(state: ThreadState, call: Call) -> Observer:
    """`offload_and_maybe_resave_param`: a parameter stays on disk, in its file or a new one."""
    outcome = yield None
    if state.load is not None and outcome.error is None:
        state.load.placed.add(call.argument(0, "target_name"))


def write_reads(load: Load, is_over: bool) -> None:
    """Turn reads into rows of `tensor_loads`: those that were set, and in the end all of them."""
    reads, load.reads = load.reads, []
    for row in reads:
        plan = load.plans.get(row[1])
        is_placed = plan is not None and plan.param in load.placed
        if is_over or is_placed:
            load.state.recorder.add("tensor_loads", _read_row(load, row, not is_placed))
        else:
            load.reads.append(row)


def _read_row(load: Load, row: tuple[Any, ...], discarded: bool) -> dict[str, Any]:
    (seq, key, start, end, read_at, submitted_at, worker, status, dtype, device) = row[:10]
    mapped, rss, minor, major = row[10:]
    recorder = load.state.recorder
    file = load.file_of.get(key)
    header = load.headers.get(file or "")
    entry = header.tensors.get(key) if header else None
    plan = load.plans.get(key)
    shape, stored, size = load.given.get(key, (None, None, None))
    if entry is not None:
        shape, size = list(entry.shape), entry.size_bytes
        stored = STORED_DTYPES.get(entry.dtype, entry.dtype)
    return {
        "seq": seq,
        "parent": load.weights_seq,
        "call": load.call,
        "stage": "tensor_load",
        "name": key,
        "start_ns": start - recorder.origin,
        "duration_ns": end - start,
        "thread": worker,
        "rank": recorder.rank,
        "status": status,
        "model": load.model,
        "key": key,
        "param": plan.param if plan else None,
        "file": None if file is None else Path(file).name,
        "stored_dtype": stored,
        "loaded_dtype": measure.dtype_name(dtype),
        "shape": shape,
        "size_bytes": size,
        "queue_ns": start - submitted_at,
        "read_ns": read_at - start,
        "cast_ns": end - read_at,
        "mapped": mapped,
        "discarded": discarded,
        "device": device,
        "worker": worker,
        "rss_bytes": rss,
        "minor_faults": minor,
        "major_faults": major,
        "source": load.read_source,
        "stack": load.read_stack,
    }
