"""Weights that a quantiser keeps: compared, part by part, with what it makes of the files anew.

The library's own operations are applied once more, to a model of the same class on meta that the
quantiser has prepared. Never to the live one: such operations set what they make in the model that
they are handed (5.24.0, integrations/ of each quantiser). In generation 4 a quantiser has none.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, LATE_FOUR, QUANTISER
from tracer.instrument.verifying import differences, fresh
from tracer.instrument.verifying.conversion import Group, Read


class Workshop:
    """Makes what a kept quantiser made."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @functools.cached_property
    def _quantiser(self) -> Any:
        return copy.deepcopy(getattr(self._model, QUANTISER))

    @functools.cached_property
    def _prepared(self) -> Any:
        """The class anew, its modules replaced as they are before a load; parameters on meta."""
        anew = fresh.built(self._model)
        given: dict[str, Any] = {"device_map": None, "checkpoint_files": None}
        if release() < FIVE:
            fixed = getattr(anew, "_keep_in_fp32_modules", None)
            given |= {"config": anew.config, "keep_in_fp32_modules": fixed}
        else:
            given["dtype"] = fresh.dtype_of(self._model)
        self._quantiser.preprocess_model(model=anew, **given)
        return anew

    def takes(self, group: Group) -> bool:
        """Whether the quantiser has a part in a parameter; it may fail to say."""
        return not group.is_cast or self.makes(group.param)

    def makes(self, param: str) -> bool:
        """Whether the quantiser makes a parameter of plain values."""
        if self._quantiser.pre_quantized:
            return False
        if release() >= LATE_FOUR:
            return bool(self._quantiser.param_needs_quantization(self._prepared, param))
        needs = self._quantiser.requires_parameters_quantization
        meta = self._prepared.get_parameter_or_buffer(param)
        device = self._device_of(param)
        return needs and bool(
            self._quantiser.check_quantized_param(
                self._prepared, meta, param, {}, param_device=device, device_map=None
            )
        )

    def values(self, group: Group, read: Read) -> dict[str, Any]:
        """Each parameter of a group, to what it should be, in whatever form.

        Raises:
            Exception: whatever the quantiser raises.
        """
        if release() < FIVE:
            return {group.param: self._made_in_four(group, read)}
        found = group.values(self._prepared, read, fresh.dtype_of(self._model))
        if not self.makes(group.param):
            return found
        made: dict[str, Any] = self._quantiser.get_quantize_ops().convert(
            {name: [value] for name, value in found.items()},
            source_patterns=group.patterns,
            target_patterns=[group.param],
            full_layer_name=group.param,
            model=self._prepared,
            config=self._model.config,
            missing_keys=set(),
        )
        # Some set what they made, and give nothing.
        return made or {group.param: self._prepared.get_parameter_or_buffer(group.param)}

    def _made_in_four(self, group: Group, read: Read) -> Any:
        dtype = getattr(self._model.config, "_pre_quantization_dtype", None)
        value, param = read(group.keys[0], dtype), group.param
        # State dict and unexpected names.
        rest: tuple[Any, ...] = (
            ({}, []) if release() < LATE_FOUR else ()
        )  # state dict and unexpected names
        device = self._device_of(param)
        self._quantiser.create_quantized_param(self._prepared, value, param, device, *rest)
        return self._prepared.get_parameter_or_buffer(param)

    def _device_of(self, param: str) -> Any:
        return self._model.get_parameter_or_buffer(param).device


def unlike(live: Any, made: Any) -> str | None:
    """What is wrong with a weight in a quantiser's form; None where every part is the same."""
    mine, theirs = dict(_parts(live)), dict(_parts(made))
    if mine.keys() != theirs.keys() or type(live) is not type(made):
        return f"is a {type(live).__name__} of {_named(mine)}, not a {type(made).__name__} of "\
            f"{_named(theirs)}"  # fmt: skip
    for name, part in mine.items():
        if not differences.is_same(part, theirs[name]):
            told = differences.told(part, theirs[name], "what the quantiser makes of its source")
            return f"{name or 'its data'} {told}"
    return None


def _named(parts: Mapping[str, Any]) -> str:
    return ", ".join(name or "data" for name in parts)


def _parts(tensor: Any, depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Plain tensors on the CPU that a weight consists of, by the names of its attributes."""
    torch = sys.modules["torch"]
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        held = {name: getattr(tensor, name) for name in flatten()[0]}
    else:
        if isinstance(tensor, torch.Tensor):
            yield "", tensor.detach().as_subclass(torch.Tensor).to("cpu")
        package = type(tensor).__module__.partition(".")[0]
        held = {name: one for name, one in sorted(getattr(tensor, "__dict__", {}).items())
                if isinstance(one, torch.Tensor) or _is_of(one, package)}  # fmt: skip
    for name, one in held.items() if depth else ():
        for inner, part in _parts(one, depth - 1):
            yield f"{name}.{inner}".rstrip("."), part


def _is_of(value: Any, package: str) -> bool:
    """Whether it is a part that the weight's own package made, such as scales of several kinds."""
    is_module = isinstance(value, sys.modules["torch"].nn.Module)
    return not is_module and type(value).__module__.partition(".")[0] == package
