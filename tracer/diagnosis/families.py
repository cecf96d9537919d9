"""What kind of model a folder is of, as far as its small files tell: who writes, reads and hears.

Rules on chats, padding and tokenizers hold for some kinds only. Where nothing tells the kind, a
question stays asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracer.inspection import Inspection

_WRITES: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForImageTextToText")
_PROCESSOR: Final = "preprocessor_config.json"


def architectures(inspection: Inspection) -> list[str]:
    """Names of classes that the configuration gives; empty where it gives none."""
    held = inspection.config.get("architectures")
    return [one for one in held if isinstance(one, str)] if isinstance(held, list) else []


def may_write(inspection: Inspection) -> bool:
    """Whether the model may write text, or nothing tells that it does not."""
    named = architectures(inspection)
    return not named or any(one.endswith(_WRITES) for one in named)


def may_chat(inspection: Inspection) -> bool:
    """Whether the model may go on with a conversation: it writes behind what it reads."""
    return inspection.config.get("is_encoder_decoder") is not True and may_write(inspection)


def reads_words(inspection: Inspection) -> bool:
    """Whether the model takes token ids; an adapter takes those of its base model."""
    config = inspection.config
    if not config:
        return any(file.path == "config.json" for file in inspection.survey.files)
    is_named = bool(architectures(inspection)) and may_write(inspection)
    return is_named or any("vocab_size" in part for part in _parts(config))


def hears(inspection: Inspection) -> bool:
    """Whether the model takes sound: what it may not say is then part of how it was made."""
    own = inspection.survey.settings.get(_PROCESSOR, {})
    is_bare = own.get("feature_extractor_type") is not None and "image_processor_type" not in own
    return is_bare or "num_mel_bins" in inspection.config


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A configuration and those inside it, at any depth."""
    yield config
    for held in config.values():
        if isinstance(held, dict):
            yield from _parts(held)
