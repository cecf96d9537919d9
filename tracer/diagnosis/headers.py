"""Rules on a folder's tensors by name and shape, set against its configuration before any load.

Only what names and shapes alone decide is said; what the class makes of them, a built model tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tracer.diagnosis.families import architectures
from tracer.diagnosis.finding import Found, cells
from tracer.diagnosis.rules import Answers, rule
from tracer.formats.entries import TensorEntry
from tracer.inspecting.fit import chosen_entries
from tracer.inspecting.wrappers import mapping_text, wrapper_of

if TYPE_CHECKING:
    from tracer.inspection import Inspection

_WRAPPED: Final = "pytorch/pytorch#101107, huggingface/peft#2945"
_ADAPTER: Final = "adapter_config.json"
_WEIGHT_NORM: Final = "torch.nn.utils.parametrize"  # families of speech have it, and load it
_WIDTHS: Final = ("hidden_size", "n_embd", "d_model")
_EMBEDDINGS: Final = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")
_NORMS: Final = ("input_layernorm.weight", "ln_1.weight", "norm.weight", "ln_f.weight")
_NARROWER: Final = ("word_embed_proj_dim", "embedding_size", "d_embed")
_HEADS: Final = ("lm_head", "embed_out", "output", "head", "proj_out", "classifier", "score")


@rule("names_wrapped", "fatal", "folder", _WRAPPED)
def names_wrapped(inspection: Inspection) -> Answers:
    """Tensor names that hold words of a tool which wrapped the model before it was saved."""
    entries = list(_whole_entries(inspection))
    if not entries or inspection.survey.settings.get(_ADAPTER):
        return  # an adapter's own names are such
    found = [(path, entry, wrapper_of(entry.key)) for path, entry in entries]
    wrapped = [(path, entry, one) for path, entry, one in found if one is not None]
    wrapped = [each for each in wrapped if each[2].maker != _WEIGHT_NORM]
    fronts = {one.stored for _, _, one in wrapped if one.only_first}
    for front in fronts:  # of all names, or of none: `module.` may be a part of this model
        if not all(entry.key.startswith(f"{front}.") for _, entry in entries):
            wrapped = [each for each in wrapped if each[2].stored != front]
    if wrapped:
        yield Found(
            {
                "count": len(wrapped),
                "whole": len(entries),
                "makers": list(dict.fromkeys(one.maker for _, _, one in wrapped)),
                "words": list(dict.fromkeys(one.stored for _, _, one in wrapped)),
                "first": wrapped[0][1].key,
                "mapping": mapping_text(one for _, _, one in wrapped),
            },
            tuple(
                cells("tensors", {"file": path, "key": entry.key}, words=one.stored)
                for path, entry, one in wrapped
            ),
            "warning" if "auto_map" in inspection.config else None,
        )


@rule("head_not_stored", "fatal", "folder", "huggingface/transformers#43429")
def head_not_stored(inspection: Inspection) -> Answers:
    """No tie, and no file holds a head beside the embedding."""
    config, rows = inspection.config, inspection.tokenizer.embedding_rows
    named = [one for one in architectures(inspection) if one.endswith("ForCausalLM")]
    if config.get("tie_word_embeddings") is not False or not named or rows is None:
        return
    if "auto_map" in config or "quantization_config" in config or not _is_whole(inspection):
        return
    entries = list(_whole_entries(inspection))
    as_long = [entry.key for _, entry in entries if len(entry.shape) == 2 and rows in entry.shape]
    if any(part in _HEADS for _, entry in entries for part in entry.key.split(".")):
        return
    if len(as_long) == 1:
        key = {"source": "config.json", "fact": "tie_word_embeddings"}
        yield Found(
            {"class_name": named[0], "key": as_long[0], "rows": rows},
            (
                cells("facts", key, value=False),
                cells("tensors", {"key": as_long[0]}, rows=rows),
            ),
        )


@rule("config_of_another_size", "fatal", "folder")
def config_of_another_size(inspection: Inspection) -> Answers:
    """Embedding and norms that are alike in width, and a configuration that says another."""
    config = inspection.config
    inner = config.get("text_config")
    asked = next(
        (
            (name, content[name])
            for content in (config, inner if isinstance(inner, dict) else {})
            for name in _WIDTHS
            if type(content.get(name)) is int
        ),
        None,
    )
    if asked is None or "quantization_config" in config or any(one in config for one in _NARROWER):
        return
    entries = list(_whole_entries(inspection))
    embeddings = {entry.key: entry.shape[1] for _, entry in entries if _is(entry, _EMBEDDINGS, 2)}
    norms = {entry.key: entry.shape[0] for _, entry in entries if _is(entry, _NORMS, 1)}
    widths = set(embeddings.values())
    # One width, that of norms too, and nothing in the file of the width that is asked for.
    if len(widths) != 1 or not widths & set(norms.values()) or asked[1] in norms.values():
        return
    width = widths.pop()
    if width != asked[1]:
        norm = next(name for name, size in norms.items() if size == width)
        yield Found(
            {"name": asked[0], "asked": asked[1], "width": width, "key": next(iter(embeddings))},
            (
                cells("facts", {"source": "config.json", "fact": asked[0]}, value=asked[1]),
                cells("tensors", {"key": next(iter(embeddings))}, width=width),
                cells("tensors", {"key": norm}, width=width),
            ),
        )


def _is(entry: TensorEntry, endings: tuple[str, ...], axes: int) -> bool:
    ends = any(f".{entry.key}".endswith(f".{one}") for one in endings)
    return ends and len(entry.shape) == axes and "visual" not in entry.key


def _whole_entries(inspection: Inspection) -> Iterator[tuple[str, TensorEntry]]:
    """File and entry of each tensor of a model; none of an adapter's."""
    entry = inspection.survey.entry or ""
    if not entry.startswith("adapter_model"):
        yield from chosen_entries(inspection.survey)


def _is_whole(inspection: Inspection) -> bool:
    """Whether every file that a load would read told its names."""
    survey = inspection.survey
    return bool(survey.chosen) and all(path in survey.headers for path in survey.chosen)
