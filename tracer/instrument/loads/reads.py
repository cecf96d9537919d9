"""Single tensors as they are read and cast, in worker threads.

`_materialize_copy` gets nothing but a slice, so a load is found by the identity of the slices that
it handed out (core_model_loading.py, 5.24). Each read adds only a few numbers to its `Load`;
`read_rows.py` makes rows of them between batches and at the end.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from tracer.formats.entries import dtype_name
from tracer.instrument import measure
from tracer.instrument.loads import extremes
from tracer.instrument.loads.load_notes import JOBS, Load
from tracer.instrument.memory import SAMPLED_EVERY_NS, resident_now
from tracer.instrument.patching import IsOn, Wrap
from tracer.instrument.stages import Outcome

_NO_FAULTS: Final = (None, None)


class _TimedSlice:
    """Stands in for a slice inside `_materialize_copy`: notes when the bytes were there.

    With `values` it counts on the way what the cast may turn into something else.
    """

    __slots__ = ("_inner", "_load", "_wanted", "before", "own_ns", "read_at")

    def __init__(self, load: Load, inner: Any, wanted: Any) -> None:
        self._load = load
        self._inner = inner
        self._wanted = wanted
        self.read_at = 0
        self.before: extremes.Extremes | None = None
        self.own_ns = 0

    def __getitem__(self, index: Any) -> Any:
        tensor = self._inner[index]
        recorder = self._load.state.recorder
        self.read_at = recorder.clock()
        if recorder.options.values and self._wanted is not None:
            with recorder.guard("values before a cast"):
                self.before = extremes.before_cast(self._load, tensor, self._wanted)
            self.own_ns = recorder.clock() - self.read_at
        return tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _stays_a_view(source: Any, device: Any = None, dtype: Any = None, *_: Any) -> bool:
    """Whether a slice of a mapped file is all that will be made: not read, cast or moved."""
    # By the name of its kind: to compare a device with text goes a long way round.
    if device is not None and getattr(device, "type", device) != "cpu":
        return False
    stored = getattr(source, "get_dtype", None)
    return stored is not None and (dtype is None or _is_stored(stored(), dtype))


@functools.cache
def _is_stored(code: str, dtype: Any) -> bool:
    return dtype_name(code) == measure.dtype_name(dtype)


def read(name: str) -> Wrap:
    """`_materialize_copy`: one read in a worker thread, split into read and cast.

    Where a slice only becomes a view of a mapped file there is nothing to split, nor do pages come
    in: then the system isn't asked for page faults, which takes longer than such a read itself.
    """

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        job, usage = JOBS.get, measure.thread_usage()

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            load = job(id(args[0])) if args else None
            if load is None or not is_on():
                return original(*args, **kwargs)
            recorder = load.state.recorder
            clock = recorder.clock
            source = args[0]
            recorder.targets_seen[name] += 1
            if load.read_source is None:
                _note_place(load, original)
            timed = before = None
            if kwargs or not load.are_mapped or not _stays_a_view(*args):
                wanted = args[2] if len(args) > 2 else kwargs.get("dtype")
                timed = _TimedSlice(load, source, wanted)
                args = (timed, *args[1:])
                before = usage()
            seq, start = recorder.next_seq(), clock()
            result, status = None, "ok"
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                status = Outcome(None, error).status
                raise
            finally:
                end = clock()
                faults = _NO_FAULTS if before is None else _faults_between(before, usage())
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
        usage = measure.thread_usage()

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            load = JOBS.get(id(args[1])) if len(args) > 1 else None
            if load is None or not is_on() or not load.state.recorder.is_live:
                return original(*args, **kwargs)
            recorder = load.state.recorder
            operation, source, *others = args
            recorder.targets_seen[name] += 1
            timed = _TimedSlice(load, source, kwargs.get("dtype"))
            if load.read_source is None:
                _note_place(load, original)
            # What is in memory already is asked whether it is a tensor: it goes in as it is.
            given = timed if hasattr(source, "get_shape") else source
            before = usage()
            seq, start = recorder.next_seq(), recorder.clock()
            result, status = None, "ok"
            try:
                result = original(operation, given, *others, **kwargs)
            except BaseException as error:
                status = Outcome(None, error).status
                raise
            finally:
                end = recorder.clock()
                faults = _faults_between(before, usage())
                timed.read_at = timed.read_at or start
                try:
                    _note_part(load, source, timed, (seq, start, end, status), faults, result)
                except Exception as failure:
                    recorder.failed(name, failure)
            return result

        return wrapper

    return wrap


def _note_place(load: Load, original: Callable[..., Any]) -> None:
    """Which function reads, and from where it is called: once for all tensors of a load."""
    places = load.state.recorder.places
    load.read_source = places.source(original)
    load.read_stack = places.stack(sys._getframe())


def _note_part(load: Load, source: Any, timed: _TimedSlice, event: Any, *rest: Any) -> None:
    """As `_note_read`; of what belongs to other ranks alone nothing is read."""
    key, tensor = load.keys.get(id(source)), rest[-1]
    if key is None:
        return
    if tensor is None and event[3] == "ok":
        load.of_other_ranks.add(key)
        return
    if tensor is not None:
        load.cut_parts[key] = tuple(tensor.shape)
    _note_read(load, source, timed, event, *rest)


def _note_read(
    load: Load,
    source: Any,
    timed: _TimedSlice | None,
    event: tuple[int, int, int, str],
    faults: tuple[int | None, int | None],
    tensor: Any,
) -> None:
    """Note the numbers of a read that has ended, well or not."""
    seq, start, end, status = event
    identity = id(source)
    key = load.keys.get(identity)
    if key is None:  # the load was cut off, and its facts are told, while a worker was reading
        return
    read_at = end
    if timed is not None:
        end -= timed.own_ns
        read_at = timed.read_at or end
        if tensor is not None:
            extremes.after_cast(load, key, timed.before, tensor)
    load.reads.append(
        (
            seq,
            key,
            start,
            end,
            read_at,
            identity,
            load.workers.get(threading.get_ident()) or _worker(load),
            status,
            None if tensor is None else tensor.dtype,
            None if tensor is None else tensor.device,
            resident_now(load, end) if end - load.last_sample_ns >= SAMPLED_EVERY_NS else None,
            *faults,
        )
    )


def _worker(load: Load) -> str:
    name = load.workers[threading.get_ident()] = threading.current_thread().name
    return name


def faults_since(before: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """This thread's minor and major page faults since then."""
    after = measure.thread_faults()
    if before is None or after is None:
        return None, None
    return after[0] - before[0], after[1] - before[1]


def _faults_between(before: Any, after: Any) -> tuple[int, int]:
    return after.ru_minflt - before.ru_minflt, after.ru_majflt - before.ru_majflt
