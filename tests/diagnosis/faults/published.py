"""Folders as families publish them, whole: nothing worse than a note, and only what is so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagnosis.bench import Bench
from diagnosis.cases import healthy
from diagnosis.handmade import (
    ATTENTION,
    LLAMA,
    in_shards,
    layers,
    llama,
    tensors_file,
    tokenizer,
    written,
)

SMALL = {"hidden_size": 4, "num_hidden_layers": 2, "intermediate_size": 4}
IMAGES = {"image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": 224}
PIECES = b"".join(b"\x0a\x03\x0a\x01" + bytes([65 + number]) for number in range(20))
"""A SentencePiece model of twenty pieces: field 1 again and again, each a text of one letter."""


def config(kind: str, architecture: str, **own: Any) -> dict[str, Any]:
    """What every `config.json` says, small."""
    return {"model_type": kind, "architectures": [architecture], "torch_dtype": "bfloat16"} | own


@healthy(also=("begin_written_twice", "folder_pad_unset", "settings_shipped"))
def llama_3_instruct(bench: Bench) -> Path:
    folder = bench.new()
    in_shards(folder, llama(128256))
    ends = {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|start_header_id|>": 128006}
    ends |= {"<|end_header_id|>": 128007, "<|eom_id|>": 128008, "<|eot_id|>": 128009}
    template = (
        "{% for m in messages %}{% set c = '<|start_header_id|>' + m['role'] + "
        "'<|end_header_id|>\n\n' + m['content'] + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
        "{% set c = bos_token + c %}{% endif %}{{ c }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    )
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>"}
    stops = [128001, 128008, 128009]
    shipped = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 4096}
    written(folder / "original", params__json={"dim": 4})
    tensors_file(folder / "original" / "consolidated.safetensors", {"tok": (2, 2)})
    return written(
        folder,
        config__json=config("llama", "LlamaForCausalLM", vocab_size=128256, eos_token_id=stops)
        | SMALL | {"tie_word_embeddings": False},
        generation_config__json={"bos_token_id": 128000, "eos_token_id": stops} | shipped,
        tokenizer__json=tokenizer("ab", ends, "<|begin_of_text|>"),
        tokenizer_config__json=own | {"eos_token": "<|eot_id|>", "chat_template": template},
        special_tokens_map__json={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    )  # fmt: skip


@healthy(also=("begin_written_twice",))
def gemma_2_instruct(bench: Bench) -> Path:
    folder = bench.new()
    in_shards(folder, llama(256000, head=False), dtype="F32")
    ends = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<start_of_turn>": 106, "<end_of_turn>": 107}
    template = (
        "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + m['role'] + '\n' + "
        "m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{'<start_of_turn>model\n'}}{% endif %}"
    )
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    return written(
        folder,
        config__json=config("gemma2", "Gemma2ForCausalLM", vocab_size=256000, eos_token_id=1)
        | SMALL | {"torch_dtype": "float32", "pad_token_id": 0, "bos_token_id": 2},
        generation_config__json={"bos_token_id": 2, "eos_token_id": [1, 107], "pad_token_id": 0},
        tokenizer__json=tokenizer((), ends, "<bos>"),
        tokenizer_config__json=special
        | {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "chat_template": template},
    )  # fmt: skip


@healthy(also=("folder_pad_is_end", "remote_code_present"))
def phi_3_mini(bench: Bench) -> Path:
    folder = bench.new()
    fused = ("self_attn.qkv_proj.weight", "self_attn.o_proj.weight", "mlp.gate_up_proj.weight")
    shapes = {"model.embed_tokens.weight": (32064, 4), "lm_head.weight": (32064, 4)}
    in_shards(folder, shapes | layers("model.layers", 2, fused) | {"model.norm.weight": (4,)})
    ends = {"<s>": 1, "</s>": 2, "<|endoftext|>": 32000, "<|assistant|>": 32001, "<|end|>": 32007}
    template = (
        "{% for m in messages %}{{'<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}"
        "{{ eos_token }}{% endif %}"
    )
    special = {"bos_token": "<s>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    auto = {"AutoConfig": "configuration_phi3.Phi3Config"}
    stops = [32000, 32001, 32007]
    return written(
        folder,
        config__json=config("phi3", "Phi3ForCausalLM", vocab_size=32064, eos_token_id=32000)
        | SMALL | {"auto_map": auto, "tie_word_embeddings": False, "pad_token_id": 32000},
        configuration_phi3__py="",
        generation_config__json={"eos_token_id": stops, "pad_token_id": 32000},
        tokenizer__json=tokenizer((), ends),
        added_tokens__json={"<|end|>": 32007},
        tokenizer__model=PIECES,
        tokenizer_config__json=special
        | {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False, "chat_template": template},
    )  # fmt: skip


@healthy(also=("file_unused", "folder_pad_unset", "begin_written_twice"))
def mistral_instruct_beside_its_consolidated_file(bench: Bench) -> Path:
    folder = bench.new()
    in_shards(folder, llama(32768))
    tensors_file(folder / "consolidated.safetensors", {"tok_embeddings.weight": (32768, 4)})
    template = (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
        "{{ '[INST] ' + m['content'] + '[/INST]' }}{% else %}{{ ' ' + m['content'] + eos_token}}"
        "{% endif %}{% endfor %}"
    )
    marks = {"<unk>": 0, "<s>": 1, "</s>": 2, "[INST]": 3, "[/INST]": 4}
    return written(
        folder,
        config__json=config("mistral", "MistralForCausalLM", vocab_size=32768, eos_token_id=2)
        | SMALL | {"tie_word_embeddings": False},
        generation_config__json={"bos_token_id": 1, "eos_token_id": 2},
        params__json={"dim": 4},
        tokenizer__model__v3=PIECES,
        tokenizer__json=tokenizer((), marks, "<s>"),
        tokenizer_config__json={"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>",
            "eos_token": "</s>", "add_bos_token": True, "chat_template": template},
    )  # fmt: skip


@healthy()
def bert_with_weights_of_every_framework(bench: Bench) -> Path:
    folder = bench.new()
    inside = ("attention.self.query.weight", "attention.output.LayerNorm.gamma")
    shapes = {
        "bert.embeddings.word_embeddings.weight": (30522, 4),
        "bert.embeddings.position_embeddings.weight": (512, 4),
        **layers("bert.encoder.layer", 2, inside),
        "cls.predictions.bias": (30522,), "cls.seq_relationship.weight": (2, 4),
    }  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F32")
    words = ["[PAD]", *(f"[unused{number}]" for number in range(30521))]
    return written(
        folder,
        config__json={"architectures": ["BertForMaskedLM"], "model_type": "bert",
            "vocab_size": 30522, "pad_token_id": 0} | SMALL,
        tokenizer_config__json={"do_lower_case": True, "model_max_length": 512},
        vocab__txt="\n".join(words) + "\n",
        tf_model__h5=b"\x89HDF\r\n\x1a\n", flax_model__msgpack=b"\x81\xa4", rust_model__ot=b"PK",
    )  # fmt: skip


@healthy()
def t5_with_its_pieces_alone(bench: Bench) -> Path:
    folder = bench.new()
    inside = ("layer.0.SelfAttention.q.weight", "layer.0.layer_norm.weight")
    shapes = {"shared.weight": (32128, 4), **layers("encoder.block", 2, inside)}
    tensors_file(folder / "model.safetensors", shapes | layers("decoder.block", 2, inside), "F32")
    return written(
        folder,
        config__json={"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
            "d_model": 4, "num_layers": 2, "vocab_size": 32128, "is_encoder_decoder": True,
            "eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0},
        generation_config__json={"decoder_start_token_id": 0, "eos_token_id": 1,
            "pad_token_id": 0},
        spiece__model=PIECES,
    )  # fmt: skip


@healthy()
def whisper_with_what_it_suppresses(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {
        "model.encoder.conv1.weight": (4, 80, 3), "model.encoder.embed_positions.weight": (1500, 4),
        **layers("model.encoder.layers", 2, ATTENTION),
        "model.decoder.embed_tokens.weight": (51865, 4),
        **layers("model.decoder.layers", 2, ATTENTION),
    }  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F32")
    generation = {
        "begin_suppress_tokens": [220, 50257], "suppress_tokens": [1, 2, 7, 8], "max_length": 448,
        "eos_token_id": 50257, "pad_token_id": 50257, "bos_token_id": 50257,
        "decoder_start_token_id": 50258, "forced_decoder_ids": [[1, None], [2, 50359]],
    }  # fmt: skip
    return written(
        folder,
        config__json={"architectures": ["WhisperForConditionalGeneration"],
            "model_type": "whisper", "vocab_size": 51865, "num_mel_bins": 80, "d_model": 4,
            "encoder_layers": 2, "decoder_layers": 2, "num_hidden_layers": 2,
            "is_encoder_decoder": True, "eos_token_id": 50257, "pad_token_id": 50257},
        generation_config__json=generation,
        preprocessor_config__json={"feature_extractor_type": "WhisperFeatureExtractor"},
        tokenizer_config__json={"tokenizer_class": "WhisperTokenizer",
            "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
        vocab__json={"a": 0, "<|endoftext|>": 50257}, merges__txt="#version: 0.2\n",
        added_tokens__json={"<|startoftranscript|>": 50258},
    )  # fmt: skip


@healthy()
def a_vision_model_without_words(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {"vit.embeddings.cls_token": (1, 1, 4), "classifier.weight": (1000, 4),
              **layers("vit.encoder.layer", 2, ("attention.attention.query.weight",))}  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F32")
    return written(
        folder,
        config__json={"architectures": ["ViTForImageClassification"], "model_type": "vit"} | SMALL,
        preprocessor_config__json=IMAGES,
    )


@healthy()
def clip_with_two_towers(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {
        "text_model.embeddings.token_embedding.weight": (49408, 4),
        "vision_model.embeddings.class_embedding": (4,), "logit_scale": (),
        **layers("text_model.encoder.layers", 2, ATTENTION),
        **layers("vision_model.encoder.layers", 4, ATTENTION),
    }  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F32")
    ends = {"<|startoftext|>": 49406, "<|endoftext|>": 49407}
    return written(
        folder,
        config__json={"architectures": ["CLIPModel"], "model_type": "clip",
            "text_config": {"vocab_size": 49408, "num_hidden_layers": 2},
            "vision_config": {"num_hidden_layers": 4}},
        preprocessor_config__json=IMAGES,
        tokenizer__json=tokenizer("ab", ends, "<|startoftext|>"),
        tokenizer_config__json={"tokenizer_class": "CLIPTokenizer",
            "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>"},
    )  # fmt: skip


@healthy()
def wav2vec_with_weight_norm(bench: Bench) -> Path:
    folder = bench.new()
    conv = "wav2vec2.encoder.pos_conv_embed.conv"
    shapes = {
        f"{conv}.weight_g": (1, 1, 4), f"{conv}.weight_v": (4, 2, 4), f"{conv}.bias": (4,),
        "wav2vec2.masked_spec_embed": (4,), "lm_head.weight": (32, 4), "lm_head.bias": (32,),
        **layers("wav2vec2.feature_extractor.conv_layers", 7, ("conv.weight",)),
        **layers("wav2vec2.encoder.layers", 2, ("attention.q_proj.weight",)),
    }  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F32")
    return written(
        folder,
        config__json={"architectures": ["Wav2Vec2ForCTC"], "model_type": "wav2vec2",
            "vocab_size": 32, "pad_token_id": 0, "eos_token_id": 2} | SMALL,
        preprocessor_config__json={"feature_extractor_type": "Wav2Vec2FeatureExtractor"},
        tokenizer_config__json={"tokenizer_class": "Wav2Vec2CTCTokenizer", "pad_token": "<pad>",
            "eos_token": "</s>"},
        vocab__json={"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4},
    )  # fmt: skip


@healthy(also=("folder_without_template",))
def llava_without_layers_in_its_configuration(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {f"language_model.{name}": shape for name, shape in llama(32064).items()}
    shapes |= layers("vision_tower.vision_model.encoder.layers", 3, ATTENTION)
    in_shards(folder, shapes | {"multi_modal_projector.linear_1.weight": (4, 4)}, dtype="F16")
    marks = {"<unk>": 0, "<s>": 1, "</s>": 2, "<image>": 32000, "<pad>": 32001}
    return written(
        folder,
        config__json={"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "image_token_index": 32000, "torch_dtype": "float16", "pad_token_id": 32001,
            "text_config": {"_name_or_path": "lmsys/vicuna-7b-v1.5", "vocab_size": 32064},
            "vision_config": {"num_hidden_layers": 24}},
        generation_config__json={"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 32001},
        preprocessor_config__json=IMAGES,
        tokenizer__json=tokenizer((), marks, "<s>"),
        tokenizer_config__json={"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>",
            "eos_token": "</s>", "pad_token": "<pad>"},
    )  # fmt: skip


@healthy(also=("settings_shipped", "folder_pad_is_end"))
def qwen2_vl_with_tied_words(bench: Bench) -> Path:
    folder = bench.new()
    shapes = llama(151936, head=False) | layers("visual.blocks", 5, ("attn.qkv.weight",))
    in_shards(folder, shapes | {"visual.merger.mlp.0.weight": (4, 4)})
    marks = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
    marks |= {"<|vision_start|>": 151652, "<|vision_end|>": 151653, "<|image_pad|>": 151655}
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        "<|vision_start|><|image_pad|><|vision_end|>"
    )
    generation = {"do_sample": True, "temperature": 0.01, "top_k": 1, "top_p": 0.001}
    stops = {"eos_token_id": [151645, 151643], "pad_token_id": 151643, "bos_token_id": 151643}
    return written(
        folder,
        config__json=config("qwen2_vl", "Qwen2VLForConditionalGeneration", vocab_size=151936)
        | SMALL | {"tie_word_embeddings": True, "eos_token_id": 151645, "image_token_id": 151655},
        generation_config__json=generation | stops,
        preprocessor_config__json={"image_processor_type": "Qwen2VLImageProcessor"},
        chat_template__json={"chat_template": template},
        tokenizer__json=tokenizer("ab", marks),
        tokenizer_config__json={"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>", "chat_template": template},
    )  # fmt: skip


@healthy(also=("folder_without_template",))
def opt_whose_begin_is_its_end(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {"model.decoder.embed_tokens.weight": (50272, 4),
              "model.decoder.embed_positions.weight": (2050, 4),
              **layers("model.decoder.layers", 2, ATTENTION)}  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F16")
    special = {name: {"__type": "AddedToken", "content": "</s>"} for name in ("bos_token",
               "eos_token", "unk_token")}  # fmt: skip
    return written(
        folder,
        config__json={"architectures": ["OPTForCausalLM"], "model_type": "opt",
            "vocab_size": 50272, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
            "torch_dtype": "float16", "word_embed_proj_dim": 4} | SMALL,
        generation_config__json={"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1},
        tokenizer_config__json=special | {"tokenizer_class": "GPT2Tokenizer",
            "add_bos_token": True, "pad_token": "<pad>"},
        vocab__json={"<s>": 0, "<pad>": 1, "</s>": 2, "a": 50264}, merges__txt="#version: 0.2\n",
    )  # fmt: skip


@healthy(also=("folder_without_template",))
def bloom_without_a_prefix(bench: Bench) -> Path:
    folder = bench.new()
    inside = ("self_attention.query_key_value.weight", "input_layernorm.weight")
    shapes = {"word_embeddings.weight": (250880, 2), "word_embeddings_layernorm.weight": (2,)}
    tensors_file(folder / "model.safetensors", shapes | layers("h", 2, inside), "F16")
    return written(
        folder,
        config__json={"architectures": ["BloomForCausalLM"], "model_type": "bloom",
            "vocab_size": 250880, "n_layer": 2, "n_embed": 2, "eos_token_id": 2,
            "pad_token_id": 3, "torch_dtype": "float16"},
        tokenizer__json=tokenizer((), {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "z": 250679}),
        tokenizer_config__json={"tokenizer_class": "BloomTokenizerFast", "pad_token": "<pad>",
            "eos_token": "</s>", "bos_token": "<s>"},
    )  # fmt: skip


@healthy(also=("folder_without_template",))
def pythia_with_a_head_of_another_name(bench: Bench) -> Path:
    folder = bench.new()
    inside = ("attention.query_key_value.weight", "attention.bias", "input_layernorm.weight")
    shapes = {"gpt_neox.embed_in.weight": (50304, 4), "embed_out.weight": (50304, 4)}
    tensors_file(folder / "model.safetensors", shapes | layers("gpt_neox.layers", 2, inside), "F16")
    return written(
        folder,
        config__json={"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
            "vocab_size": 50304, "eos_token_id": 0, "bos_token_id": 0,
            "tie_word_embeddings": False, "torch_dtype": "float16"} | SMALL,
        tokenizer__json=tokenizer((), {"<|endoftext|>": 0, "  ": 50276}),
        tokenizer_config__json={"tokenizer_class": "GPTNeoXTokenizer",
            "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    )  # fmt: skip


@healthy(also=("folder_without_tokenizer",))
def experts_and_a_layer_that_predicts_ahead_in_eight_bits(bench: Bench) -> Path:
    folder = bench.new()
    experts = [f"mlp.experts.{n}.up_proj.weight@F8_E4M3" for n in range(2)]
    scales = [f"mlp.experts.{n}.up_proj.weight_scale_inv@F32" for n in range(2)]
    shapes = llama(64) | layers("model.layers", 3, [*experts, *scales])
    in_shards(folder, shapes | {"model.layers.2.eh_proj.weight": (4, 8)})
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    return written(
        folder,
        config__json=config("deepseek_v3", "DeepseekV3ForCausalLM", vocab_size=64) | SMALL
        | {"num_nextn_predict_layers": 1, "quantization_config": quantised,
           "tie_word_embeddings": False, "eos_token_id": 1},
    )  # fmt: skip


@healthy(also=("folder_without_tokenizer",))
def weights_packed_in_four_bits(bench: Bench) -> Path:
    folder = bench.new()
    packed = {}
    for name, shape in llama(64).items():
        if name.endswith("_proj.weight"):
            stem = name.removesuffix("weight")
            packed |= {f"{stem}qweight@I32": (1, 4), f"{stem}qzeros@I32": (1, 1)}
            packed |= {f"{stem}scales": (1, 4), f"{stem}g_idx@I32": (4,)}
        else:
            packed[name] = shape
    tensors_file(folder / "model.safetensors", packed, "F16")
    quantised = {"quant_method": "gptq", "bits": 4}
    return written(
        folder,
        config__json=config("llama", "LlamaForCausalLM", vocab_size=64) | SMALL
        | {"quantization_config": quantised, "tie_word_embeddings": False},
    )  # fmt: skip


@healthy()
def sentences_to_vectors(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {"embeddings.word_embeddings.weight": (30522, 4),
              **layers("encoder.layer", 2, ("attention.self.query.weight",))}  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F32")
    written(folder / "1_Pooling", config__json={"word_embedding_dimension": 4})
    return written(
        folder,
        config__json={"architectures": ["BertModel"], "model_type": "bert",
            "vocab_size": 30522} | SMALL,
        modules__json=[], config_sentence_transformers__json={}, sentence_bert_config__json={},
        vocab__txt="[PAD]\n[UNK]\n", tokenizer_config__json={"tokenizer_class": "BertTokenizer"},
    )  # fmt: skip


@healthy()
def an_adapter_and_its_base_model_by_name(bench: Bench) -> Path:
    folder = bench.new()
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    shapes = {f"{stem}.lora_A.weight": (2, 4), f"{stem}.lora_B.weight": (4, 2)}
    tensors_file(folder / "adapter_model.safetensors", shapes)
    return written(
        folder,
        adapter_config__json={"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 2},
        README__md="---\n---\n",
    )


@healthy()
def a_checkpoint_of_a_trainer(bench: Bench) -> Path:
    folder = bench.new()
    in_shards(folder, llama(64), dtype="F32")
    ends = {"<s>": 1, "</s>": 2, "<pad>": 3}
    own = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    return written(
        folder,
        config__json=config("llama", "LlamaForCausalLM", vocab_size=64, eos_token_id=2) | SMALL
        | {"torch_dtype": "float32", "tie_word_embeddings": False},
        generation_config__json={"bos_token_id": 1, "eos_token_id": 2},
        optimizer__pt=b"PK\x03\x04", scheduler__pt=b"PK\x03\x04", rng_state__pth=b"PK\x03\x04",
        training_args__bin=b"PK\x03\x04", trainer_state__json={"global_step": 500},
        tokenizer__json=tokenizer("ab", ends),
        tokenizer_config__json=own | {"pad_token": "<pad>",
            "chat_template": "{% for m in messages %}{{ m['content'] + eos_token }}{% endfor %}"},
    )  # fmt: skip


def _two_halves(words: int) -> dict[str, tuple[int, ...]]:
    """Shapes of an encoder and a decoder that share a vocabulary of so many words."""
    return {
        "model.shared.weight": (words, 4),
        "final_logits_bias": (1, words),
        **layers("model.encoder.layers", 2, ATTENTION),
        **layers("model.decoder.layers", 2, ATTENTION),
    }


@healthy(also=("settings_shipped",))
def bart_that_summarises_with_beams(bench: Bench) -> Path:
    folder = bench.new()
    tensors_file(folder / "model.safetensors", _two_halves(50264), "F32")
    generation = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3,
                  "early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2,
                  "max_length": 142, "min_length": 56, "pad_token_id": 1}  # fmt: skip
    return written(
        folder,
        config__json={"architectures": ["BartForConditionalGeneration"], "model_type": "bart",
            "vocab_size": 50264, "is_encoder_decoder": True, "d_model": 4,
            "encoder_layers": 2, "num_hidden_layers": 2, "eos_token_id": 2, "pad_token_id": 1},
        generation_config__json=generation,
        tokenizer_config__json={"model_max_length": 1024},
        vocab__json={"<s>": 0, "<pad>": 1, "</s>": 2, "a": 50263}, merges__txt="#version: 0.2\n",
    )  # fmt: skip


@healthy(also=("settings_shipped",))
def marian_with_two_piece_models(bench: Bench) -> Path:
    folder = bench.new()
    tensors_file(folder / "model.safetensors", _two_halves(58101), "F32")
    generation = {"bad_words_ids": [[58100]], "num_beams": 4, "forced_eos_token_id": 0,
                  "eos_token_id": 0, "pad_token_id": 58100, "max_length": 512,
                  "decoder_start_token_id": 58100}  # fmt: skip
    return written(
        folder,
        config__json={"architectures": ["MarianMTModel"], "model_type": "marian",
            "vocab_size": 58101, "is_encoder_decoder": True, "eos_token_id": 0,
            "pad_token_id": 58100, "num_hidden_layers": 2},
        generation_config__json=generation,
        source__spm=PIECES, target__spm=PIECES, vocab__json={"</s>": 0, "<pad>": 58100},
        tokenizer_config__json={"source_lang": "eng", "target_lang": "deu"},
    )  # fmt: skip


@healthy()
def speech_and_text_with_two_vocabularies(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {"shared.weight": (256102, 2), "t2u_model.model.decoder.embed_tokens.weight": (90, 2),
              **layers("text_encoder.layers", 2, ATTENTION)}  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F32")
    return written(
        folder,
        config__json={"architectures": ["SeamlessM4TModel"], "model_type": "seamless_m4t",
            "vocab_size": 256102, "t2u_vocab_size": 90, "is_encoder_decoder": True,
            "eos_token_id": 3, "pad_token_id": 0},
        generation_config__json={"eos_token_id": 3, "pad_token_id": 0},
        preprocessor_config__json={"feature_extractor_type": "SeamlessM4TFeatureExtractor"},
        tokenizer__json=tokenizer((), {"<pad>": 0, "</s>": 3, "__zul__": 256101}),
        tokenizer_config__json={"tokenizer_class": "SeamlessM4TTokenizer", "eos_token": "</s>",
            "pad_token": "<pad>"},
    )  # fmt: skip


@healthy(also=("folder_pad_unset",))
def a_chat_model_with_words_between_roles(bench: Bench) -> Path:
    """Its template names the end by the variable alone, beside a mark that ends a role's name."""
    folder = bench.new()
    tensors_file(folder / "model.safetensors", llama(49155, head=False))
    marks = {"<|end_of_text|>": 0, "<|start_of_role|>": 49152, "<|end_of_role|>": 49153}
    template = (
        "{% for m in messages %}{{ '<|start_of_role|>' + m['role'] + '<|end_of_role|>' + "
        "m['content'] + eos_token }}{% endfor %}"
    )
    return written(
        folder,
        config__json=config("granite", "GraniteForCausalLM", vocab_size=49155, eos_token_id=0)
        | SMALL | {"tie_word_embeddings": True},
        generation_config__json={"bos_token_id": 0, "eos_token_id": 0},
        tokenizer__json=tokenizer((), marks),
        chat_template__jinja=template,
        tokenizer_config__json={"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|end_of_text|>",
            "bos_token": "<|end_of_text|>"},
    )  # fmt: skip


