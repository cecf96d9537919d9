"""Single tensors on their way from file to parameter in generation 4: in turn, a shard at a time.

There the slice of a file is read, cast and set by one thread (`_load_state_dict_into_meta_model`,
modeling_utils.py, 4.51.3 and 4.57.6). Only the read stands in a call that can be observed, so what
lies between it and the setting is told as the cast: derived, not measured. Of tensors that come
whole (a `.bin`, GGUF, the user's own) no read is seen at all.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from typing import Any

from tracer.instrument import measure
from tracer.instrument.loads import extremes, shard_rows
from tracer.instrument.loads.load_notes import BATCH, Load
from tracer.instrument.loads.reads import faults_since
from tracer.instrument.loads.seen import Seen, told
from tracer.instrument.memory import resident_now


@dataclasses.dataclass(slots=True)
class Piece:
    """One tensor whose turn has come; times on the recorder's clock, None until they are known."""

    seq: int
    parent: int
    param: str
    key: str | None
    file: str | None
    start: int
    dtype: Any
    thread: str
    read_at: int | None = None
    faults: tuple[int, int] | None = None
    end: int | None = None
    device: Any = None
    is_kept: bool | None = None
    memory: tuple[int | None, int | None, int | None] = (None, None, None)
    before: extremes.Extremes | None = None


