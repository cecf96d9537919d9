"""The conversions of a checkpoint that is stored quantised and was unpacked as it was loaded.

A model that is unpacked forgets its quantiser and what that did (`remove_quantization_config`,
quantizers/base.py, 5.24), so the library is asked again, by the settings of the configuration that
lies beside the weights. Generation 4 has no such conversions: there blocks of four bits alone are
unpacked, by the function that the library's own quantiser calls (integrations/mxfp4.py, 4.57.6).
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, QUANTISER, QUANTISERS
from tracer.instrument.verifying.conversion import Group, Read

_FOUR_BITS: Final = "transformers.integrations.mxfp4"


@dataclasses.dataclass(slots=True)
class FourBits(Group):
    """A parameter that is stored as blocks of four-bit values and a scale for each."""

    def values(self, model: Any, read: Read, dtype: Any) -> dict[str, Any]:
        """The parameter as the library unpacks it."""
        library = importlib.import_module(_FOUR_BITS)
        blocks, scales = (read(key, None) for key in self.keys)
        return {self.param: library.convert_moe_packed_tensors(blocks, scales).to(dtype)}


def four_bits(names: Collection[str], keys: Collection[str]) -> list[Group]:
    """Parameters that generation 4 unpacks from blocks; none where the files hold no such pair.

    Args:
        names: Names that a checkpoint knows.
        keys: The sources.
    """
    pairs = ((name, [f"{name}_blocks", f"{name}_scales"]) for name in names if release() < FIVE)
    return [
        FourBits(name, pair, is_cast=False)
        for name, pair in pairs
        if name not in keys and all(key in keys for key in pair)
    ]


def stored_as(files: Iterable[str]) -> Mapping[str, Any] | None:
    """What the configuration beside weight files says of their quantisation; None for nothing."""
    for folder in dict.fromkeys(os.path.dirname(path) for path in files):
        try:
            held = json.loads((Path(folder) / "config.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        for one in (held, *(held.values() if isinstance(held, dict) else ())):
            said = one.get("quantization_config") if isinstance(one, dict) else None
            if isinstance(said, dict):
                return said
    return None


def conversions(
    model: Any, settings: Mapping[str, Any] | None, key_mapping: Mapping[str, str] | None
) -> list[Any] | None:
    """The library's renamings and converters with those that unpack; None where it has none.

    Args:
        model: The live model.
        settings: What `stored_as` found.
        key_mapping: What the user gave `from_pretrained` under this name.
    """
    if settings is None or release() < FIVE or getattr(model, QUANTISER, None) is not None:
        return None
    library = importlib.import_module(QUANTISERS)
    mapping = importlib.import_module("transformers.conversion_mapping")
    try:
        wanted = library.AutoQuantizationConfig.from_dict(dict(settings))
        wanted.dequantize = True
        quantiser = library.AutoHfQuantizer.from_config(wanted, pre_quantized=True)
        found: list[Any] = mapping.get_model_conversion_mapping(model, key_mapping, quantiser)
    except Exception:  # a package of the quantiser is missing, or the settings are no one's
        return None
    return found
