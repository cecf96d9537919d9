"""Toy checkpoints as quantised models are published, which the library unpacks as it loads."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


def configured(folder: Path, quantisation: dict[str, Any]) -> None:
    """Let the configuration of a folder say how its weights are stored."""
    path = folder / "config.json"
    held = json.loads(path.read_text("utf-8")) | {"quantization_config": quantisation}
    path.write_text(json.dumps(held), "utf-8")


def in_four_bits(folder: Path) -> None:
    """Experts in blocks of 32 values of four bits, each block with its exponent."""
    tensors = {}
    for key, whole in load_file(folder / "model.safetensors").items():
        if not key.endswith(("gate_up_proj", "down_proj")):
            tensors[key] = whole
            continue
        experts, rows, columns = whole.shape
        shape = experts, columns, rows // 32
        tensors[f"{key}_blocks"] = torch.randint(0, 255, (*shape, 16), dtype=torch.uint8)
        tensors[f"{key}_scales"] = torch.randint(120, 128, shape, dtype=torch.uint8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    configured(folder, {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
