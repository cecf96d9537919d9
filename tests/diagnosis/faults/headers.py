"""Faults that tensor names and shapes show against a configuration, before any load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diagnosis import handmade
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault

BARE = ("folder_without_tokenizer",)
ALL = ("names_wrapped", "head_not_stored", "config_of_another_size", "layers_lacking")
ALL += ("config_without_type",)
LLAMA_CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 4, "num_hidden_layers": 2, "vocab_size": 32, "tie_word_embeddings": False,
}  # fmt: skip


def folder_of(bench: Bench, shapes: Any, **config: Any) -> Path:
    """A folder of these tensors, with a Llama's configuration but for what is given."""
    folder = bench.new()
    handmade.tensors_file(folder / "model.safetensors", shapes)
    content = {name: one for name, one in (LLAMA_CONFIG | config).items() if one is not None}
    return handmade.written(folder, config__json=content)


def renamed(change: Any, shapes: Any = None) -> dict[str, Any]:
    return {change(name): shape for name, shape in (shapes or handmade.llama()).items()}


@clean(*ALL, also=BARE)
def a_llama_by_its_names(bench: Bench):
    return folder_of(bench, handmade.llama())


@fault("names_wrapped", also=BARE)
def a_model_saved_while_compiled(bench: Bench):
    return folder_of(bench, renamed(lambda name: f"_orig_mod.{name}"))


@fault("names_wrapped", also=BARE)
def a_model_saved_in_its_parallel_wrapper(bench: Bench):
    return folder_of(bench, renamed(lambda name: f"module.{name}"))


@fault("names_wrapped", also=BARE)
def layers_saved_while_compiled(bench: Bench):
    return folder_of(bench, renamed(lambda name: name.replace("layers.1.", "layers.1._orig_mod.")))


@fault("names_wrapped", also=BARE)
def an_adapted_model_saved_whole(bench: Bench):
    shapes = renamed(lambda name: name.replace("q_proj.weight", "q_proj.base_layer.weight"))
    return folder_of(bench, shapes | handmade.layers(
        "model.layers", 2, ("self_attn.q_proj.lora_A.default.weight",)
    ))  # fmt: skip


@fault("names_wrapped", also=BARE)
def a_model_saved_with_its_prunings(bench: Bench):
    shapes = renamed(lambda name: name.replace("_proj.weight", "_proj.weight_orig"))
    masks = {name + "_mask": shape for name, shape in handmade.llama().items() if "_proj." in name}
    return folder_of(bench, shapes | masks)


@fault("names_wrapped", also=BARE)
def a_model_saved_in_shards_of_its_state(bench: Bench):
    folder = bench.new()
    inside = "layers.0._fsdp_wrapped_module."
    handmade.in_shards(folder, renamed(lambda name: name.replace("layers.0.", inside)))
    return handmade.written(folder, config__json=LLAMA_CONFIG)


@clean("names_wrapped", also=BARE)
def a_part_of_the_model_that_is_called_module(bench: Bench):
    shapes = handmade.llama() | {"model.module.weight": (4, 4), "module.scale": (4,)}
    return folder_of(bench, shapes)


@clean("names_wrapped")
def an_adapter_alone(bench: Bench):
    folder = bench.new()
    handmade.tensors_file(
        folder / "adapter_model.safetensors",
        handmade.layers("base_model.model.model.layers", 2, ("self_attn.q_proj.lora_A.weight",)),
    )
    return handmade.written(folder, adapter_config__json={"peft_type": "LORA"})


@fault("head_not_stored", also=BARE)
def a_tie_that_was_taken_out_of_the_configuration(bench: Bench):
    return folder_of(bench, handmade.llama(head=False))


@fault("head_not_stored", also=BARE)
def a_tie_that_was_taken_out_of_gpt2(bench: Bench):
    inside = ("attn.c_attn.weight", "ln_1.weight")
    shapes = {"transformer.wte.weight": (64, 4), "transformer.wpe.weight": (16, 4)}
    shapes |= handmade.layers("transformer.h", 2, inside) | {"transformer.ln_f.weight": (4,)}
    own = {"architectures": ["GPT2ForCausalLM"], "model_type": "gpt2", "n_embd": 4, "n_layer": 2}
    return folder_of(bench, shapes, **own, vocab_size=64)


