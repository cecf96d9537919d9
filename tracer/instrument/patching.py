"""Place one attribute and take it away again. Knows no library.

The raw attribute is read from the owner's own `__dict__`, so a classmethod stays a descriptor; what
was inherited is undone by deleting. A stranger's patch over ours is left where it is.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Final, Protocol

_ABSENT: Final = object()


class Observation(Protocol):
    """One observed call: possibly other arguments, and what to do when it ended."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def end(self, result: Any, error: BaseException | None) -> None:
        """The call returned `result` or raised `error`."""


Begin = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Observation | None]
"""Told of a call with the original function and its arguments; None leaves it unobserved."""


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A patch in place."""

    owner: Any
    attribute: str
    before: Any
    ours: Any


IsOn = Callable[[], bool]
"""Whether the recording session that placed a wrapper lasts; a stranger may keep it for longer."""

Wrap = Callable[[Callable[..., Any], IsOn], Callable[..., Any]]
"""Makes the function that stands in for the original one."""


def observing(begin: Begin) -> Wrap:
    """Stand-ins that do what the original does and tell `begin` about each call."""

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        # `functools.wraps` matters: generate() inspects signatures to decide what it passes.
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            observation = begin(original, args, kwargs) if is_on() else None
            if observation is None:
                return original(*args, **kwargs)
            try:
                result = original(*observation.args, **observation.kwargs)
            except BaseException as error:
                observation.end(None, error)
                raise
            observation.end(result, None)
            return result

        return wrapper

    return wrap


def place(owner: Any, attribute: str, wrap: Wrap, is_on: IsOn) -> Placed:
    """Wrap an attribute of a module or class.

    Raises:
        AttributeError: neither the owner nor a base class has it.
    """
    before = vars(owner).get(attribute, _ABSENT)
    raw = before if before is not _ABSENT else _inherited(owner, attribute)
    ours: Any
    if isinstance(raw, classmethod | staticmethod):
        ours = type(raw)(wrap(raw.__func__, is_on))
    else:
        ours = wrap(raw, is_on)
    setattr(owner, attribute, ours)
    return Placed(owner, attribute, before, ours)


def _inherited(owner: Any, attribute: str) -> Any:
    for base in getattr(owner, "__mro__", ())[1:]:
        if attribute in vars(base):
            return vars(base)[attribute]
    raise AttributeError(f"{owner!r} has no attribute {attribute!r}")


def undo(placed: Placed) -> bool:
    """Take a patch away.

    Returns:
        False when a stranger had replaced it meanwhile: theirs stays, ours under it is inert.
    """
    current = vars(placed.owner).get(placed.attribute, _ABSENT)
    if current is not placed.ours:
        return current is placed.before
    if placed.before is _ABSENT:
        delattr(placed.owner, placed.attribute)
    else:
        setattr(placed.owner, placed.attribute, placed.before)
    return True