@healthy(also=("folder_without_tokenizer",))
def a_state_space_model(bench: Bench) -> Path:
    folder = bench.new()
    inside = ("mixer.A_log", "mixer.in_proj.weight", "norm.weight")
    shapes = {"backbone.embeddings.weight": (50280, 4), **layers("backbone.layers", 2, inside)}
    tensors_file(folder / "model.safetensors", shapes | {"backbone.norm_f.weight": (4,)}, "F32")
    return written(
        folder,
        config__json={"architectures": ["MambaForCausalLM"], "model_type": "mamba",
            "vocab_size": 50280, "n_layer": 2, "eos_token_id": 0} | SMALL,
    )  # fmt: skip


@healthy(also=("folder_without_tokenizer",))
def a_second_precision_beside_the_first(bench: Bench) -> Path:
    folder = bench.new()
    tensors_file(folder / "model.safetensors", llama(64), "F32")
    tensors_file(folder / "model.fp16.safetensors", llama(64), "F16")
    tensors_file(folder / "onnx.safetensors", {"x": (1,)})
    return written(
        folder,
        config__json=config("llama", "LlamaForCausalLM", vocab_size=64) | SMALL
        | {"torch_dtype": "float32", "tie_word_embeddings": False},
    )  # fmt: skip


@healthy(also=("folder_without_tokenizer",))
def a_model_whose_embedding_is_narrower(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {"model.decoder.embed_tokens.weight": (64, 2),
              "model.decoder.project_in.weight": (4, 2), "model.decoder.project_out.weight": (2, 4),
              **layers("model.decoder.layers", 2, LLAMA)}  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F16")
    return written(
        folder,
        config__json={"architectures": ["OPTForCausalLM"], "model_type": "opt", "vocab_size": 64,
            "word_embed_proj_dim": 2, "torch_dtype": "float16", "eos_token_id": 2} | SMALL,
    )  # fmt: skip


@healthy(also=("folder_without_tokenizer",))
def one_layer_that_runs_many_times(bench: Bench) -> Path:
    folder = bench.new()
    shapes = {"albert.embeddings.word_embeddings.weight": (64, 2), **layers(
        "albert.encoder.albert_layer_groups.0.albert_layers", 1, ("attention.query.weight",)
    )}  # fmt: skip
    tensors_file(folder / "model.safetensors", shapes, "F32")
    return written(
        folder,
        config__json={"architectures": ["AlbertForMaskedLM"], "model_type": "albert",
            "vocab_size": 64, "embedding_size": 2, "num_hidden_groups": 1} | SMALL
        | {"num_hidden_layers": 12},
    )  # fmt: skip


def _values(held: Any) -> Any:
    """Every object inside a JSON value, with its keys, from the outside in."""
    if isinstance(held, dict):
        yield held
        for one in held.values():
            yield from _values(one)


ODD = (None, [], {}, "x", -1, True, [None], [{}], {"content": None})


def odd_folders(bench: Bench) -> Iterator[tuple[str, Path]]:
    """A published folder with one value after the other of another kind than it should be."""
    number = 0
    for make in (llama_3_instruct, whisper_with_what_it_suppresses, opt_whose_begin_is_its_end):
        folder = make(bench)
        for path in sorted(folder.glob("*.json")):
            whole = path.read_text("utf-8")
            if path.name.endswith("index.json") or not whole.startswith("{"):
                continue
            for place, part in enumerate(_values(json.loads(whole))):
                for key in list(part)[:9]:
                    changed = json.loads(whole)
                    inner = list(_values(changed))[place]
                    inner[key] = ODD[number % len(ODD)]
                    number += 1
                    path.write_text(json.dumps(changed), "utf-8")
                    yield f"{make.__name__} {path.name} {key}", folder
            path.write_text(whole, "utf-8")
