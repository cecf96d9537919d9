"""A GGUF checkpoint written as safetensors: the same weights, unpacked and rounded to bfloat16.

The library refuses to save a model that it loaded from GGUF, so the weights go into a fresh model
of the same configuration. The folder appears whole or not at all. `models` calls this.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from tracer.environment import require
from tracer.errors import StorageError
from tracer.explain.sentences import phrase

SHARD = "100MB"  # three shards and an index, as larger models have them


def write_safetensors(gguf: Path, target: Path, card: str, *, progress: bool = False) -> None:
    """Write a GGUF file as a folder of safetensors, which takes about a minute for 135 M.

    Args:
        gguf: a file of an architecture that the library reads.
        target: the folder, replaced if it is there: shards with an index, configuration,
            tokenizer, and the card.
        card: the model card's text.
        progress: show a bar on stderr.

    Raises:
        MissingPackageError: a package that reads GGUF is not installed.
        StorageError: the folder can't be written.
    """
    require("torch", "transformers", "accelerate", "gguf", extra="live", purpose="gguf")
    from safetensors import SafetensorError

    staging = target.with_name(f"{target.name}.partial")
    with tqdm(total=3, desc="unpacking", disable=not progress, unit="part") as bar:
        tokenizer, packed = _load(gguf)
        bar.update()
        fresh = _unpacked(packed)
        bar.update()
        try:
            # What a kill left there is worth nothing: only the last line makes it a checkpoint.
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            fresh.save_pretrained(staging, max_shard_size=SHARD)
            tokenizer.save_pretrained(staging)
            _publish(staging)
            (staging / "README.md").write_text(card, "utf-8", newline="\n")
            shutil.rmtree(target, ignore_errors=True)
            os.replace(staging, target)
        except (OSError, SafetensorError) as error:
            raise StorageError(phrase("errors.target_refused", path=target, why=error)) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        bar.update()


def _load(gguf: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return (
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name),
        AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name),
    )


def _unpacked(packed: Any) -> Any:
    import torch

    settings = packed.config.to_dict()
    for name in ("quantization_config", "dtype"):  # what says that the weights are still packed
        settings.pop(name, None)
    fresh = type(packed)._from_config(type(packed.config)(**settings), dtype=torch.bfloat16)
    fresh.load_state_dict(packed.state_dict())
    return fresh


def _publish(folder: Path) -> None:
    """Put the files into the form that published models have and every generation reads.

    Generation 4 looks for `rope_theta` beside the other settings, and where it is not found takes
    another value without a word; it doesn't know generation 5's class of tokenizers either.
    """
    with _edited(folder / "config.json") as config:
        rope = config["rope_parameters"]
        if rope["rope_type"] == "default":
            del config["rope_parameters"]
            config["rope_theta"] = rope["rope_theta"]
        config["torch_dtype"] = config.pop("dtype")
        config.pop("_model_name_or_path", None)
    with _edited(folder / "tokenizer_config.json") as tokenizer:
        tokenizer["tokenizer_class"] = "PreTrainedTokenizerFast"
        # Its default names a third input there, which decoder models refuse.
        tokenizer["model_input_names"] = ["input_ids", "attention_mask"]
        tokenizer["model_max_length"] = config["max_position_embeddings"]
        for name in ("backend", "is_local", "local_files_only"):
            tokenizer.pop(name, None)
    for shard in folder.glob("*.safetensors"):
        shard.chmod(0o644)  # the library writes it for its owner alone


@contextlib.contextmanager
def _edited(path: Path) -> Iterator[dict[str, Any]]:
    content = json.loads(path.read_text("utf-8"))
    yield content
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
    path.write_text(f"{text}\n", "utf-8", newline="\n")
