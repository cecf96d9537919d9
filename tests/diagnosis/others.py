"""More families at toy size than the instruments are tried on: other positions, other tasks."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf

SIZES = {
    "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
GATED = SIZES | {"intermediate_size": 24, "num_key_value_heads": 1, "max_position_embeddings": 32}
HALVES = {
    "vocab_size": 64, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
SPEECH = HALVES | {
    "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 24,
    "decoder_start_token_id": 3, "pad_token_id": 2, "begin_suppress_tokens": [4],
    "suppress_tokens": [5, 6],
}  # fmt: skip
SIGHT = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14, "projection_dim": 16,
}  # fmt: skip
READERS = SIZES | {"intermediate_size": 24, "max_position_embeddings": 40}


def _llava() -> Any:
    text = hf.LlamaConfig(**GATED)
    return hf.LlavaConfig(
        text_config=text, vision_config=hf.CLIPVisionConfig(**SIGHT), image_token_index=60,
        vision_feature_layer=-1,
    )  # fmt: skip


OTHERS: dict[str, tuple[str, Any]] = {
    "opt": ("AutoModelForCausalLM", lambda: hf.OPTConfig(
        **SIZES, ffn_dim=24, max_position_embeddings=32, word_embed_proj_dim=16)),
    "bloom": ("AutoModelForCausalLM", lambda: hf.BloomConfig(
        vocab_size=64, hidden_size=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2,
        pad_token_id=0)),
    "gpt_neox": ("AutoModelForCausalLM", lambda: hf.GPTNeoXConfig(
        **SIZES, intermediate_size=24, max_position_embeddings=32)),
    "gptj": ("AutoModelForCausalLM", lambda: hf.GPTJConfig(
        vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2, rotary_dim=4,
        bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "falcon": ("AutoModelForCausalLM", lambda: hf.FalconConfig(
        **SIZES, max_position_embeddings=32, ffn_hidden_size=24)),
    "gemma2": ("AutoModelForCausalLM", lambda: hf.Gemma2Config(
        **GATED, head_dim=8, sliding_window=8)),
    "phi3": ("AutoModelForCausalLM", lambda: hf.Phi3Config(**GATED)),
    "stablelm": ("AutoModelForCausalLM", lambda: hf.StableLmConfig(**GATED)),
    "mamba": ("AutoModelForCausalLM", lambda: hf.MambaConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4, bos_token_id=1,
        eos_token_id=2, pad_token_id=0)),
    "bart": ("AutoModelForSeq2SeqLM", lambda: hf.BartConfig(**HALVES)),
    "marian": ("AutoModelForSeq2SeqLM", lambda: hf.MarianConfig(
        **HALVES | {"decoder_start_token_id": 0})),
    "pegasus": ("AutoModelForSeq2SeqLM", lambda: hf.PegasusConfig(
        **HALVES | {"decoder_start_token_id": 0})),
    "whisper": ("AutoModelForSpeechSeq2Seq", lambda: hf.WhisperConfig(**SPEECH)),
    "llava": ("AutoModelForImageTextToText", _llava),
    "roberta": ("AutoModelForMaskedLM", lambda: hf.RobertaConfig(**READERS)),
    "distilbert": ("AutoModelForSequenceClassification", lambda: hf.DistilBertConfig(
        vocab_size=64, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=32)),
    "electra": ("AutoModelForMaskedLM", lambda: hf.ElectraConfig(**READERS, embedding_size=8)),
    "vit": ("AutoModelForImageClassification", lambda: hf.ViTConfig(
        **{name: one for name, one in SIGHT.items() if name != "projection_dim"})),
    "wav2vec2": ("AutoModelForCTC", lambda: hf.Wav2Vec2Config(
        **SIZES, intermediate_size=24, conv_dim=(8, 8), conv_kernel=(4, 2), conv_stride=(2, 2),
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, mask_time_length=2)),
}  # fmt: skip
"""Auto class and configuration by family."""


def saved(family: str, folder: Any) -> None:
    """Save a toy of a family whose parameters all differ."""
    auto, make = OTHERS[family]
    torch.manual_seed(0)
    model = getattr(hf, auto).from_config(make())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # a table of sines stays what it is
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
