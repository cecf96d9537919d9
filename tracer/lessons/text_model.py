"""A causal language model for lessons on text: the decoder half of the embedded checkpoint.

The embedded model sees pictures; without its vision encoder what is left is a plain Qwen2, with a
tokenizer and a chat template. It answers small talk in one turn, and little else. Imports no torch.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any, Final

from tracer.demo import checkpoint_folder

SMALL_TALK: Final = ("Hello!", "Who are you?", "Which shapes do you know?", "Thank you.")
"""Questions that it answers well when they come first."""

_KEPT: Final = (
    "bos_token_id", "eos_token_id", "hidden_act", "hidden_size", "initializer_range",
    "intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers",
    "num_key_value_heads", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "vocab_size",
)  # fmt: skip
_TOKENIZER: Final = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")


def text_model(folder: str | Path = "runs/text-model") -> Path:
    """Write the text model into a folder, as `from_pretrained` wants it; once is enough.

    Tensors keep their bytes and names, in bf16; the pad token of the checkpoint is kept too.
    """
    target = Path(folder)
    if (target / "model.safetensors").is_file():
        return target
    target.mkdir(parents=True, exist_ok=True)
    source = checkpoint_folder()
    _write_json(target / "config.json", _config(_read_json(source / "config.json")))
    settings = _read_json(source / "generation_config.json")
    ends = {name: settings[name] for name in ("eos_token_id", "pad_token_id", "bos_token_id")}
    _write_json(target / "generation_config.json", ends)
    for name in _TOKENIZER:
        shutil.copyfile(source / name, target / name)
    _write_tensors(source, target / "model.safetensors")
    return target


def with_extremes(source: str | Path, folder: str | Path = "runs/text-model-extremes") -> Path:
    """A copy of the text model whose last norm begins with 1e6 and 1e-9, both exact enough in bf16.

    float16 ends at 65,504 and begins at 6e-8, so a cast to it can hold neither.
    """
    target = Path(folder)
    shutil.copytree(source, target, dirs_exist_ok=True)
    path = target / "model.safetensors"
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    entry = json.loads(content[8 : 8 + length])["model.norm.weight"]
    # bf16 is the upper half of a single.
    values = b"".join(struct.pack("<f", value)[2:] for value in (1e6, 1e-9))
    begin = 8 + length + entry["data_offsets"][0]
    content[begin : begin + len(values)] = values
    path.write_bytes(content)
    return target


def _config(published: dict[str, Any]) -> dict[str, Any]:
    own = {name: published[name] for name in _KEPT}
    kind = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    return kind | own | {"torch_dtype": "bfloat16", "use_cache": True}


def _write_tensors(source: Path, target: Path) -> None:
    """Copy the decoder's tensors byte by byte; the vision encoder's are left out."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    pieces: list[bytes] = []
    end = 0
    for shard in sorted(source.glob("*.safetensors")):
        content = shard.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        entries = json.loads(content[8 : 8 + length])
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            if name.startswith("visual."):
                continue
            first, last = entry["data_offsets"]
            pieces.append(content[8 + length + first : 8 + length + last])
            header[name] = entry | {"data_offsets": [end, end + last - first]}
            end += last - first
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Last, and under its name only when whole: its presence says that the folder is complete.
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))
    unfinished.replace(target)


def _read_json(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return read


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8", newline="\n")
