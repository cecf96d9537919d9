"""Ten situations in which something is wrong, each made for real. Used by `10_doctor`.

The first two are folders, made without torch; so is the third, which is then loaded. The others
are calls to be recorded: the library takes every one of them without an error, except where a test
of its own happens to catch it.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any, Final

from tracer.errors import CheckpointError
from tracer.explain.sentences import phrase

_INDEX: Final = "model.safetensors.index.json"
_GREEDY: Final = {"max_new_tokens": 8, "do_sample": False}


def cut_short(folder: str | Path, target: str | Path, *, missing: int = 1000) -> Path:
    """A copy of a folder whose last weight file lacks its last bytes, as after a broken download.

    Raises:
        CheckpointError: The folder has no safetensors file.
    """
    copy = _copied(folder, target)
    last = _weight_files(copy)[-1]
    last.write_bytes(last.read_bytes()[:-missing])
    return copy


def without_large_files(folder: str | Path, target: str | Path) -> Path:
    """A copy as `git clone` leaves it where Git LFS is not installed: pointers instead of weights.

    Raises:
        CheckpointError: The folder has no safetensors file.
    """
    import hashlib

    copy = _copied(folder, target)
    for path in _weight_files(copy):
        content = path.read_bytes()
        path.write_text(
            "version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n",
            encoding="utf-8",
        )
    return copy


def under_another_prefix(folder: str | Path, target: str | Path, prefix: str = "wrapped.") -> Path:
    """A copy in which every tensor's name begins with the name of what the model was wrapped in.

    Raises:
        CheckpointError: The folder has no safetensors file, or has an index beside them.
    """
    copy = _copied(folder, target)
    if (copy / _INDEX).is_file():
        raise CheckpointError(phrase("errors.has_index", folder=folder))
    for path in _weight_files(copy):
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        named = {
            name if name == "__metadata__" else prefix + name: entry
            for name, entry in json.loads(content[8 : 8 + length]).items()
        }
        header = json.dumps(named).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + length :])
    return copy


def padded_on_the_right(model: Any, tokenizer: Any, questions: list[str]) -> Any:
    """A batch of prompts that is padded behind the shorter one."""
    inputs = _batch(tokenizer, questions, "right")
    return model.generate(**inputs, **_GREEDY)


def padded_without_a_mask(model: Any, tokenizer: Any, questions: list[str]) -> Any:
    """A batch padded on the left, as it should be, with every position marked as one to see."""
    import torch

    inputs = _batch(tokenizer, questions, "left")
    ids = inputs["input_ids"]
    return model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **_GREEDY)


def with_the_wrong_end(model: Any, tokenizer: Any, question: str) -> Any:
    """An answer for which only `<|endoftext|>` counts as an end, and not the end of the turn."""
    inputs = tokenizer(_prompts(tokenizer, [question]), return_tensors="pt")
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    return model.generate(**inputs, max_new_tokens=40, do_sample=False, eos_token_id=end)


def with_one_cache_twice(model: Any, tokenizer: Any, question: str) -> None:
    """The same prompt asked twice with one cache, which the first call has made longer."""
    import inspect

    from transformers import DynamicCache

    inputs = tokenizer(_prompts(tokenizer, [question]), return_tensors="pt")
    cache = DynamicCache(config=model.config)
    # The argument's name moved between generations of the library.
    names = inspect.signature(model.forward).parameters
    given = {"past_key_values" if "past_key_values" in names else "cache": cache}
    for _ in range(2):
        model.generate(**inputs, **given, **_GREEDY)


def cut_through_the_picture(model: Any, processor: Any, picture: Any) -> Any:
    """A prompt shortened to a length that ends inside the picture's placeholders."""
    content = [{"type": "image"}, {"type": "text", "text": "Describe this image."}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    inputs = processor(
        text=[text], images=[picture], truncation=True, max_length=24, return_tensors="pt"
    )
    return model.generate(**inputs, **_GREEDY)


def _batch(tokenizer: Any, questions: list[str], padding_side: str) -> Any:
    """Prompts of different lengths as one batch; the tokenizer's own side is put back."""
    side, tokenizer.padding_side = tokenizer.padding_side, padding_side
    try:
        return tokenizer(_prompts(tokenizer, questions), padding=True, return_tensors="pt")
    finally:
        tokenizer.padding_side = side


def _prompts(tokenizer: Any, questions: list[str]) -> list[str]:
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        for question in questions
    ]


def _copied(folder: str | Path, target: str | Path) -> Path:
    copy = Path(target)
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for path in Path(folder).iterdir():
        if path.is_file():
            shutil.copyfile(path, copy / path.name)
    return copy


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(phrase("errors.no_file_to_spoil", folder=folder))
    return files
