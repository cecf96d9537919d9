"""Checkpoints with the shapes of real models and random weights: their times are the real ones.

Each is a function from a folder to the folder with the checkpoint in it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TENSORS_A_LAYER = 9


def shaped_like_135m(folder: Path, vocabulary: int = 49_152) -> Path:
    """The shapes of SmolLM2-135M: 272 tensors, 538 MB in float32."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        eos_token_id=None,
        bos_token_id=1,
    )
    return _saved(folder, config, torch.float32, "100MB")


def shaped_like_152k(folder: Path) -> Path:
    """The same with a vocabulary of 151,936, as Qwen has: 775 MB in float32."""
    return shaped_like_135m(folder, 151_936)


def shaped_like_2gb(folder: Path) -> Path:
    """Sixteen wide layers in several shards: 2.2 GB in bfloat16."""
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
    config = LlamaConfig(vocab_size=32000, **sizes, **heads)
    return _saved(folder, config, torch.bfloat16, "500MB")


def shaped_like_20k(folder: Path) -> Path:
    """20,001 tiny tensors: nothing but work that is done once a tensor."""
    sizes = {"vocab_size": 64, "hidden_size": 8, "intermediate_size": 8}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    config = LlamaConfig(**sizes, **heads, num_hidden_layers=20_000 // TENSORS_A_LAYER)
    return _saved(folder, config, torch.bfloat16, "5GB")


def toy(folder: Path) -> Path:
    """Two narrow layers: what a quick run is made on, and the largest ratios."""
    sizes = {"vocab_size": 1024, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(**sizes, **heads, eos_token_id=None, bos_token_id=1)
    return _saved(folder, config, torch.float32, "60KB")


def _saved(folder: Path, config: LlamaConfig, dtype: torch.dtype, largest: str) -> Path:
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(dtype).save_pretrained(folder, max_shard_size=largest)
    return folder
