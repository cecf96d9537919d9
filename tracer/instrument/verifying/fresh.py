"""The model's class built anew without weights: fresh buffers, and which names share a parameter.

Parameters are on meta, so this costs hardly any memory; buffers are real. The random generators
are what they were afterwards. Used to verify a model that is loaded.
"""

from __future__ import annotations

import copy
import importlib
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tracer.instrument import building
from tracer.instrument.loads.named_tensors import named_tensors

BUSY: Final = "its class was not built anew: another thread was loading, and shares what that sets"


class BusyError(Exception):
    """A class can't be built now without a part in what another thread does."""


def built(model: Any) -> Any:
    """A model of the same class and configuration, its parameters on meta.

    Raises:
        BusyError: another thread loads: what it has changed in the process would show in here.
        Exception: whatever the class raises while it builds itself.
    """
    import torch

    config = copy.deepcopy(model.config)
    with building.LOCK, _same_randomness(), warnings.catch_warnings():
        if building.others_load():
            raise BusyError
        warnings.simplefilter("ignore")
        dtype = building.default_dtype(dtype_of(model))
        with dtype, torch.device("cpu"), building.parameters_on_meta():
            fresh = type(model)(config)
        fresh.tie_weights()  # each name was given a parameter of its own on the way to meta
    return fresh


def buffers(model: Any) -> dict[str, Any]:
    """Buffers of a fresh model, by name."""
    return {
        each.name: each.tensor
        for each in named_tensors(model)
        if each.kind == "buffer" and each.tensor.device.type != "meta"
    }


def dtype_of(model: Any) -> Any:
    """The dtype that the library sets as default while it builds a class to load into."""
    torch = sys.modules["torch"]
    held = vars(model.config)
    dtype = held.get("dtype") or held.get("torch_dtype") or getattr(model, "dtype", None)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype, None)
    return dtype if isinstance(dtype, torch.dtype) and dtype.is_floating_point else torch.float32


@contextmanager
def _same_randomness() -> Iterator[None]:
    """Put every random generator back that a class may draw from while it builds itself."""
    torch = sys.modules["torch"]
    numpy = importlib.import_module("numpy")
    python, arrays, tensors = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    # Where nothing has run on a device yet, asking for its generators would wake it up.
    is_awake = torch.cuda.is_available() and torch.cuda.is_initialized()
    devices = torch.cuda.get_rng_state_all() if is_awake else None
    try:
        yield
    finally:
        random.setstate(python)
        numpy.random.set_state(arrays)
        torch.set_rng_state(tensors)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
