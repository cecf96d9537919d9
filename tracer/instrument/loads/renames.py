"""Which parameter each tensor of a checkpoint is for, by the library's own rules; nothing is read.

The same functions that a load calls are asked here, with names alone and a model on meta. Read in
transformers 5.24.0 (`convert_and_load_state_dict_in_model`, core_model_loading.py), 4.57.6 and
4.51.3 (`_load_pretrained_model`, modeling_utils.py).
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tracer.instrument.installer import release
from tracer.instrument.targets import (
    CLASS_RENAMINGS,
    FIVE,
    PASSED_OVER,
    RENAMED_CLASSES,
    RENAMING_METHOD,
    UNDIVIDED,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Renamed:
    """Where one checkpoint tensor goes.

    Attributes:
        params: Names of the parameters, mostly one; the name that was looked for where the model
            has none of it.
        pattern: Pattern of the converter that takes the tensor; None for a mere rename.
        operations: What is done with it on the way (`MergeModulelist`, ...), in order.
    """

    params: tuple[str, ...]
    pattern: str | None = None
    operations: tuple[str, ...] = ()


def renamed(model: Any, keys: Iterable[str]) -> dict[str, Renamed]:
    """Each key of a checkpoint, and the parameters that the library wants it for.

    Args:
        model: A `PreTrainedModel`, on meta or not.
        keys: Names of all tensors of the checkpoint; whether a prefix is added depends on all.
    """
    return _renamed_by_five(model, keys) if release() >= FIVE else _renamed_by_four(model, keys)


def reads_only_the_index() -> bool:
    """Whether a sharded load leaves out what a shard holds and the index does not name."""
    return release() < FIVE


def in_turn(
    model: Any, keys: Iterable[str], known: Collection[str], conversions: Iterable[Any]
) -> Iterator[tuple[str, str, str | None, Any]]:
    """Each key as generation 5 takes them up: its name; pattern and converter if it has any.

    Args:
        model: The model; asked for its prefix alone.
        keys: Names of all tensors of the checkpoint.
        known: Names of the model's parameters and persistent buffers.
        conversions: The library's renamings and converters in force.
    """
    library = importlib.import_module("transformers.core_model_loading")
    rules = list(conversions)
    renamings = [one for one in rules if isinstance(one, library.WeightRenaming)]
    converters = [one for one in rules if isinstance(one, library.WeightConverter)]
    converter_of = {pattern: one for one in converters for pattern in one.source_patterns}
    prefix, expected = model.base_model_prefix, dict.fromkeys(known, True)
    rename = library.rename_source_key
    # Some rules wait for another tensor to come first, so the library's order matters.
    for key in sorted(keys, key=library.dot_natural_key):
        name, pattern = rename(key, renamings, converters, prefix, expected)
        if name not in expected and key in expected:
            name, pattern = rename(key, [], [], prefix, expected)
        yield key, name, pattern, None if pattern is None else converter_of.get(pattern)


def _renamed_by_five(model: Any, keys: Iterable[str]) -> dict[str, Renamed]:
    rules = importlib.import_module("transformers.conversion_mapping")
    conversions = rules.get_model_conversion_mapping(model)
    found = {}
    for key, name, pattern, converter in in_turn(model, keys, model.state_dict(), conversions):
        if converter is None:
            found[key] = Renamed((name,))
            continue
        first = converter.target_patterns[0]
        names = (name.replace(first, target) for target in converter.target_patterns)
        operations = tuple(type(one).__name__ for one in converter.operations)
        found[key] = Renamed(tuple(dict.fromkeys(names)), pattern, operations)
    return found


def _renamed_by_four(model: Any, keys: Iterable[str]) -> dict[str, Renamed]:
    listed = list(keys)
    names = names_of_four(model, listed)
    # What lies outside the base model that is loaded is left out there.
    return {key: Renamed((names.get(key, key),)) for key in listed}


def names_of_four(
    model: Any, keys: Collection[str], key_mapping: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Each key, to the name that generation 4 gives it; prefixes as its loader decides."""
    prefix = model.base_model_prefix
    has_prefix = bool(prefix) and any(key.startswith(prefix) for key in keys)
    expects_prefix = bool(prefix) and hasattr(model, prefix)
    found: dict[str, str] = getattr(model, RENAMING_METHOD)(
        list(keys),
        key_mapping or _class_renamings(model),
        has_prefix and not expects_prefix,
        expects_prefix and not has_prefix,
    )
    return found


def _class_renamings(model: Any) -> dict[str, str] | None:
    """Patterns of the class; only of the classes that the loader names it looks at them."""
    library = importlib.import_module("transformers.modeling_utils")
    known = getattr(library, RENAMED_CLASSES, ())
    classes = [one.__name__.lower() for one in type(model).__mro__[:-1]]
    if any(name in one for name in known for one in classes):
        return getattr(model, CLASS_RENAMINGS, None)
    return None


def passed_over(model: Any) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """Names that this class lets be missing, and names that it lets be unexpected."""
    return may_be_missing(model), _pattern(model, PASSED_OVER[1], _moved_buffers(model))


def may_be_missing(model: Any) -> re.Pattern[str] | None:
    """Names that this class expects in no file, such as tables of sines."""
    return _pattern(model, PASSED_OVER[0])


def _pattern(model: Any, attribute: str, more: Iterable[str] = ()) -> re.Pattern[str] | None:
    named = "|".join(f"({one})" for one in (*(getattr(model, attribute, None) or ()), *more))
    return re.compile(named) if named else None


def _moved_buffers(model: Any) -> list[str]:
    """Buffers of old files that models compute themselves by now, elsewhere.

    `_adjust_missing_and_unexpected_keys` (5.24.0), `_load_pretrained_model` (4.51.3 and 4.57.6).
    """
    buffers = [name for name, _ in model.named_buffers()]
    patterns = []
    if any(name.endswith("rotary_emb.inv_freq") for name in buffers):
        patterns.append(r"rotary_emb\.inv_freq")
    if release() >= FIVE and any(name.endswith("position_ids") for name in buffers):
        patterns.append(r"(^|\.)position_ids$")
    return patterns


def undivided_modules(model: Any) -> list[str]:
    """Classes of modules that a device map does not divide."""
    return list(getattr(model, UNDIVIDED, None) or ())
