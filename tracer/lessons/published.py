"""Traces of the published processor of Qwen2.5-VL-7B, which is not shipped with the lab.

The numbers of a real picture's way in, 3577 image tokens of 3602, depend on the processor's files
and on nothing of the weights; so a tiny random model of the architecture stands in for the real
one. Whoever has the processor's folder makes the committed traces again:

    python -m tracer.lessons.published FOLDER notebooks/traces/03_inputs
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tracer.lessons.lesson import keep_traces
from tracer.session import record

PICTURE: Final = (2048, 1365)
QUESTION: Final = "Describe this image."
LIMITS: Final[dict[str, dict[str, int]]] = {
    "published": {},
    "default": {"min_pixels": 4 * 28 * 28, "max_pixels": 1280 * 28 * 28},
}
"""Names of the traces, and the limits of each processor: the file's own, and its class's."""

_SMALL: Final = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
_SMALL_TEXT: Final = {**_SMALL, "num_hidden_layers": 2, "num_key_value_heads": 1}
_SMALL_EYE: Final = {
    "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "depth": 1,
    "out_hidden_size": 16, "fullatt_block_indexes": [],
}  # fmt: skip


def record_published(folder: Path, traces: Path) -> list[Path]:
    """Record the standard picture through the processor of a folder, with both limits.

    Args:
        folder: Processor, tokenizer, template and `config.json` as published.
        traces: Where the traces go, zipped; those of the same names are replaced.
    """
    from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

    with tempfile.TemporaryDirectory() as place:
        _write_tiny_model(folder, Path(place) / "model")
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(Path(place) / "model")
        for name, limits in LIMITS.items():
            with record(Path(place) / "runs" / name, detail="stages", top_k=0):
                processor: Any = AutoProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
                if limits:
                    processor.image_processor = type(processor.image_processor)(**limits)
                inputs = _encode(processor)
                model.generate(**inputs, max_new_tokens=512, stopping_criteria=[_at_once])
        return keep_traces(Path(place) / "runs", traces)


def _write_tiny_model(folder: Path, target: Path) -> None:
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    config |= _SMALL_TEXT | {"torch_dtype": "float32"}
    config["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 1, 1]}
    config["vision_config"] |= _SMALL_EYE
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig.from_dict(config)).save_pretrained(target)
    shutil.copy(folder / "generation_config.json", target)


def _at_once(ids: Any, scores: Any, **_: Any) -> Any:
    """Ends an answer with its first token: the limit is read here, not reached."""
    return ids.new_ones(len(ids), dtype=bool)


def _encode(processor: Any) -> Any:
    from PIL import Image
    from qwen_vl_utils import process_vision_info

    # A gradient: what it shows is of no account, and it is the same each time.
    picture = Image.linear_gradient("L").resize(PICTURE).convert("RGB")
    content = [{"type": "image", "image": picture}, {"type": "text", "text": QUESTION}]
    messages = [{"role": "user", "content": content}]
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    images, videos = process_vision_info(messages)
    return processor(text=[text], images=images, videos=videos, return_tensors="pt")


if __name__ == "__main__":
    for kept in record_published(Path(sys.argv[1]), Path(sys.argv[2])):
        print(kept)
