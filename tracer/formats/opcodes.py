"""A pickle read as data: strings, numbers, lists, dictionaries, tensors of torch; nothing is run.

Python's own unpickler calls what a pickle names, which is how a stranger's file runs code. Here a
named function is only a name: calls of the few that rebuild a tensor become a `Rebuilt`, all
others a blank.
"""

from __future__ import annotations

import dataclasses
import pickletools
from collections.abc import Callable
from typing import IO, Any, Final


@dataclasses.dataclass(frozen=True, slots=True)
class Storage:
    """A run of values of one kind (`FloatStorage`), by torch's key."""

    kind: str
    key: str
    values: int


@dataclasses.dataclass(frozen=True, slots=True)
class Rebuilt:
    """A tensor: how it is cut out of a storage; `offset` counts values, as torch does."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    dtype: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Name:
    """A function or class that the pickle names; it is never looked up."""

    text: str


_BLANK: Final = _Name("")
_MARK: Final = _Name("mark")
_TENSOR_MAKERS: Final = {"_rebuild_tensor", "_rebuild_tensor_v2"}
_WRAPPERS: Final = {"_rebuild_parameter", "_rebuild_parameter_with_state"}
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED: Final = {"PROTO", "FRAME", "STOP"}
_VALUES: Final = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip


def read_pickle(stream: IO[bytes], named: set[str] | None = None) -> Any:
    """Read one pickle from where the stream stands, and leave the stream behind it.

    Args:
        stream: Where the pickle is.
        named: Takes the dotted names of all classes and functions that the pickle wants.

    Raises:
        ValueError, IndexError, KeyError: the bytes are no pickle, or one with opcodes that
            torch.save does not write.
    """
    machine = _Machine()
    machine.named = set() if named is None else named
    for opcode, argument, _ in pickletools.genops(stream):
        machine.step(opcode.name, argument)
    return machine.stack[-1]


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.named: set[str] = set()

    def step(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self.stack.append(tuple(self.pop(_TUPLES[name])))
        elif name not in _IGNORED:
            action = _ACTIONS.get(name)
            if action is None:
                raise ValueError(f"opcode {name} is none that torch.save writes")
            action(self, argument)

    def pop(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise IndexError("the pickle takes more than it has given")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def pop_to_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError("the pickle takes more than it has given")
        taken = self.stack[place + 1 :]
        del self.stack[place:]
        return taken

    def put(self, argument: Any) -> None:
        self.memo[len(self.memo) if argument is None else int(argument)] = self.stack[-1]

    def get(self, argument: Any) -> None:
        self.stack.append(self.memo[int(argument)])

    def name(self, argument: Any) -> None:
        # GLOBAL gives module and name in one text, STACK_GLOBAL takes both from the stack.
        parts = str(argument).split() if argument is not None else [str(one) for one in self.pop(2)]
        self.named.add(".".join(parts))
        self.stack.append(_Name(parts[-1]))

    def call(self, _: Any) -> None:
        function, arguments = self.pop(2)
        self.stack.append(_called(function, arguments))

    def storage(self, _: Any) -> None:
        (identity,) = self.pop(1)
        if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage":
            raise ValueError("a persistent id is no storage of torch")
        _, kind, key, _, values = identity[:5]
        if not isinstance(kind, _Name) or type(values) is not int:
            raise ValueError("a storage has no kind or no length")
        self.stack.append(Storage(kind.text, str(key), values))

    def append_one(self, _: Any) -> None:
        self.extend(self.pop(1))

    def append_many(self, _: Any) -> None:
        self.extend(self.pop_to_mark())

    def extend(self, values: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(values)

    def set_one(self, _: Any) -> None:
        self.update(self.pop(2))

    def set_many(self, _: Any) -> None:
        self.update(self.pop_to_mark())

    def update(self, pairs: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            return
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            # Of a state dict every key is text; hashing anything else may never end.
            if isinstance(key, str):
                self.stack[-1][key] = value

    def build(self, _: Any) -> None:
        self.pop(1)  # attributes: of an ordered state dict its versions

    def new_object(self, _: Any) -> None:
        self.pop(2)
        self.stack.append(_BLANK)


def _called(function: Any, arguments: Any) -> Any:
    name = function.text if isinstance(function, _Name) else ""
    arguments = arguments if isinstance(arguments, tuple) else ()
    if name in _TENSOR_MAKERS and len(arguments) >= 3:
        return _rebuilt(arguments, None)
    if name == "_rebuild_tensor_v3" and len(arguments) >= 7:
        dtype = arguments[6]
        return _rebuilt(arguments, dtype.text if isinstance(dtype, _Name) else None)
    if name in _WRAPPERS and arguments:
        return arguments[0]
    return {} if name == "OrderedDict" else _BLANK


def _rebuilt(arguments: tuple[Any, ...], dtype: str | None) -> Rebuilt:
    storage, offset, shape = arguments[:3]
    is_whole = isinstance(storage, Storage) and type(offset) is int and isinstance(shape, tuple)
    if not is_whole or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("a tensor has no storage, offset or shape")
    return Rebuilt(storage, offset, shape, dtype)


_ACTIONS: Final[dict[str, Callable[[_Machine, Any], None]]] = {
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "EMPTY_SET": lambda machine, _: machine.stack.append([]),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "LIST": lambda machine, _: machine.stack.append(machine.pop_to_mark()),
    "DICT": lambda machine, _: machine.stack.append(_plain_dict(machine.pop_to_mark())),
    "POP": lambda machine, _: machine.stack.pop() and None,
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.new_object,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.storage,
    "APPEND": _Machine.append_one,
    "APPENDS": _Machine.append_many,
    "ADDITEMS": _Machine.append_many,
    "SETITEM": _Machine.set_one,
    "SETITEMS": _Machine.set_many,
}


def _plain_dict(pairs: list[Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in zip(pairs[::2], pairs[1::2], strict=True)
        if isinstance(key, str)
    }
