"""Single tensors on their way from file to parameter: submitted, read, cast, waited for, set.

`_materialize_copy` runs in a worker thread and gets nothing but a slice, so a load is found by the
identity of the slices that it handed out (core_model_loading.py, 5.24). These functions run once a
tensor, up to six of them, so each adds only a few numbers to its `Load`; rows are made between
batches and at the end.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracer.checkpoint import Header
from tracer.instrument import measure
from tracer.instrument.memory import resident_now, write_samples
from tracer.instrument.patching import IsOn, Wrap
from tracer.instrument.stages import Outcome
from tracer.rows import Encoded, shape_text
from tracer.spans import ACTIVE, ThreadState

if TYPE_CHECKING:
    from tracer.instrument.shard_reads import Shards

JOBS: dict[int, Load] = {}
"""Identity of what a load gives its worker threads (a slice, a tensor, a shard), to that load."""

BATCH = 512


@dataclasses.dataclass(slots=True)
class ParamTimes:
    """What one parameter cost the loading thread, in nanoseconds; missing where it did nothing."""

    wait_ns: int | None = None
    convert_ns: int | None = None
    place_ns: int | None = None


@dataclasses.dataclass(slots=True)
class Plan:
    """Where the library wants a checkpoint tensor to go."""

    param: str
    pattern: str | None
    rule: str
    operations: list[str]


class Inner(NamedTuple):
    """A tensor of a model that was loaded within this load, and its row of `placements`."""

    call: int
    tensor: weakref.ref[Any]
    row: dict[str, Any]


IN_ITS_FILE: Final = "left in its file, which is read at each use"
IN_OFFLOAD_FOLDER: Final = "written from the file to the offload folder, read at each use"


@dataclasses.dataclass(slots=True)
class Load:
    """One `PreTrainedModel.from_pretrained` as it goes on. Holds names and numbers, no tensor."""

    state: ThreadState
    call: int
    asked: str | None = None
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    by_user: frozenset[str] = frozenset()
    model: str | None = None
    files: list[str] = dataclasses.field(default_factory=list)
    access: dict[str, str] = dataclasses.field(default_factory=dict)
    index: str | None = None
    keys: dict[int, str] = dataclasses.field(default_factory=dict)
    file_of: dict[str, str] = dataclasses.field(default_factory=dict)
    headers: dict[str, Header] = dataclasses.field(default_factory=dict)
    submitted: dict[int, int] = dataclasses.field(default_factory=dict)
    plans: dict[str, Plan] = dataclasses.field(default_factory=dict)
    times: dict[str, ParamTimes] = dataclasses.field(default_factory=dict)
    placed: set[str] = dataclasses.field(default_factory=set)
    placed_since: int = 0  # rows were last written
    reads: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    weights_seq: int = -1
    build_span: Any = None
    before_fill: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    meta: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    expected: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    expected_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    mismatched: set[str] = dataclasses.field(default_factory=set)
    dtype_why: str | None = None
    dtype: str | None = None
    given: dict[str, tuple[list[int], str | None, int]] = dataclasses.field(default_factory=dict)
    placement_rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    announced: dict[str, str] = dataclasses.field(default_factory=dict)
    """Names that the class means to tie, to their sources, before the file had its say."""
    device_map: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    parts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Parameters that one conversion made, by the one that it was planned for."""
    offloaded: dict[str, str] = dataclasses.field(default_factory=dict)
    replaced: dict[str, str] = dataclasses.field(default_factory=dict)
    inner: list[Inner] = dataclasses.field(default_factory=list)
    last_sample_ns: int = 0
    samples: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last_wait: tuple[int, int] = (-1, -1)
    read_source: str | None = None
    read_stack: str | None = None
    shards: Shards | None = None  # of generation 4 only, which reads shard by shard

    @property
    def set_from(self) -> str:
        """What shows where values were read: a file, or tensors that the call was given."""
        whence = "the file" if self.files else "the state_dict that the call was given"
        return f"set from {whence}"

    def targets_of(self, param: str) -> list[str]:
        """What the tensors planned for a parameter became: itself, or the parts of a split."""
        return self.parts.get(param, [param])

    def times_of(self, param: str) -> ParamTimes:
        """The times of a parameter, made on first use."""
        times = self.times.get(param)
        if times is None:
            times = self.times[param] = ParamTimes()
        return times

    def note_placing(self, param: str, seen: Seen) -> None:
        """A parameter was set by this call; one in several pieces by several."""
        times = self.times_of(param)
        times.place_ns = (times.place_ns or 0) + seen.end - seen.start

    def note_cut(self, target: str) -> None:
        """Tensors are cut as they are read, inside of what can be observed."""
        self.state.recorder.fault(
            target, "tensors are sharded as they are read (tensor parallel): reads are not timed"
        )


def job_state(args: tuple[Any, ...]) -> ThreadState | None:
    """State of a worker thread that takes up a job of a load: its spans lie below the load's."""
    load = JOBS.get(id(args[0])) if args else None
    if load is None or not load.state.recorder.is_live:
        return None
    state = load.state.recorder.thread_state()
    state.load, state.call, state.top = load, load.call, load.weights_seq
    return state


