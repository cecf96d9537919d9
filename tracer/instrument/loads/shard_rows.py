"""`tensor_loads` of generation 4: the tensors that a shard's loop took up, as rows.

`cast_ns` is derived: the time between the end of the read and the setting, with the library's own
few microseconds. Of what came whole there is no read, so `read_ns` is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracer.instrument.loads.load_notes import Load
from tracer.instrument.loads.read_rows import form_of
from tracer.instrument.memory import write_samples

if TYPE_CHECKING:
    from tracer.instrument.loads.shard_reads import Piece, Shards


def write(load: Load, is_over: bool) -> None:
    """Turn pieces into rows of `tensor_loads`: those whose lot is decided, in the end all."""
    shards = load.shards
    if shards is None:
        return
    if not is_over:  # in the end `read_rows` writes them
        write_samples(load, is_over)
    pieces, left = list(shards.done), []
    if not is_over:
        left = [piece for piece in pieces if piece.param in shards.undecided]
        pieces = [piece for piece in pieces if piece.param not in shards.undecided]
        shards.left_undecided = len(left)
    rows = [_row(load, shards, piece) for piece in pieces]
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    load.state.recorder.add_rows(
        "tensor_loads",
        len(rows),
        call=load.call,
        stage="tensor_load",
        status="ok",
        model=load.model,
        source=load.read_source,
        stack=load.read_stack,
        **columns,
    )
    if not is_over:
        shards.done[: len(pieces) + len(left)] = left


def _row(load: Load, shards: Shards, piece: Piece) -> dict[str, Any]:
    key = piece.key or piece.param
    form = form_of(load, key, piece.file, piece.dtype, piece.device)
    read_at, start, end = piece.read_at, piece.start, piece.end
    is_last = piece.file is None or load.file_of.get(key) == piece.file
    is_used = piece.is_kept and is_last and piece.param not in shards.replaced
    return {
        "seq": piece.seq,
        "parent": piece.parent,
        "name": key,
        "start_ns": start - load.state.recorder.origin,
        "duration_ns": (end or read_at or start) - start,
        "thread": piece.thread,
        "key": key,
        "param": piece.param,
        "file": form.file,
        "stored_dtype": form.stored,
        "loaded_dtype": form.loaded,
        "shape": form.shape,
        "size_bytes": form.size,
        "read_ns": None if read_at is None else read_at - start,
        "cast_ns": None if end is None else end - (read_at or start),
        "mapped": form.mapped,
        "discarded": None if piece.is_kept is None else not is_used,
        "device": form.device,
        "worker": piece.thread,
        **dict(zip(("rss_bytes", "minor_faults", "major_faults"), piece.memory, strict=True)),
    }
