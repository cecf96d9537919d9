"""Which parameter each tensor of a checkpoint is for, by the library's own rules; nothing is read.

The same functions that a load calls are asked here, with names alone and a model on meta. Read in
transformers 5.24.0 (`convert_and_load_state_dict_in_model`, core_model_loading.py), 4.57.6 and
4.51.3 (`_load_pretrained_model`, modeling_utils.py).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tracer.instrument.installer import release
from tracer.instrument.targets import (
    CLASS_RENAMINGS,
    FIVE,
    PASSED_OVER,
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


def _renamed_by_five(model: Any, keys: Iterable[str]) -> dict[str, Renamed]:
    from transformers import conversion_mapping, core_model_loading

    rules = conversion_mapping.get_model_conversion_mapping(model)
    converters = [one for one in rules if isinstance(one, core_model_loading.WeightConverter)]
    renamings = [one for one in rules if isinstance(one, core_model_loading.WeightRenaming)]
    by_pattern = {pattern: one for one in converters for pattern in one.source_patterns}
    prefix, expected = model.base_model_prefix, model.state_dict()
    rename = core_model_loading.rename_source_key
    found = {}
    # Some rules wait for another tensor to come first, so the library's order matters.
    for key in sorted(keys, key=core_model_loading.dot_natural_key):
        name, pattern = rename(key, renamings, converters, prefix, expected)
        if name not in expected and key in expected:
            name, pattern = rename(key, [], [], prefix, expected)
        converter = by_pattern.get(pattern) if pattern is not None else None
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
    prefix = model.base_model_prefix
    has_prefix = bool(prefix) and any(key.startswith(prefix) for key in listed)
    expects_prefix = bool(prefix) and hasattr(model, prefix)
    names: Mapping[str, str] = getattr(model, RENAMING_METHOD)(
        listed,
        getattr(type(model), CLASS_RENAMINGS, None) or None,
        has_prefix and not expects_prefix,
        expects_prefix and not has_prefix,
    )
    # What lies outside the base model that is loaded is left out there.
    return {key: Renamed((names.get(key, key),)) for key in listed}


def passed_over(model: Any) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """Names that this class lets be missing, and names that it lets be unexpected."""
    absent, extra = (
        "|".join(f"({one})" for one in (*(getattr(model, name, None) or ()), *more))
        for name, more in zip(PASSED_OVER, ((), _moved_buffers(model)), strict=True)
    )
    return re.compile(absent) if absent else None, re.compile(extra) if extra else None


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
