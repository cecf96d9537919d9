"""Recorder on against recorder off: generate at each detail, and a load.

    python -m benchmarks.recording [--model demo|135m] [--rounds N]

The 135M-shaped model has random weights: its times are those of the real one, its words are not.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.utils import logging

import tracer
from benchmarks.pairs import control, paired
from tracer.demo import checkpoint_folder

NEW_TOKENS = 64
PROMPT_TOKENS = 64
BUDGETS = {"stages": 1.01, "layers": 1.02, "layers, effects": 1.03, "modules": 1.06, "load": 1.10}
LEVELS: dict[str, dict[str, Any]] = {
    "stages": {"detail": "stages"},
    "layers": {"detail": "layers", "effects": False},
    "layers, effects": {"detail": "layers", "effects": True},
    "modules": {"detail": "modules", "effects": False},
}
FOUR_PROCESSORS = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 0.8,
    "repetition_penalty": 1.05,
}


def shaped_like_135m(folder: Path) -> Path:
    """A checkpoint with the shapes of SmolLM2-135M: 272 tensors, 538 MB in float32."""
    config = LlamaConfig(
        vocab_size=49152,
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
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder, max_shard_size="100MB")
    return folder


def generation_ratios(model: Any, rounds: int) -> dict[str, dict[str, float]]:
    """Ratios of generate at each level of detail, and of the baseline against itself."""
    ids = torch.arange(5, 5 + PROMPT_TOKENS).remainder(model.config.get_text_config().vocab_size)
    inputs = {"input_ids": ids[None], "attention_mask": torch.ones(1, PROMPT_TOKENS, dtype=int)}

    def plain() -> Any:
        torch.manual_seed(0)
        return model.generate(
            **inputs, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, **FOUR_PROCESSORS
        )

    plain()
    found = {"control": paired(plain, control, rounds)}
    for name, options in LEVELS.items():
        found[name] = paired(plain, functools.partial(tracer.record, **options), rounds)
    return found


def load_ratio(kind: Any, folder: Path, rounds: int) -> dict[str, float]:
    """Ratio of a warm load with the recorder on to one with it off."""

    def plain() -> Any:
        return kind.from_pretrained(folder)

    plain()
    return paired(plain, tracer.record, rounds)


def measure(which: str, rounds: int) -> dict[str, Any]:
    """All ratios of one model, each with its budget."""
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        if which == "demo":
            kind, folder = AutoModelForImageTextToText, checkpoint_folder()
        else:
            kind, folder = AutoModelForCausalLM, shaped_like_135m(Path(scratch) / "model")
        model = kind.from_pretrained(folder, dtype=torch.float32)
        found = generation_ratios(model, rounds)
        del model
        found["load"] = load_ratio(kind, folder, rounds)
    return {name: ratios | {"budget": BUDGETS.get(name)} for name, ratios in found.items()} | {
        "model": which
    }


def main() -> None:
    """Print the ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["demo", "135m"], default="135m")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(json.dumps(measure(options.model, options.rounds), indent=2))


if __name__ == "__main__":
    main()