@clean("head_not_stored", also=BARE)
def a_head_that_is_tied_by_the_configuration(bench: Bench):
    return folder_of(bench, handmade.llama(head=False), tie_word_embeddings=True)


@clean("head_not_stored", also=BARE)
def a_class_whose_default_is_not_known_here(bench: Bench):
    return folder_of(bench, handmade.llama(head=False), tie_word_embeddings=None)


@clean("head_not_stored", also=BARE)
def a_body_without_a_head_on_purpose(bench: Bench):
    own = {"architectures": ["LlamaModel"], "tie_word_embeddings": False}
    return folder_of(
        bench, renamed(lambda n: n.removeprefix("model."), handmade.llama(head=False)), **own
    )


@clean("head_not_stored", also=BARE)
def a_head_under_an_older_name(bench: Bench):
    shapes = {name.replace("lm_head", "output"): one for name, one in handmade.llama().items()}
    return folder_of(bench, shapes)


@fault("layers_lacking", also=BARE)
def half_of_the_layers(bench: Bench):
    return folder_of(bench, handmade.llama(), num_hidden_layers=4)


@fault("layers_lacking", also=BARE)
def half_of_the_layers_of_the_text_model(bench: Bench):
    shapes = renamed(lambda name: f"language_model.{name}", handmade.llama())
    shapes |= handmade.layers("vision_tower.vision_model.encoder.layers", 3, handmade.ATTENTION)
    own = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}
    text = {"num_hidden_layers": 4, "hidden_size": 4, "vocab_size": 32}
    return folder_of(bench, shapes, **own, text_config=text, num_hidden_layers=None)


@clean("layers_lacking", also=("file_absent", *BARE))
def layers_in_a_file_that_is_absent(bench: Bench):
    folder = bench.new()
    handmade.in_shards(folder, handmade.llama(), 2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    return handmade.written(folder, config__json=LLAMA_CONFIG)


@clean("layers_lacking", "layers_dropped", also=BARE)
def an_encoder_with_fewer_layers_than_its_decoder(bench: Bench):
    shapes = {
        "model.shared.weight": (32, 4),
        **handmade.layers("model.encoder.layers", 1, handmade.LLAMA),
    }
    shapes |= handmade.layers("model.decoder.layers", 2, handmade.LLAMA)
    own = {"architectures": ["BartForConditionalGeneration"], "model_type": "bart"}
    return folder_of(bench, shapes, **own, is_encoder_decoder=True, tie_word_embeddings=None)


@fault("config_of_another_size", also=BARE)
def the_configuration_of_a_larger_model(bench: Bench):
    return folder_of(bench, handmade.llama(), hidden_size=8)


@fault("config_of_another_size", also=BARE)
def the_text_configuration_of_a_larger_model(bench: Bench):
    text = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 32}
    return folder_of(bench, handmade.llama(), text_config=text, hidden_size=None)


@clean("config_of_another_size", also=BARE)
def an_embedding_that_is_projected(bench: Bench):
    shapes = handmade.llama(head=False) | {"model.embed_tokens.weight": (32, 2)}
    return folder_of(bench, shapes, word_embed_proj_dim=2, tie_word_embeddings=None)


@fault("config_without_type", also=BARE)
def a_configuration_without_a_family(bench: Bench):
    return folder_of(bench, handmade.llama(), model_type=None)


@fault("config_without_type")
def a_configuration_of_another_library(bench: Bench):
    folder = bench.new()
    handmade.tensors_file(folder / "model.safetensors", {"enc_p.emb.weight": (4, 4)}, "F32")
    return handmade.written(
        folder, config__json={"model": {"n_layers": 3}, "data": {"sampling_rate": 22050}}
    )


@clean("config_without_type", also=("remote_code_present", *BARE))
def a_family_of_the_folders_own(bench: Bench):
    auto = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}
    return folder_of(bench, handmade.llama(), model_type=None, auto_map=auto)


@clean("names_wrapped", also=("folder_without_template",))
def a_whole_state_of_phi_by_its_names(bench: Bench):
    shapes = {name.replace("q_proj", "qkv_proj"): one for name, one in handmade.llama().items()}
    own = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "b", "pad_token": "a"}
    folder = folder_of(bench, shapes, architectures=["Phi3ForCausalLM"], model_type="phi3")
    return handmade.written(
        folder, tokenizer__json=handmade.tokenizer("abc"), tokenizer_config__json=own
    )