class Seen(NamedTuple):
    """A call that has returned: times on the recorder's clock, arguments, result."""

    start: int
    end: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def argument(self, place: int, name: str) -> Any:
        """An argument by position or name; None when it was not given."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name)


def told(note: Callable[[Load, Seen], None]) -> Callable[[str], Wrap]:
    """Wrappers for a target that tell `note` of each call of this thread's load that returned."""

    def for_target(name: str) -> Wrap:
        def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                state = ACTIVE.get(threading.get_ident())
                load = None if state is None or not is_on() else state.load
                if state is None or load is None:
                    return original(*args, **kwargs)
                recorder = state.recorder
                recorder.targets_seen[name] += 1
                start = recorder.clock()
                result = original(*args, **kwargs)
                end = recorder.clock()
                try:
                    note(load, Seen(start, end, args, kwargs, result))
                    recorder.targets_done[name] += 1
                except Exception as error:
                    recorder.failed(name, error)
                state.recorder_ns += recorder.clock() - end
                return result

            return wrapper

        return wrap

    return for_target


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


@told
def submitted(load: Load, seen: Seen) -> None:
    """`spawn_materialize`: the moment a read is handed to the pool."""
    load.submitted[id(seen.argument(1, "tensor"))] = seen.start
    if seen.argument(4, "sharding_op") is not None:
        load.note_cut("core_model_loading._materialize_copy")


def read(name: str) -> Wrap:
    """`_materialize_copy`: one read in a worker thread, split into read and cast."""

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            load = JOBS.get(id(args[0])) if args and is_on() else None
            if load is None or not load.state.recorder.is_live:
                return original(*args, **kwargs)
            load.state.recorder.targets_seen[name] += 1
            one = _Read(load, args[0])
            try:
                result = original(one.timed, *args[1:], **kwargs)
            except BaseException as error:
                one.end(name, original, None, error)
                raise
            one.end(name, original, result, None)
            return result

        return wrapper

    return wrap


class _Read:
    """One read as it goes on."""

    __slots__ = ("faults", "load", "seq", "source", "start", "timed")

    def __init__(self, load: Load, source: Any) -> None:
        recorder = load.state.recorder
        self.load = load
        self.source = source
        self.timed = _TimedSlice(source, recorder.clock)
        self.faults = measure.thread_faults()
        self.seq = recorder.next_seq()
        self.start = recorder.clock()

    def end(
        self,
        name: str,
        function: Callable[..., Any],
        tensor: Any,
        error: BaseException | None,
    ) -> None:
        """Note the numbers of a read that has ended."""
        load, recorder = self.load, self.load.state.recorder
        end = recorder.clock()
        try:
            if load.read_source is None:
                load.read_source = recorder.places.source(function)
                load.read_stack = recorder.places.stack(sys._getframe())
            load.reads.append(
                (
                    self.seq,
                    load.keys[id(self.source)],
                    self.start,
                    end,
                    self.timed.read_at or end,
                    id(self.source),
                    threading.current_thread().name,
                    "ok" if error is None else Outcome(None, error).status,
                    None if tensor is None else tensor.dtype,
                    None if tensor is None else tensor.device,
                    resident_now(load, end, self.seq),
                    *faults_since(self.faults),
                )
            )
            if error is None:
                recorder.targets_done[name] += 1
        except Exception as failure:
            recorder.failed(name, failure)


