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
    Load,
    Plan,
    Seen,
    told,
    told_briefly,
)
from tracer.instrument.memory import is_due, resident_now
from tracer.instrument.patching import IsOn, Wrap
from tracer.instrument.stages import Outcome

_NOTHING: Final[list[str]] = []  # of a mere renaming; shared, and left as it is


class _TimedSlice:
    """Stands in for a slice inside `_materialize_copy`: notes when the bytes were there.

    Made once a tensor, so it has no constructor of its own: that would be a call more.
    """

    __slots__ = ("clock", "inner", "read_at")
    inner: Any
    clock: Callable[[], int]
    read_at: int

    def __getitem__(self, index: Any) -> Any:
        tensor = self.inner[index]
        self.read_at = self.clock()
        return tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _CountedSlice(_TimedSlice):
    """With `values`: counts on the way what the cast may turn into something else."""

    __slots__ = ("before", "load", "own_ns", "wanted")
    load: Load
    wanted: Any
    before: extremes.Extremes | None
    own_ns: int

    def __getitem__(self, index: Any) -> Any:
        tensor = super().__getitem__(index)
        if self.wanted is not None:
            with self.load.state.recorder.guard("values before a cast"):
                self.before = extremes.before_cast(self.load, tensor, self.wanted)
            self.own_ns = self.clock() - self.read_at
        return tensor


def _counted(load: Load, wanted: Any) -> _CountedSlice:
    made = _CountedSlice()
    made.load, made.wanted, made.before, made.own_ns = load, wanted, None, 0
    return made


@told_briefly
def submitted(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`spawn_materialize`: the moment a read is handed to the pool."""
    load.submitted[id(args[1])] = start
    if kwargs.get("sharding_op") is not None or (len(args) > 4 and args[4] is not None):
        load.note_cut("core_model_loading._materialize_copy")


def read(name: str) -> Wrap:
    """`_materialize_copy`: one read in a worker thread, split into read and cast."""

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        job, usage, ident = JOBS.get, measure.thread_usage(), threading.get_ident

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            load = job(id(args[0])) if args else None
            if load is None or not is_on():
                return original(*args, **kwargs)
            recorder = load.state.recorder
            clock = recorder.clock
            source, *others = args
            recorder.targets_seen[name] += 1
            if load.read_source is None:
                load.read_source = recorder.places.source(original)
                load.read_stack = recorder.places.stack(sys._getframe())
            timed = _TimedSlice()
            if recorder.options.values:
                timed = _counted(load, args[2] if len(args) > 2 else kwargs.get("dtype"))
            timed.inner, timed.clock, timed.read_at = source, clock, 0
            before = usage()
            seq, start = recorder.next_seq(), clock()
            result, status = None, "ok"
            try:
                result = original(timed, *others, **kwargs)
            except BaseException as error:
                status = Outcome(None, error).status
                raise
            finally:
                end, after = clock(), usage()
                try:
                    identity = id(source)
                    key = load.keys[identity]
                    if type(timed) is _CountedSlice:
                        end -= timed.own_ns
                        if result is not None:
                            extremes.after_cast(load, key, timed.before, result)
                    load.reads.append(
                        (
                            seq, key, start, end, timed.read_at or end, identity,
                            load.workers.get(ident()) or _worker(load), status,
                            None if result is None else result.dtype,
                            None if result is None else result.device,
                            resident_now(load, end) if is_due(load, end) else None,
                            None if before is None else after.ru_minflt - before.ru_minflt,
                            None if before is None else after.ru_majflt - before.ru_majflt,
                        )
                    )  # fmt: skip
                except Exception as failure:
                    recorder.failed(name, failure)
            return result

        return wrapper

    return wrap


def _worker(load: Load) -> str:
    name = load.workers[threading.get_ident()] = threading.current_thread().name
    return name


def faults_since(before: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """This thread's minor and major page faults since then."""
    after = measure.thread_faults()
    if before is None or after is None:
        return None, None
    return after[0] - before[0], after[1] - before[1]


@told_briefly
def planned(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`WeightTransform.add_tensor`: the library says which parameter a tensor is for."""
    transform, param, key, pattern, *_ = args
    steps = getattr(transform, "operations", None)
    operations = [_described(step) for step in steps] if steps else _NOTHING
    if load.quantiser is not None and transform.quantization_operation is not None:
        operations = [*operations, type(transform.quantization_operation).__name__]
    plan = param, None if pattern == key else pattern, type(transform).__name__, operations
    if load.packed:
        gguf_names.plan(load, key, Plan(*plan))
    else:
        load.planned.append((key, *plan))


def _described(step: Any) -> str:
    """An operation with the numbers that it was made with, such as `Concatenate(dim=1)`."""
    numbers = {
        name: value
        for name, value in getattr(step, "__dict__", {}).items()
        if isinstance(value, int | tuple) and not name.startswith("_")
    }
    told = ", ".join(f"{name}={value}" for name, value in numbers.items())
    return f"{type(step).__name__}({told})" if told else type(step).__name__


@told_briefly
def awaited(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`materialize_tensors`: the loading thread waits for the workers."""
    load.last_wait = start, end


@told_briefly
def converted(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`convert`: wait and conversion together; the wait is taken out."""
    began, ended = load.last_wait
    wait = ended - began if began >= start else 0
    param = args[1]
    if not result:  # an operation of a quantiser set it by itself, where no call is observed
        load.placed.add(param)
    elif len(result) > 1 or param not in result:
        load.parts[param] = list(result)
    load.conversions_seen.append((param, wait, end - start - wait))


@told_briefly
def placed(
    load: Load, start: int, end: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """`set_param_for_module`: a finished tensor becomes a parameter."""
    param, info = args[1], args[3]
    load.placings_seen.append((param, end - start))
    # A tensor of another shape is noted as mismatched and not set.
    odd = info.mismatched_keys
    # Where the module has no such parameter nothing was set; set ones are not missing any more.
    is_strange = param in info.unexpected_keys or param in info.missing_keys
    if not is_strange and (not odd or all(entry[0] != param for entry in odd)):
        load.placed.add(param)
    since = load.placed_since = load.placed_since + 1
    # The workers may be far ahead, and writing looks at all reads that wait: the more do, the
    # rarer it is done, else it would take the square of their number.
    if since >= BATCH and since >= len(load.reads) // 4:
        with load.state.own_time():
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
