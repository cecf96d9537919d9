"""Faults of a live model, with its processor."""

import copy

import torch
from diagnosis.bench import Bench, rewritten
from diagnosis.cases import clean, fault
from diagnosis.faults.placement import LAYER_ON_DISK
from transformers import AutoModelForCausalLM, AutoTokenizer

ALL = ("model_on_meta", "model_offloaded", "model_untied", "model_in_training", "model_compiled")
ALL += ("model_hooked", "model_mixes_dtypes", "model_differs")
FRONT = ("model_pads_on_the_right", "model_stops_elsewhere", "model_without_pad")
FRONT += ("model_without_template",)


def chat(bench: Bench):
    """The chat model, and a tokenizer of its own that pads on the left."""
    return bench.chat_model()[0], AutoTokenizer.from_pretrained(bench.chat(), padding_side="left")


@clean(*ALL, *FRONT)
def a_chat_model_and_its_tokenizer(bench: Bench):
    return chat(bench)


@clean(*ALL)
def a_tied_model_alone(bench: Bench):
    return bench.fresh("qwen2")


@fault("model_on_meta")
def a_norm_on_meta(bench: Bench):
    model = bench.fresh("llama")
    model.model.norm.to("meta")
    return model


@fault("model_offloaded")
def a_layer_on_the_disk(bench: Bench):
    return AutoModelForCausalLM.from_pretrained(
        bench.folder("llama", max_shard_size="9KB"),
        device_map=LAYER_ON_DISK,
        offload_folder=str(bench.new()),
    )


@fault("model_untied", also=("model_differs",))
def a_head_copied_from_its_embedding(bench: Bench):
    model = bench.fresh("qwen2")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


@fault("model_in_training")
def a_model_that_was_left_training(bench: Bench):
    return bench.fresh("gpt2").train()


@fault("model_compiled")
def a_model_that_was_compiled(bench: Bench):
    model = bench.fresh("llama")
    model.compile(backend="eager")
    return model


@fault("model_compiled")
def a_layer_that_was_compiled(bench: Bench):
    model = bench.fresh("llama")
    model.model.layers[1] = torch.compile(model.model.layers[1], backend="eager")
    return model


@fault("model_compiled", "model_differs")
def a_compiled_layer_that_was_changed(bench: Bench):
    model = a_layer_that_was_compiled(bench)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.add_(1)
    return model


@fault("model_hooked")
def a_hook_of_the_users(bench: Bench):
    model = bench.fresh("llama")
    model.model.norm.register_forward_hook(lambda module, inputs, output: None)
    return model


@fault("model_mixes_dtypes", also=("model_differs",))
def a_head_in_another_dtype(bench: Bench):
    model = bench.fresh("llama")
    model.lm_head.to(torch.bfloat16)
    return model


@fault("model_differs")
def a_weight_changed_after_the_load(bench: Bench):
    model = bench.fresh("llama")
    with torch.no_grad():
        model.model.norm.weight.add_(1)
    return model


@fault("model_pads_on_the_right")
def a_tokenizer_that_pads_on_the_right(bench: Bench):
    model, tokenizer = chat(bench)
    tokenizer.padding_side = "right"
    return model, tokenizer


@fault("model_stops_elsewhere")
def an_end_that_stops_nothing(bench: Bench):
    model, tokenizer = chat(bench)
    other = copy.copy(model)  # the weights are shared, the settings are not
    other.generation_config = copy.deepcopy(model.generation_config)
    other.generation_config.eos_token_id = 3
    return other, tokenizer


@fault("model_without_pad")
def a_tokenizer_without_a_pad(bench: Bench):
    model, tokenizer = chat(bench)
    tokenizer.pad_token = None
    return model, tokenizer


@fault("model_without_template")
def a_tokenizer_without_a_chat_template(bench: Bench):
    folder = bench.copy(bench.chat())
    rewritten(folder / "tokenizer_config.json", lambda own: own.pop("chat_template"))
    return bench.chat_model()[0], AutoTokenizer.from_pretrained(folder, padding_side="left")
