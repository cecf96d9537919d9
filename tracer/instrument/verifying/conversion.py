"""What each parameter should hold: sources renamed, cast and converted as the library does it.

The library's own renamings and converters are applied again, one parameter at a time; which name
goes where is asked of the library, never listed here. Read in transformers 5.24.0,
core_model_loading.py, and 4.57.6 and 4.51.3, modeling_utils.py.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tracer.instrument.installer import release
from tracer.instrument.loads.renames import in_turn, names_of_four
from tracer.instrument.targets import FIVE, USED_CONVERSIONS

Read = Callable[[str, Any], Any]
"""A source by name, cast to a dtype; left as it is where that is None."""


@dataclasses.dataclass(slots=True)
class Group:
    """Sources that become one parameter or, where the library splits them, several.

    Attributes:
        param: The parameter; of several the first.
        keys: The sources, in the order in which the library takes them up.
        converter: The library's, with its operations; None for a mere renaming.
        is_cast: Whether sources are cast before they are converted, as in most loads; what a
            quantiser unpacks is not.
    """

    param: str
    keys: list[str] = dataclasses.field(default_factory=list)
    patterns: list[str] = dataclasses.field(default_factory=list)
    converter: Any = None
    is_cast: bool = True

    @property
    def operations(self) -> list[str]:
        """Names of the operations."""
        steps = getattr(self.converter, "operations", None) or []
        return [type(step).__name__ for step in steps]

    def targets(self) -> set[str]:
        """Parameters that it is for, as far as names tell before anything is converted."""
        patterns = getattr(self.converter, "target_patterns", None) or [self.param]
        return {self.param, *(self.param.replace(patterns[0], one) for one in patterns)}

    def values(self, model: Any, read: Read, dtype: Any) -> dict[str, Any]:
        """Each parameter, to what it should hold; sources are cast first, as in most loads."""
        wanted = dtype if self.is_cast else None
        if self.converter is None:
            return {self.param: read(self.keys[0], wanted)}
        converter = copy.deepcopy(self.converter)
        for pattern, key in zip(self.patterns, self.keys, strict=True):
            # What is callable is called when the conversion comes to it.
            converter.add_tensor(self.param, key, pattern, lambda key=key: read(key, wanted))
        found = converter.convert(self.param, model=model, config=model.config)
        return {name: one[0] if isinstance(one, list) else one for name, one in found.items()}


def planned(
    model: Any,
    names: Collection[str],
    keys: Collection[str],
    key_mapping: Mapping[str, str] | None = None,
) -> list[Group]:
    """Which sources the library takes for which of the model's names.

    Args:
        model: The model; it is asked for its renamings and left as it is.
        names: Its parameters and persistent buffers.
        keys: The sources.
        key_mapping: What the user gave `from_pretrained` under this name; in generation 5 a model
            remembers it.
    """
    if release() < FIVE:
        return renamed(names_of_four(model, keys, key_mapping), names)
    return _planned_in_five(model, names, keys, key_mapping)


def given(
    model: Any,
    names: Collection[str],
    keys: Collection[str],
    conversions: list[Any],
    *,
    are_cast: bool = True,
) -> list[Group]:
    """As `planned`, by conversions of the library that are known: of the load, or of a GGUF file.

    Sources of a GGUF file cast by themselves (`are_cast` is False).
    """
    groups = _collected(model, names, keys, copy.deepcopy(conversions))
    for group in groups:
        group.is_cast = group.is_cast and are_cast
    return groups


def renamed(renamings: Mapping[str, str], names: Collection[str]) -> list[Group]:
    """Groups of one source each, where sources are renamed and nothing else."""
    # Of two sources for one name generation 4 takes the later, as turning its dict round does.
    last = {name: key for key, name in renamings.items() if name in names}
    return [Group(name, [key]) for name, key in last.items()]


def _planned_in_five(
    model: Any,
    names: Collection[str],
    keys: Collection[str],
    key_mapping: Mapping[str, str] | None,
) -> list[Group]:
    mapping = importlib.import_module("transformers.conversion_mapping")
    used = getattr(model, USED_CONVERSIONS, None)
    found = None if used is None else _collected(model, names, keys, copy.deepcopy(used))
    if found is not None and _covered(found, names) == len(names):
        return found
    # Made in another way, or loaded from another folder whose names needed no conversion.
    known = _collected(model, names, keys, mapping.get_model_conversion_mapping(model, key_mapping))
    if found is None or _covered(known, names) > _covered(found, names):
        return known
    return found


def _covered(groups: list[Group], names: Collection[str]) -> int:
    return len({name for group in groups for name in group.targets() if name in names})


def _collected(
    model: Any, names: Collection[str], keys: Collection[str], conversions: list[Any]
) -> list[Group]:
    """The names of a load, gone through as `convert_and_load_state_dict_in_model` does."""
    known = set(names)
    groups: dict[str, Group] = {}
    for key, name, pattern, converter in in_turn(model, keys, names, conversions):
        if name in known:
            is_cast = not any(map(_is_of_a_quantiser, getattr(converter, "operations", ())))
            group = groups.setdefault(name, Group(name, converter=converter, is_cast=is_cast))
            group.keys.append(key)
            group.patterns.append(pattern or key)
    return list(groups.values())


def _is_of_a_quantiser(operation: Any) -> bool:
    """Whether it takes what is stored as it is (`get_new_dtype`, quantizers/base.py, 5.24)."""
    return getattr(operation, "hf_quantizer", None) is not None
