"""Ten families at toy size, built from configurations; what a test does with one is up to it."""

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BertConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PhiConfig,
    Qwen2_5_VLConfig,
    Qwen2Config,
    T5Config,
)

_SIZES = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_ALL_HEADS = _SIZES | {"num_key_value_heads": 2}
_WITHOUT_KV = {name: size for name, size in _SIZES.items() if name != "num_key_value_heads"}
_SEEING = {
    "depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 16,
    "fullatt_block_indexes": [1], "window_size": 56,
}  # fmt: skip

FAMILIES = {
    "gpt2": lambda: (AutoModelForCausalLM, GPT2Config(
        vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "llama": lambda: (AutoModelForCausalLM, LlamaConfig(**_SIZES)),
    "qwen2": lambda: (AutoModelForCausalLM, Qwen2Config(**_SIZES, tie_word_embeddings=True)),
    "qwen2_5_vl": lambda: (AutoModelForImageTextToText, Qwen2_5_VLConfig(
        **_qwen_text(), vision_config=_SEEING, image_token_id=60, video_token_id=61,
        vision_start_token_id=62, vision_end_token_id=63)),
    "mistral": lambda: (AutoModelForCausalLM, MistralConfig(**_SIZES, sliding_window=8)),
    "mixtral": lambda: (AutoModelForCausalLM, MixtralConfig(**_SIZES, num_local_experts=3)),
    "t5": lambda: (AutoModelForSeq2SeqLM, T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
        decoder_start_token_id=0)),
    "gemma": lambda: (AutoModelForCausalLM, GemmaConfig(**_SIZES, head_dim=8)),
    "phi": lambda: (AutoModelForCausalLM, PhiConfig(**_ALL_HEADS)),
    "bert": lambda: (AutoModelForMaskedLM, BertConfig(**_WITHOUT_KV)),
}  # fmt: skip


def _qwen_text():
    rope = {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}
    return _SIZES | rope | {"tie_word_embeddings": False}


def saved(family, folder, **settings):
    """Save a toy of a family whose parameters all differ; gives its Auto class."""
    auto, config = FAMILIES[family]()
    torch.manual_seed(0)
    model = auto.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases too: ones would equal each other
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder, **settings)
    return auto
