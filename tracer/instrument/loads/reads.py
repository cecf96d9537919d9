"""Single tensors on their way from file to parameter: submitted, read, cast, waited for, set.

`_materialize_copy` runs in a worker thread and gets nothing but a slice, so a load is found by the
identity of the slices that it handed out (core_model_loading.py, 5.24). These functions run once a
tensor, up to six of them, so each adds only a few numbers to its `Load`; `read_rows.py` makes rows
of them between batches and at the end.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from tracer.instrument import measure
from tracer.instrument.loads import extremes, gguf_names, read_rows
from tracer.instrument.loads.load_notes import (
    BATCH,
    IN_ITS_FILE,
    IN_OFFLOAD_FOLDER,
    JOBS,
    NO_TIMES,
    Load,
    Plan,
    Seen,
    told,
)
from tracer.instrument.memory import is_due, resident_now
from tracer.instrument.patching import IsOn, Wrap
from tracer.instrument.stages import Outcome

_NOTHING: Final[list[str]] = []  # of a mere renaming; shared, and left as it is


class _TimedSlice:
    """Stands in for a slice inside `_materialize_copy`: notes when the bytes were there."""

    __slots__ = ("_clock", "_inner", "read_at")

    def __init__(self, inner: Any, clock: Callable[[], int]) -> None:
        self._inner = inner
        self._clock = clock
        self.read_at = 0

    def __getitem__(self, index: Any) -> Any:
        tensor = self._inner[index]
        self.read_at = self._clock()
        return tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _CountedSlice(_TimedSlice):
    """With `values`: counts on the way what the cast may turn into something else."""

    __slots__ = ("_load", "_wanted", "before", "own_ns")

    def __init__(self, inner: Any, load: Load, wanted: Any) -> None:
        super().__init__(inner, load.state.recorder.clock)
        self._load = load
        self._wanted = wanted
        self.before: extremes.Extremes | None = None
        self.own_ns = 0

    def __getitem__(self, index: Any) -> Any:
        tensor = super().__getitem__(index)
        if self._wanted is not None:
            with self._load.state.recorder.guard("values before a cast"):
                self.before = extremes.before_cast(self._load, tensor, self._wanted)
            self.own_ns = self._clock() - self.read_at
        return tensor


@told
def submitted(load: Load, seen: Seen) -> None:
    """`spawn_materialize`: the moment a read is handed to the pool."""
    load.submitted[id(seen.args[1])] = seen.start


def read(name: str) -> Wrap:
    """`_materialize_copy`: one read in a worker thread, split into read and cast."""

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        job = JOBS.get

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            load = job(id(args[0])) if args else None
            if load is None or not is_on() or not load.state.recorder.is_live:
                return original(*args, **kwargs)
            recorder = load.state.recorder
            source, *others = args
            recorder.targets_seen[name] += 1
            timed = _TimedSlice(source, recorder.clock)
            if recorder.options.values:
                wanted = args[2] if len(args) > 2 else kwargs.get("dtype")
                timed = _CountedSlice(source, load, wanted)
            if load.read_source is None:
                load.read_source = recorder.places.source(original)
                load.read_stack = recorder.places.stack(sys._getframe())
            faults = measure.thread_faults()
            seq, start = recorder.next_seq(), recorder.clock()
            result, status = None, "ok"
            try:
                result = original(timed, *others, **kwargs)
            except BaseException as error:
                status = Outcome(None, error).status
                raise
            finally:
                end = recorder.clock()
                try:
                    _note_read(load, source, timed, (seq, start, end, status), faults, result)
                except Exception as failure:
                    recorder.failed(name, failure)
            return result

        return wrapper

    return wrap


def read_part(name: str) -> Wrap:
    """`DtensorShardOperation.shard_tensor`: of a tensor, this rank's part is read in a worker."""

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            load = JOBS.get(id(args[1])) if len(args) > 1 else None
            if load is None or not is_on() or not load.state.recorder.is_live:
                return original(*args, **kwargs)
            recorder = load.state.recorder
            operation, source, *others = args
            recorder.targets_seen[name] += 1
            timed = _TimedSlice(source, recorder.clock)
            if recorder.options.values:
                timed = _CountedSlice(source, load, kwargs.get("dtype"))
            if load.read_source is None:
                load.read_source = recorder.places.source(original)
                load.read_stack = recorder.places.stack(sys._getframe())
            # What is in memory already is asked whether it is a tensor: it goes in as it is.
            given = timed if hasattr(source, "get_shape") else source
            faults = measure.thread_faults()
            seq, start = recorder.next_seq(), recorder.clock()
            result, status = None, "ok"
            try:
                result = original(operation, given, *others, **kwargs)
            except BaseException as error:
                status = Outcome(None, error).status
                raise
            finally:
                end = recorder.clock()
                timed.read_at = timed.read_at or start
                try:
                    _note_part(load, source, timed, (seq, start, end, status), faults, result)
                except Exception as failure:
                    recorder.failed(name, failure)
            return result

        return wrapper

    return wrap


