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
from typing import Any

from tracer.instrument.loads.named_tensors import named_tensors


def built(model: Any) -> Any:
    """A model of the same class and configuration, its parameters on meta.

    Raises:
        Exception: whatever the class raises while it builds itself.
    """
    import torch
    from accelerate import init_empty_weights

    config = copy.deepcopy(model.config)
    with _same_randomness(), _default_dtype(dtype_of(model)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.device("cpu"), init_empty_weights(include_buffers=False):
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
def _default_dtype(dtype: Any) -> Iterator[None]:
    torch = sys.modules["torch"]
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


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
