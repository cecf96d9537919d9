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
from typing import Any

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
)
from tracer.instrument.memory import resident_now
from tracer.instrument.patching import IsOn, Wrap
from tracer.instrument.stages import Outcome


class _TimedSlice:
    """Stands in for a slice inside `_materialize_copy`: notes when the bytes were there."""

    __slots__ = ("_clock", "_inner", "_load", "_wanted", "before", "own_ns", "read_at")

    def __init__(self, inner: Any, load: Load, wanted: Any) -> None:
        self._inner = inner
        self._load = load
        self._wanted = wanted
        self._clock = load.state.recorder.clock
        self.before: extremes.Extremes | None = None
        self.own_ns = self.read_at = 0

    def __getitem__(self, index: Any) -> Any:
        tensor = self._inner[index]
        self.read_at = self._clock()
        if self._wanted is not None:
            with self._load.state.recorder.guard("values before a cast"):
                self.before = extremes.before_cast(self._load, tensor, self._wanted)
            self.own_ns = self._clock() - self.read_at
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
            wanted = args[2] if len(args) > 2 else kwargs.get("dtype")
            one = _Read(load, args[0], wanted)
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

    def __init__(self, load: Load, source: Any, wanted: Any) -> None:
        recorder = load.state.recorder
        self.load = load
        self.source = source
        self.timed = _TimedSlice(source, load, wanted if recorder.options.values else None)
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
        end = recorder.clock() - self.timed.own_ns
        try:
            if tensor is not None:
                extremes.after_cast(load, load.keys[id(self.source)], self.timed.before, tensor)
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
                    resident_now(load, end),
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


@told
def planned(load: Load, seen: Seen) -> None:
    """`WeightTransform.add_tensor`: the library says which parameter a tensor is for."""
    transform, param, key, pattern = seen.args[:4]
    steps = getattr(transform, "operations", None)
    operations = [_described(step) for step in steps] if steps else []
    rule = type(transform).__name__
    made = Plan(param, pattern if pattern != key else None, rule, operations)
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
    is_strange |= param in info.missing_keys  # set ones are taken off that list
    if not is_strange and (not odd or all(entry[0] != param for entry in odd)):
        load.placed.add(param)
    load.placed_since += 1
    # The workers may be far ahead, and writing looks at all reads that wait: the more do, the
    # rarer it is done, else it would take the square of their number.
    if load.placed_since >= max(BATCH, len(load.reads) // 4):
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