def _note_part(load: Load, source: Any, timed: _TimedSlice, event: Any, *rest: Any) -> None:
    """As `_note_read`; of what belongs to other ranks alone nothing is read."""
    key, tensor = load.keys[id(source)], rest[-1]
    if tensor is None and event[3] == "ok":
        load.of_other_ranks.add(key)
        return
    if tensor is not None:
        load.cut_parts[key] = tuple(tensor.shape)
    _note_read(load, source, timed, event, *rest)


def _note_read(
    load: Load,
    source: Any,
    timed: _TimedSlice,
    event: tuple[int, int, int, str],
    faults: tuple[int, int] | None,
    tensor: Any,
) -> None:
    """Note the numbers of a read that has ended, well or not."""
    seq, start, end, status = event
    identity = id(source)
    key = load.keys[identity]
    if type(timed) is _CountedSlice:
        end -= timed.own_ns
        if tensor is not None:
            extremes.after_cast(load, key, timed.before, tensor)
    after = measure.thread_faults()
    load.reads.append(
        (
            seq,
            key,
            start,
            end,
            timed.read_at or end,
            identity,
            threading.current_thread().name,
            status,
            None if tensor is None else tensor.dtype,
            None if tensor is None else tensor.device,
            resident_now(load, end) if is_due(load, end) else None,
            None if faults is None or after is None else after[0] - faults[0],
            None if faults is None or after is None else after[1] - faults[1],
        )
    )


def faults_since(before: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """This thread's minor and major page faults since then."""
    after = measure.thread_faults()
    if before is None or after is None:
        return None, None
    return after[0] - before[0], after[1] - before[1]


@told
def planned(load: Load, seen: Seen) -> None:
    """`WeightTransform.add_tensor`: the library says which parameter a tensor is for."""
    transform, param, key, pattern, *_ = seen.args
    steps = getattr(transform, "operations", None)
    operations = [_described(step) for step in steps] if steps else _NOTHING
    if load.quantiser is not None and transform.quantization_operation is not None:
        operations = [*operations, type(transform.quantization_operation).__name__]
    rule = type(transform).__name__
    made = Plan(param, None if pattern == key else pattern, rule, operations)
    if load.packed:
        gguf_names.plan(load, key, made)
    else:
        load.plans[key] = made


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
def awaited(load: Load, seen: Seen) -> None:
    """`materialize_tensors`: the loading thread waits for the workers."""
    load.last_wait = seen.start, seen.end


@told
def converted(load: Load, seen: Seen) -> None:
    """`convert`: wait and conversion together; the wait is taken out."""
    start, end, args, _, result = seen
    began, ended = load.last_wait
    wait = ended - began if began >= start else 0
    param = args[1]
    if not result:  # an operation of a quantiser set it by itself, where no call is observed
        load.placed.add(param)
    elif len(result) > 1 or param not in result:
        load.parts[param] = list(result)
    waited, convert, place = load.times.get(param, NO_TIMES)
    load.times[param] = (waited or 0) + wait, (convert or 0) + end - start - wait, place


@told
def placed(load: Load, seen: Seen) -> None:
    """`set_param_for_module`: a finished tensor becomes a parameter."""
    _, param, _, info, *_ = seen.args
    load.note_placing(param, seen)
    # A tensor of another shape is noted as mismatched and not set.
    odd = info.mismatched_keys
    # Where the module has no such parameter nothing was set; set ones are not missing any more.
    is_strange = param in info.unexpected_keys or param in info.missing_keys
    if not is_strange and (not odd or all(entry[0] != param for entry in odd)):
        load.placed.add(param)
    load.placed_since += 1
    # The workers may be far ahead, and writing looks at all reads that wait: the more do, the
    # rarer it is done, else it would take the square of their number.
    if load.placed_since >= BATCH and load.placed_since >= len(load.reads) // 4:
        read_rows.write(load, is_over=False)
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
