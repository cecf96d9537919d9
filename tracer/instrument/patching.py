"""Place one attribute and take it away again. Knows no library.

The raw attribute is read from the owner's own `__dict__`, so a classmethod stays a descriptor; what
was inherited is undone by deleting. A stranger's patch over ours is left where it is.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, Protocol

_ABSENT: Final = object()
_BEFORE: Final = object()
_CALLED: Final = object()
"""In the place of an observed call's result: it has not begun, or goes on."""


class Observation(Protocol):
    """One observed call: possibly other arguments, and what to do as it begins and ends."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def begin(self) -> None:
        """The call begins; whatever happens from here on, its end is told."""

    def end(self, result: Any, error: BaseException | None) -> Any:
        """The call returned `result` or raised `error`; gives what the caller gets.

        An interrupt may come out of `begin`, or of this itself: then it is told once more, of that.
        """


Begin = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Observation | None]
"""Asked of a call with the original function and its arguments; None leaves it unobserved."""


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A patch in place."""

    owner: Any
    attribute: str
    before: Any
    ours: Any


IsOn = Callable[[], int]
"""Whether the recording session that placed a wrapper lasts (1) or not (0); a stranger may keep
the wrapper for longer."""

Wrap = Callable[[Callable[..., Any], IsOn], Callable[..., Any]]
"""Makes the function that stands in for the original one."""

_STAND_INS: Final[weakref.WeakKeyDictionary[Any, tuple[Any, IsOn]]] = weakref.WeakKeyDictionary()
"""Each function that we put in place, to the raw attribute that it stands in for."""


def _never() -> bool:
    return False


def observing(begin: Begin, failed: Callable[[Exception], None], is_traced: IsOn = _never) -> Wrap:
    """Stand-ins that do what the original does and ask `begin` about each call.

    What goes wrong in `begin` goes to `failed`, and the call goes on unobserved. `is_traced` is
    asked first: while a compiler traces through a stand-in, it is the original and nothing else.
    """

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        # `functools.wraps` matters: generate() inspects signatures to decide what it passes.
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if is_traced():
                return original(*args, **kwargs)
            observation = None
            try:
                if is_on():
                    observation = begin(original, args, kwargs)
            except Exception as error:
                failed(error)
            if observation is None:
                return original(*args, **kwargs)
            result: Any = _BEFORE
            try:
                observation.begin()
                result = _CALLED
                result = original(*observation.args, **observation.kwargs)
                return observation.end(result, None)
            except BaseException as error:
                observation.end(None, error)
                if result is _CALLED or not isinstance(error, Exception):
                    raise
                failed(error)
            return original(*args, **kwargs) if result is _BEFORE else result

        return wrapper

    return wrap


def place(owner: Any, attribute: str, wrap: Wrap, is_on: IsOn) -> Placed:
    """Wrap an attribute of a module or class.

    Raises:
        AttributeError: neither the owner nor a base class has it.
    """
    placed = prepare(owner, attribute, wrap, is_on)
    put(placed)
    return placed


def prepare(owner: Any, attribute: str, wrap: Wrap, is_on: IsOn) -> Placed:
    """Make a patch without putting it in place; to undo it is safe before and after that.

    Raises:
        AttributeError: neither the owner nor a base class has it.
    """
    before = _without_stale(vars(owner).get(attribute, _ABSENT))
    raw = before if before is not _ABSENT else _without_stale(_inherited(owner, attribute))
    ours = _stand_in(owner, raw, lambda original: wrap(original, is_on))
    _STAND_INS[_function(ours)] = raw, is_on
    return Placed(owner, attribute, before, ours)


def put(placed: Placed) -> None:
    """Put a patch in place."""
    setattr(placed.owner, placed.attribute, placed.ours)


def _stand_in(owner: Any, raw: Any, wrapped: Callable[[Any], Callable[..., Any]]) -> Any:
    """What takes the place of a raw attribute: called, and bound to an object, as that is."""
    kind = type(raw)  # wrapt's wrappers pretend to `isinstance` that they are what they wrap
    if kind in (classmethod, staticmethod):
        return kind(wrapped(raw.__func__))
    if kind is FunctionType or not isinstance(owner, type):
        return wrapped(raw)
    if not hasattr(kind, "__get__"):  # a partial, say: called without the object
        return staticmethod(wrapped(raw))
    if isinstance(raw, staticmethod):
        return staticmethod(wrapped(raw.__get__(None, owner)))
    if isinstance(raw, classmethod):
        return classmethod(wrapped(_binding(raw, lambda to: raw.__get__(None, to))))
    return wrapped(_binding(raw, lambda to: raw.__get__(to, type(to))))


def _binding(raw: Any, bound: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """A stranger's wrapper as a function that binds it first: it may ask what it is bound to."""

    @functools.wraps(raw)
    def original(to: Any, *args: Any, **kwargs: Any) -> Any:
        return bound(to)(*args, **kwargs)

    return original


def _function(raw: Any) -> Any:
    return raw.__func__ if type(raw) in (classmethod, staticmethod) else raw


def _without_stale(raw: Any) -> Any:
    """What a stranger put back after its session's end is inert: take it off."""
    while type(function := _function(raw)) is FunctionType:
        below, is_on = _STAND_INS.get(function, (None, _never))
        if below is None or is_on():
            break
        raw = below
    return raw


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
    # Who saved a class method by name and put it back made a new descriptor of the same function.
    if _function(current) is not _function(placed.ours):
        return current is placed.before
    if placed.before is _ABSENT:
        delattr(placed.owner, placed.attribute)
    else:
        setattr(placed.owner, placed.attribute, placed.before)
    return True