def faults_since(before: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """This thread's minor and major page faults since then."""
    after = measure.thread_faults()
    if before is None or after is None:
        return None, None
    return after[0] - before[0], after[1] - before[1]


STORED_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""dtype names of the safetensors format, as torch calls them."""


@told
def planned(load: Load, seen: Seen) -> None:
    """`WeightTransform.add_tensor`: the library says which parameter a tensor is for."""
    transform, param, key, pattern = seen.args[:4]
    steps = getattr(transform, "operations", None)
    operations = [_described(step) for step in steps] if steps else []
    rule = type(transform).__name__
    load.plans[key] = Plan(param, pattern if pattern != key else None, rule, operations)


def _described(step: Any) -> str:
    """An operation with the numbers that it was made with, such as `Concatenate(dim=1)`."""
    numbers = {
        name: value
        for name, value in getattr(step, "__dict__", {}).items()
        if isinstance(value, int | tuple) and not name.startswith("_")
    }
    told = ", ".join(f"{name}={value}" for name, value in numbers.items())
    return f"{type(step).__name__}({told})" if told else type(step).__name__


@told
def waited(load: Load, seen: Seen) -> None:
    """`materialize_tensors`: the loading thread waits for the workers."""
    load.last_wait = seen.start, seen.end


@told
def converted(load: Load, seen: Seen) -> None:
    """`convert`: wait and conversion together; the wait is taken out."""
    began, ended = load.last_wait
    wait = ended - began if began >= seen.start else 0
    param = seen.argument(1, "layer_name")
    if len(seen.result) > 1 or param not in seen.result:
        load.parts[param] = list(seen.result)
    times = load.times_of(param)
    times.wait_ns = (times.wait_ns or 0) + wait
    times.convert_ns = (times.convert_ns or 0) + seen.end - seen.start - wait


@told
def placed(load: Load, seen: Seen) -> None:
    """`set_param_for_module`: a finished tensor becomes a parameter."""
    param = seen.argument(1, "target_name")
    load.note_placing(param, seen)
    # A tensor of another shape is noted as mismatched and not set.
    info = seen.argument(3, "loading_info")
    odd = info.mismatched_keys
    is_strange = param in info.unexpected_keys  # the module has no such parameter: nothing was set
    if not is_strange and (not odd or all(entry[0] != param for entry in odd)):
        load.placed.add(param)
    load.placed_since += 1
    # The workers may be far ahead, and writing looks at all reads that wait: the more do, the
    # rarer it is done, else it would take the square of their number.
    if load.placed_since >= max(BATCH, len(load.reads) // 4):
        write_reads(load, is_over=False)
        load.state.recorder.flush_if_due(load.state)


@told
def offloaded(load: Load, seen: Seen) -> None:
    """`offload_and_maybe_resave_param`: a parameter stays on disk, in its file or a new one."""
    param, folder = seen.argument(0, "target_name"), seen.argument(3, "disk_offload_folder")
    load.placed.add(param)
    # One that is written anew has a file of its own name there (integrations/accelerate.py).
    own = os.path.join(folder or "", f"{param}.safetensors")
    is_new = seen.result[param].get("safetensors_file") == own
    load.offloaded[param] = IN_OFFLOAD_FOLDER if is_new else IN_ITS_FILE


def write_reads(load: Load, is_over: bool) -> None:
    """Turn reads into rows of `tensor_loads`: those that were set, and in the end all of them."""
    write_samples(load)
    reads, load.reads = load.reads, []
    load.placed_since = 0
    ready = []
    for one in reads:
        plan = load.plans.get(one[1])
        targets = [] if plan is None else load.targets_of(plan.param)
        placed = [target for target in targets if target in load.placed]
        if is_over or placed:
            is_left = all(load.offloaded.get(target) == IN_ITS_FILE for target in placed)
            ready.append((one, plan, is_left))
        else:
            load.reads.append(one)
    cells = [_read_cells(load, *each) for each in ready]
    columns = dict(zip(_READ_COLUMNS, map(list, zip(*cells, strict=True)), strict=False))
    load.state.recorder.add_rows(
        "tensor_loads",
        len(cells),
        call=load.call,
        parent=load.weights_seq,
        stage="tensor_load",
        model=load.model,
        source=load.read_source,
        stack=load.read_stack,
        **columns,
    )


_READ_COLUMNS: Final = (
    "seq", "name", "start_ns", "duration_ns", "thread", "status", "key", "param", "file",
    "stored_dtype", "loaded_dtype", "shape", "size_bytes", "queue_ns", "read_ns", "cast_ns",
    "mapped", "discarded", "device", "worker", "rss_bytes", "minor_faults", "major_faults",
)  # fmt: skip


def _read_cells(
    load: Load, one: tuple[Any, ...], plan: Plan | None, discarded: bool
) -> tuple[Any, ...]:
    """Cells of `_READ_COLUMNS`."""
    seq, key, start, end, read_at, source, worker, status, dtype, device, *memory = one
    # Looked up now: a worker may be done before the loading thread comes to note the hour.
    submitted_at = load.submitted.get(source, start)
    file = load.file_of.get(key)
    form = form_of(load, key, file, dtype, device)
    return (
        seq, key, start - load.state.recorder.origin, end - start, worker, status, key,
        plan.param if plan else None, form.file,
        form.stored, form.loaded, form.shape, form.size,
        start - submitted_at, read_at - start, end - read_at,
        form.mapped, discarded, form.device, worker, *memory,
    )  # fmt: skip


class Form(NamedTuple):
    """A tensor as its file has it and as it was read, in cells of `tensor_loads`."""

    file: str | None
    stored: str | None
    loaded: str | None
    shape: Encoded | None
    size: int | None
    mapped: bool | None
    device: str | None


def form_of(load: Load, key: str, file: str | None, dtype: Any, device: Any) -> Form:
    """From the file's header, or from the tensor itself where it came whole."""
    header = load.headers.get(file or "")
    entry = header.tensors.get(key) if header else None
    given, stored, size = load.given.get(key, (None, None, None))
    shape = None if given is None else shape_text(tuple(given))
    loaded, mapped = measure.dtype_name(dtype), None
    if entry is not None:
        shape, size = shape_text(entry.shape), entry.size_bytes
        stored = STORED_DTYPES.get(entry.dtype, entry.dtype)
    if device is not None and file is not None and file in load.access:
        # Still a view of the file's pages: the same dtype, on the CPU. GGUF's reader copies.
        is_mapped = load.access[file] == "mmap" and not file.endswith(".gguf")
        mapped = is_mapped and device.type == "cpu" and stored == loaded
    name = None if file is None else os.path.basename(file)
    placed_on = None if device is None else measure.device_name(device)
    return Form(name, stored, loaded, shape, size, mapped, placed_on)
