"""`tensor_loads` of generation 5: reads that have ended, as rows; and the form of what was read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tracer.formats.entries import dtype_name
from tracer.instrument import measure
from tracer.instrument.loads.load_notes import IN_ITS_FILE, Load, Plan
from tracer.instrument.memory import write_samples
from tracer.rows import Encoded, shape_text


def write(load: Load, is_over: bool) -> None:
    """Turn reads into rows of `tensor_loads`: those that were set, and in the end all of them.

    In the end the load keeps them until `forget`, since an interrupt may have them told anew.
    """
    write_samples(load, is_over)
    with load.state.uncollected():
        _write(load, is_over)


def _write(load: Load, is_over: bool) -> None:
    reads = load.reads
    left: list[tuple[Any, ...]] = []
    if not is_over:  # the workers go on; what is over may have to be told anew, so it stays
        load.reads = left
    load.placed_since = 0
    is_plain = not load.parts and not load.packed and not load.offloaded
    cells = []
    for one in reads:
        plan = load.plans.get(one[1])
        if is_plain and plan is not None and plan.param in load.placed:
            cells.append(_read_cells(load, one, plan, False))
            continue
        targets = [] if plan is None else load.targets_of(plan.param)
        placed = [target for target in targets if target in load.placed]
        if is_over or placed:
            is_left = all(load.offloaded.get(target) == IN_ITS_FILE for target in placed)
            cells.append(_read_cells(load, one, plan, is_left))
            cells.extend(_read_cells(load, other, plan, is_left) for other in _merged(load, one))
        else:
            left.append(one)
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


def forget(load: Load) -> None:
    """The rows of all reads stand: let go of what they were made of."""
    load.reads, load.samples = [], []
    if load.shards is not None:
        load.shards.done = []


def _merged(load: Load, one: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Of a source that several tensors of a GGUF file were merged into: the others, at no time."""
    key, start = one[1], one[2]
    for keys in load.packed.values() if load.packed else ():
        for other in keys[1:] if keys[0] == key else ():
            yield load.state.recorder.next_seq(), other, start, start, start, 0, *one[6:]


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
    name, stored, loaded, shape, size, mapped, placed_on = form_of(
        load, key, load.file_of.get(key), dtype, device
    )
    return (
        seq, key, start - load.state.recorder.origin, end - start, worker, status, key,
        plan.param if plan else None, name, stored, loaded, shape, size,
        start - submitted_at, read_at - start, end - read_at,
        mapped, discarded, placed_on, worker, *memory,
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
    """From the file's header, or from the tensor itself where it came whole.

    There are few forms and many tensors, so that each is put together once.
    """
    header = None if file is None else load.headers.get(file)
    entry = None if header is None else header.tensors.get(key)
    if entry is None:
        given, stored, given_size = load.given.get(key, (None, None, None))
        return _form(load, file, given, stored, given_size, dtype, device)
    shape, size = entry.shape, entry.size_bytes
    if load.cut_parts and key in load.cut_parts:
        shape = load.cut_parts[key]
        size = size * math.prod(shape) // max(math.prod(entry.shape), 1)
    alike = (file, entry.dtype, shape, size, dtype, device)
    form: Form | None = load.forms.get(alike)
    if form is None:
        form = _form(load, file, shape, dtype_name(entry.dtype), size, dtype, device)
        load.forms[alike] = form
    return form


def _form(
    load: Load,
    file: str | None,
    given: Sequence[int] | None,
    stored: str | None,
    size: int | None,
    dtype: Any,
    device: Any,
) -> Form:
    loaded, mapped = measure.dtype_name(dtype), None
    if device is not None and file is not None and file in load.access:
        # Still a view of the file's pages: the same dtype, on the CPU. GGUF's reader copies.
        is_mapped = load.access[file] == "mmap" and not file.endswith(".gguf")
        mapped = is_mapped and device.type == "cpu" and stored == loaded
    return Form(
        None if file is None else load.name_of(file),
        stored,
        loaded,
        None if given is None else shape_text(tuple(given)),
        size,
        mapped,
        None if device is None else measure.device_name(device),
    )
