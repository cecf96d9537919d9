"""Model folders by hand, as families publish them: headers, zeros, small files; torch is not asked.

Shapes are as small as they can be where nothing rests on them; rows of embeddings and ids of tokens
are the published ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "U8": 1, "F8_E4M3": 1}
INDEX = "model.safetensors.index.json"
Shapes = Mapping[str, tuple[int, ...]]


def tensors_file(path: Path, shapes: Shapes, dtype: str = "BF16") -> int:
    """A safetensors file of zeros; gives the bytes of its tensors. `name@DTYPE` has its own."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        key, _, own = name.partition("@")
        begin, end = end, end + math.prod(shape) * BYTES[own or dtype]
        header[key] = {"dtype": own or dtype, "shape": shape, "data_offsets": [begin, end]}
    raw = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(end))
    return end


def in_shards(folder: Path, shapes: Shapes, count: int = 2, dtype: str = "BF16") -> None:
    """The same in shards of about as many tensors, with their index."""
    names = list(shapes)
    size = math.ceil(len(names) / count)
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(count):
        own = {name: shapes[name] for name in names[number * size : (number + 1) * size]}
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        total += tensors_file(folder / file, own, dtype)
        weight_map |= {name.partition("@")[0]: file for name in own}
    written(folder, **{INDEX: {"metadata": {"total_size": total}, "weight_map": weight_map}})


def written(folder: Path, **files: Any) -> Path:
    """Files by name (`__` for a dot, as in `config__json`): text, bytes, or what JSON holds."""
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_text(text, "utf-8")
    return folder


def tokenizer(
    words: Iterable[str] = (), added: Mapping[str, int] | None = None, begin: str | None = None
) -> dict[str, Any]:
    """A `tokenizer.json`: words from 0 on, added tokens at their ids, a begin token put first."""
    content: dict[str, Any] = {
        "model": {"type": "BPE", "vocab": {word: place for place, word in enumerate(words)}},
        "added_tokens": [
            {"id": number, "content": text, "special": True}
            for text, number in (added or {}).items()
        ],
    }
    if begin is not None:
        first = {"SpecialToken": {"id": begin, "type_id": 0}}
        single = [first, {"Sequence": {"id": "A", "type_id": 0}}]
        content["post_processor"] = {"type": "TemplateProcessing", "single": single}
    return content


def layers(
    stack: str, count: int, inside: Iterable[str], shape: tuple[int, ...] = (4, 4)
) -> dict[str, tuple[int, ...]]:
    """Tensors of each layer of a stack; a name that ends in `norm.weight` has one axis."""
    return {
        f"{stack}.{number}.{name}": shape[:1] if name.endswith(("norm.weight", "bias")) else shape
        for number in range(count)
        for name in inside
    }


ATTENTION = tuple(f"self_attn.{one}_proj.weight" for one in "qkvo")
LLAMA = (
    *ATTENTION, "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
    "input_layernorm.weight", "post_attention_layernorm.weight",
)  # fmt: skip


def llama(rows: int = 32, count: int = 2, *, head: bool = True) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a decoder of Llama's kind."""
    return {
        "model.embed_tokens.weight": (rows, 4),
        **layers("model.layers", count, LLAMA),
        "model.norm.weight": (4,),
        **({"lm_head.weight": (rows, 4)} if head else {}),
    }
