"""The demo checkpoint as a folder in the published format of Qwen2.5-VL.

A flat `config.json`, tensors named `visual.*`, `model.*` and `lm_head.weight` in three
safetensors shards with an index, the processor's, generation's and tokenizer's files, a card.
`new_model` builds the model with random weights, `write_checkpoint` writes it in bf16. Training
is in `train`.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from tracer.demo.scenes import LARGEST_PIXELS, SMALLEST_PIXELS
from tracer.demo.tokenizer import SPECIAL_TOKENS, build_tokenizer, write_tokenizer

IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)
PATCH, MERGE, TEMPORAL = 14, 2, 2
SHARDS = 3
ROWS_MULTIPLE = 64  # embedding rows are padded, as in the published models

# The library's names of the modules (generation 5) and the published names in the files.
PUBLISHED_PREFIXES = (("model.visual.", "visual."), ("model.language_model.", "model."))

GENERATION = {
    "do_sample": True,
    "temperature": 0.7,
    "top_p": 0.8,
    "top_k": 20,
    "repetition_penalty": 1.05,
    "transformers_version": "4.51.3",
}
PREPROCESSOR = {
    "min_pixels": SMALLEST_PIXELS,
    "max_pixels": LARGEST_PIXELS,
    "patch_size": PATCH,
    "temporal_patch_size": TEMPORAL,
    "merge_size": MERGE,
    "image_mean": IMAGE_MEAN,
    "image_std": IMAGE_STD,
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
VISION = {
    "depth": 4,
    "hidden_act": "silu",
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_heads": 4,
    "in_chans": 3,
    "out_hidden_size": 128,
    "patch_size": PATCH,
    "spatial_merge_size": MERGE,
    "spatial_patch_size": PATCH,
    "window_size": 56,
    "fullatt_block_indexes": [1, 3],
    "tokens_per_second": 2,
    "temporal_patch_size": TEMPORAL,
}


def published_config(ids: dict[str, int]) -> dict[str, Any]:
    """Give `config.json` in the flat form of the published models.

    Args:
        ids: the id of each special token.
    """
    rows = -(-(max(ids.values()) + 1) // ROWS_MULTIPLE) * ROWS_MULTIPLE
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "attention_dropout": 0.0,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "vision_token_id": ids["<|vision_pad|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "hidden_act": "silu",
        "hidden_size": 128,
        "initializer_range": 0.02,
        "intermediate_size": 320,
        "max_position_embeddings": 2048,
        "max_window_layers": 4,
        "model_type": "qwen2_5_vl",
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 2048,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.3",
        "use_cache": True,
        "use_sliding_window": False,
        "vision_config": VISION,
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        "vocab_size": rows,
    }


def special_ids() -> dict[str, int]:
    """Give the id of each special token of the demo's tokenizer."""
    tokenizer = build_tokenizer()
    vocabulary = tokenizer.get_vocab()
    return {text: vocabulary[text] for text in SPECIAL_TOKENS}


def new_model(seed: int = 0) -> Qwen2_5_VLForConditionalGeneration:
    """Build the model in fp32 with random weights that depend on the seed alone."""
    config = Qwen2_5_VLConfig.from_dict(
        {**published_config(special_ids()), "torch_dtype": "float32"}
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2_5_VLForConditionalGeneration(config)


def write_checkpoint(model: torch.nn.Module, folder: Path, card: str) -> None:
    """Write a model and all its files into a folder, in bf16 and three shards."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = special_ids()
    write_tokenizer(folder, build_tokenizer())
    _write_json(folder / "config.json", published_config(ids))
    ends = {"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]]}
    start = {"bos_token_id": ids["<|endoftext|>"], "pad_token_id": ids["<|endoftext|>"]}
    _write_json(folder / "generation_config.json", {**start, **GENERATION, **ends})
    _write_json(folder / "preprocessor_config.json", PREPROCESSOR)
    (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")
    _write_shards(published_tensors(model), folder)


def published_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Give the model's tensors in bf16 under their published names."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        for new, published in PUBLISHED_PREFIXES:
            if name.startswith(new):
                name = published + name.removeprefix(new)
                break
        tensors[name] = tensor.detach().to(torch.bfloat16).contiguous()
    return tensors


def _write_shards(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    total = sum(tensor.nbytes for tensor in tensors.values())
    shards: list[dict[str, torch.Tensor]] = [{} for _ in range(SHARDS)]
    done = 0
    for name, tensor in tensors.items():
        shards[min(SHARDS - 1, done * SHARDS // total)][name] = tensor
        done += tensor.nbytes
    places = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)  # the library writes it for its owner alone
        places.update(dict.fromkeys(shard, file))
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    _write_json(folder / "model.safetensors.index.json", index)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8", newline="\n")
