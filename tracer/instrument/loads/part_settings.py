"""Settings of a tokenizer or processor as it was loaded: which parts, which sides, which limits.

Told once a load of the user, of the finished thing: what a file said and what the class does
without being told differ between releases, so the attributes themselves are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tracer.instrument.asking import resizes
from tracer.instrument.asking.input_settings import Row, attribute_origin, plain, tell_rows
from tracer.instrument.loads.load_settings import ignored, shown
from tracer.instrument.targets import IGNORED_TOKENIZER_ARGUMENTS
from tracer.recorder import Recorder

_OF_TOKENIZERS: Final = (
    "padding_side", "truncation_side", "model_max_length", "clean_up_tokenization_spaces",
    "add_bos_token", "add_eos_token", "add_prefix_space", "split_special_tokens",
)  # fmt: skip
_SPECIAL_IDS: Final = ("bos_token_id", "eos_token_id", "pad_token_id")
_PARTS: Final = ("image_processor", "video_processor", "feature_extractor")
_LOCATING: Final = frozenset(
    {
        "trust_remote_code",
        "revision",
        "subfolder",
        "cache_dir",
        "token",
        "use_auth_token",
        "proxies",
    }
)


def tell(recorder: Recorder, event: int, loaded: Any, asked: dict[str, Any]) -> None:
    """Write the settings of a tokenizer or processor that a call of the user has loaded.

    Args:
        recorder: The recording that takes them.
        event: seq of the load.
        loaded: The tokenizer or processor.
        asked: What the user gave to the load.
    """
    tokenizer = getattr(loaded, "tokenizer", loaded)
    resizes.note_configuration(recorder, tokenizer, None, asked)
    rows: list[Row] = []
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        rows += _of_tokenizer(recorder, tokenizer, asked)
    rows += _of_parts(recorder, loaded, asked)
    said = {row.setting.rpartition(".")[2] for row in rows}
    is_tokenizer = tokenizer is loaded and bool(rows)
    scope = "tokenizer" if is_tokenizer else "processor"
    rows += [_of_argument(scope, tokenizer, *each) for each in asked.items() if each[0] not in said]
    tell_rows(recorder, event, rows)


def _of_tokenizer(recorder: Recorder, tokenizer: Any, asked: dict[str, Any]) -> Iterator[Row]:
    yield Row("tokenizer", "class", None, type(tokenizer).__name__, "library")
    yield Row("tokenizer", "is_fast", None, bool(getattr(tokenizer, "is_fast", False)), "library")
    for name in _OF_TOKENIZERS:
        value = getattr(tokenizer, name, None)
        if value is None:
            continue
        origin = "call" if name in asked else attribute_origin(recorder, tokenizer, name, value)
        if origin == "tokenizer after load":  # it has only just been loaded: its own making
            origin = "library"
        yield Row("tokenizer", name, plain(asked.get(name)), plain(value), origin)
    for name in _SPECIAL_IDS:
        value = getattr(tokenizer, name, None)
        if value is not None:
            yield Row("tokenizer", name, None, plain(value), "derived")


def _of_parts(recorder: Recorder, loaded: Any, asked: dict[str, Any]) -> Iterator[Row]:
    for name in _PARTS:
        part = getattr(loaded, name, None)
        if part is None:
            continue
        yield Row("processor", name, None, type(part).__name__, "library")
        size = resizes.edges_of(getattr(part, "size", None))
        limits = {limit: getattr(part, limit, None) or size.get(limit) for limit in size}
        for limit, value in limits.items():
            origin = resizes.origin_of(recorder, part, {}, limit, value)
            given = plain(asked.get(limit))
            where = "call" if origin == "from_pretrained" else origin
            yield Row("processor", f"{name}.{limit}", given, value, where)


def _of_argument(scope: str, tokenizer: Any, name: str, value: Any) -> Row:
    """An argument that none of the settings told is made of."""
    told = shown(name, value)
    if name in ignored(IGNORED_TOKENIZER_ARGUMENTS):
        why = "accepted and dropped by this version"
        return Row(scope, name, told, None, "call", False, why)
    if name == "use_fast":
        is_fast = bool(getattr(tokenizer, "is_fast", False))
        return Row(scope, name, told, is_fast, "call", is_fast == bool(value))
    if name in _LOCATING:
        return Row(scope, name, told, told, "call")
    effective = getattr(tokenizer, name, value)
    return Row(scope, name, told, shown(name, effective), "call", None, "not followed")