@dataclasses.dataclass(slots=True)
class Shards:
    """What a load of generation 4 tells on its way. Holds names and numbers, no tensor."""

    root: int
    """Identity of the model; of a base model's file, a part of it is what is loaded."""
    prefix: str
    real: frozenset[str]
    """What had values as soon as it was built: all buffers, no parameter."""
    passing: frozenset[str]
    """Buffers that no state dict holds."""
    asked: frozenset[str] = frozenset()
    key_of: dict[str, str] = dataclasses.field(default_factory=dict)
    whole_file: str | None = None
    waiting: dict[str, int] = dataclasses.field(default_factory=dict)
    filled: set[str] = dataclasses.field(default_factory=set)
    reading: dict[int, Shard] = dataclasses.field(default_factory=dict)
    done: list[Piece] = dataclasses.field(default_factory=list)
    read: set[tuple[str | None, str | None]] = dataclasses.field(default_factory=set)
    addresses: dict[str, int] = dataclasses.field(default_factory=dict)
    left_in_file: set[str] = dataclasses.field(default_factory=set)
    undecided: set[str] = dataclasses.field(default_factory=set)
    """Parameters that are set twice (under two names, out of two files): the end shows whose
    values stay."""
    left_undecided: int = 0  # pieces, when rows were last written
    tied: dict[str, str] = dataclasses.field(default_factory=dict)
    replaced: set[str] = dataclasses.field(default_factory=set)
    is_set: bool = False
    quantised: set[str] = dataclasses.field(default_factory=set)
    """Tensors that a quantiser took."""

    @property
    def are_many_done(self) -> bool:
        """Whether to write rows: each time all pieces are looked at, the undecided ones again."""
        return len(self.done) - self.left_undecided >= max(BATCH, self.left_undecided // 4)


class Shard:
    """One file (or what came whole) whose tensors are set in turn by one thread."""

    def __init__(self, load: Load, shards: Shards, seq: int, file: str | None) -> None:
        self.load = load
        self.shards = shards
        self.seq = seq
        self.file = file
        self.prefix = ""
        self.is_cut = False  # tensor parallel: of a tensor this rank's part is read
        self.is_quantised = False
        self.piece: Piece | None = None

    def begin(self, param: str, dtype: Any, now: int) -> Piece:
        """The next tensor's turn has come; the one before, if it was not set, never will be."""
        self.drop()
        self.piece = Piece(
            self.load.state.recorder.next_seq(),
            self.seq,
            param,
            self.shards.key_of.get(param),
            self.file,
            now,
            dtype,
            threading.current_thread().name,
        )
        return self.piece

    def count(self, piece: Piece, tensor: Any) -> None:
        """With `values`: look at a tensor before its cast; the time is no part of the read's."""
        load = self.load
        if load.state.recorder.options.values:
            with load.state.own_time(), load.state.recorder.guard("values before a cast"):
                began = load.state.recorder.clock()
                piece.before = extremes.before_cast(load, tensor, piece.dtype)
                spent = load.state.recorder.clock() - began
                piece.start += spent
                piece.read_at = None if piece.read_at is None else piece.read_at + spent

    def keep(self, now: int, tensor: Any) -> Piece | None:
        """The tensor is about to be set."""
        piece = self.piece
        if piece is not None:
            piece.end = now
            piece.dtype, piece.device = tensor.dtype, tensor.device
            if piece.key is not None:
                extremes.after_cast(self.load, piece.key, piece.before, tensor)
            piece.is_kept = piece.param not in self.shards.passing
            if piece.is_kept:
                self.load.placed.add(piece.param)
            if piece.key is not None and self.file is not None:
                self.load.file_of[piece.key] = self.file
            self._end(piece)
        return piece

    def drop(self) -> None:
        """Nothing more will happen to the current tensor: it was read in vain."""
        if self.piece is not None:
            self.piece.is_kept = None if self.is_quantised else False
            self._end(self.piece)
        self.piece = None

    def _end(self, piece: Piece) -> None:
        self.piece = None
        now = self.load.state.recorder.clock()
        faults = (None, None) if piece.faults is None else faults_since(piece.faults)
        piece.memory = (resident_now(self.load, now), *faults)
        self.shards.read.add((piece.file, piece.key))
        self.shards.done.append(piece)

    def remember_place(self) -> None:
        """Once a load: the library's own line that reads."""
        if self.load.read_stack is None:
            self.load.read_stack = self.load.state.recorder.places.stack(sys._getframe())


class TimedFile:
    """Stands in for an open safetensors file while its tensors are set: times its slices."""

    __slots__ = ("_inner", "_shard")

    def __init__(self, inner: Any, shard: Shard) -> None:
        self._inner = inner
        self._shard = shard

    def get_slice(self, key: str) -> Any:
        """A slice of a tensor; nothing is read until it is indexed."""
        return _TimedSlice(self._inner.get_slice(key), self._shard)

    def __enter__(self) -> TimedFile:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._inner.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _TimedSlice:
    """Notes when the bytes were asked for and when they were there."""

    __slots__ = ("_inner", "_shard")

    def __init__(self, inner: Any, shard: Shard) -> None:
        self._inner = inner
        self._shard = shard

    def __getitem__(self, index: Any) -> Any:
        piece = self._shard.piece
        if piece is None:
            return self._inner[index]
        clock = self._shard.load.state.recorder.clock
        self._shard.remember_place()
        if piece.read_at is None:  # the first part of several
            piece.faults = measure.thread_faults()
            piece.start = clock()
        tensor = self._inner[index]
        piece.read_at = clock()
        if self._shard.is_cut and piece.key is not None:
            self._shard.load.cut_parts[piece.key] = tuple(tensor.shape)
        self._shard.count(piece, tensor)
        return tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def current(load: Load | None) -> Shard | None:
    """The shard whose tensors this thread sets now."""
    shards = None if load is None else load.shards
    return None if shards is None else shards.reading.get(threading.get_ident())


@told
def begun(load: Load, seen: Seen) -> None:
    """`_infer_parameter_dtype`: the next tensor's dtype is decided; nothing is read yet."""
    shard = current(load)
    if shard is None:
        return
    stored = seen.argument(2, "empty_param")
    piece = shard.begin(
        shard.prefix + seen.argument(1, "param_name"), seen.result[1] or stored.dtype, seen.end
    )
    if stored.device.type != "meta" and piece.key is not None:
        shard.remember_place()
        shard.count(piece, stored)
        load.given[piece.key] = (
            measure.shape_of(stored),
            measure.dtype_name(stored.dtype),
            measure.size_of(stored),
        )


@told
def placed(load: Load, seen: Seen) -> None:
    """`_load_parameter_into_model`: a finished tensor becomes a parameter.

    Outside a shard it gives memory to what no file holds.
    """
    shard = current(load)
    tensor = seen.argument(2, "tensor")
    piece = None if shard is None else shard.keep(seen.start, tensor)
    if shard is None or piece is None:
        return
    shard.shards.addresses[piece.param] = tensor.data_ptr()
    load.note_placing(piece.param, seen.end - seen.start)
    if threading.get_ident() == load.state.ident and shard.shards.are_many_done:
        shard_rows.write(load, is_over=False)
        load.state.recorder.flush_if_due(load.state)


@told
def offloaded(load: Load, seen: Seen) -> None:
    """`offload_weight`: a tensor goes to a file of the offload folder."""
    shard = current(load)
    piece = None if shard is None else shard.keep(seen.start, seen.argument(0, "weight"))
    if piece is not None:
        load.note_placing(piece.param, seen.end - seen.start)


@told
def quantised(load: Load, seen: Seen) -> None:
    """`create_quantized_param`: a quantiser takes a tensor, and sets what it makes of it.

    Some set the plain tensor first, as any other is set.
    """
    shard = current(load)
    if shard is None:
        return
    piece = shard.keep(seen.start, seen.argument(2, "param_value"))
    if piece is not None:
        load.note_placing(piece.param, seen.end - seen.start)
    key = shard.shards.key_of.get(shard.prefix + seen.argument(3, "param_name"))
    if key is not None:
        shard.shards.quantised.add(key)
        if key in load.plans:
            load.plans[key].operations = [type(seen.args[0]).__name__]


@told
def distributed(load: Load, seen: Seen) -> None:
    """`shard_and_distribute_module`: a part of a tensor is read, cast and set, all in there.

    So its cast goes on until it is set.
    """
    shard = current(load)
    if shard is not None:
        shard.keep(seen.end, seen.result)
