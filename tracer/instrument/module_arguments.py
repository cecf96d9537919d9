"""What a module was given and made, argument by argument: classes and shapes, as plain values.

Too long for the hot hooks: `module_hooks` asks once for each place that a module is called from.
Keeps no tensor and reads no value of one.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

import torch

from tracer.instrument import measure

_MOST: Final = 8
"""Parts of a tuple or output that are told one by one; a tuple of all layers has many more."""
_DEPTH: Final = 2


def describe(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Each argument by the name that the module's forward has for it, in the order given."""
    kind: Any = type(module)
    names, told = _names(kind), {}
    for place, value in enumerate(args):
        name = names[place] if place < len(names) else f"*{place}"
        told[name] = {"given": "by position"} | of(value)
    for name, value in kwargs.items():
        told[name] = {"given": "by keyword"} | of(value)
    return told


@functools.lru_cache(maxsize=512)
def _names(kind: type) -> tuple[str, ...]:
    """Names of a forward's positional parameters; what it hands on unnamed has none."""
    try:
        parameters = list(inspect.signature(kind.forward).parameters.values())  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(one.name for one in parameters[1:] if one.kind in positional)


def of(value: Any, depth: int = 0) -> dict[str, Any]:
    """Class of a value, with shape and dtype of a tensor, parts of what holds several, or itself.

    Text is the user's own and stays out, as is whatever else is no number.
    """
    if isinstance(value, torch.Tensor):  # first, since most are
        dtype = measure.dtype_name(value.dtype)
        return {"class": type(value).__name__, "shape": list(value.shape), "dtype": dtype}
    if value is None or isinstance(value, bool | int | float):
        return {"value": value}
    told: dict[str, Any] = {"class": type(value).__name__}
    if depth < _DEPTH and isinstance(value, list | tuple):
        told |= {"length": len(value), "parts": [of(one, depth + 1) for one in value[:_MOST]]}
    elif depth < _DEPTH and isinstance(value, dict):
        items = list(value.items())[:_MOST]
        parts = {str(name): of(one, depth + 1) for name, one in items}
        told |= {"length": len(value), "parts": parts}
    return told
