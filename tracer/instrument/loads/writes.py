"""Which memory torch's operators write into, whatever name they reach it by.

A tensor's version does not tell: writing through `.data` leaves it as it was. The operators
themselves do as they would without this; nothing is copied or compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tracer.recorder import Recorder


@contextmanager
def watched_writes(recorder: Recorder) -> Iterator[set[int]]:
    """Addresses of the storages that this thread's operators write into, until the block ends."""
    from torch.utils._python_dispatch import TorchDispatchMode

    written: set[int] = set()

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            with recorder.guard("writes of torch's operators"):
                for tensor in _written(func, args, kwargs or {}):
                    written.add(tensor.untyped_storage().data_ptr())
            return result

    with Watch():  # type: ignore[no-untyped-call]
        yield written


def _written(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
    """Tensors among the arguments that the operator's schema says it writes."""
    for place, argument in enumerate(function._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        for one in value if isinstance(value, list | tuple) else (value,):
            if hasattr(one, "untyped_storage") and one.device.type != "meta":
                yield one
