"""Faults of names that a load shows: what a wrapper or a converter wrote, and the model lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault
from diagnosis.faults.weights import changed, loaded
from safetensors.torch import load_file, save_file
from torch.nn.utils import parametrize, prune
from transformers import AutoModelForCausalLM

ALL = ("weights_wrapped", "weights_prefixed", "weights_initialised", "head_random")


def renamed(bench: Bench, change: Callable[[str], str], family: str = "llama") -> Any:
    """A family's folder whose tensors have other names."""
    return changed(bench, family, lambda held: {change(key): one for key, one in held.items()})


def of_state(bench: Bench, state: dict[str, Any]) -> Any:
    """A Llama's folder whose file holds this state."""
    folder = bench.copy(bench.folder("llama"))
    whole = {name: one.detach().clone().contiguous() for name, one in state.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@fault("weights_wrapped")
def a_load_of_a_model_saved_while_compiled(bench: Bench):
    model = torch.compile(bench.fresh("llama"), backend="eager")
    return loaded(bench, of_state(bench, model.state_dict()))


@fault("weights_wrapped")
def a_load_of_a_model_saved_in_its_parallel_wrapper(bench: Bench):
    model = torch.nn.DataParallel(bench.fresh("llama"))
    return loaded(bench, of_state(bench, model.state_dict()))


@fault("weights_wrapped")
def a_load_of_layers_saved_while_compiled(bench: Bench):
    model = bench.fresh("llama")
    for number, layer in enumerate(model.model.layers):
        model.model.layers[number] = torch.compile(layer, backend="eager")
    return loaded(bench, of_state(bench, model.state_dict()))


@fault("weights_wrapped")
def a_load_of_a_pruned_model(bench: Bench):
    model = bench.fresh("llama")
    for layer in model.model.layers:
        for part in (layer.self_attn.q_proj, layer.mlp.up_proj, layer.mlp.down_proj):
            prune.l1_unstructured(part, "weight", 0.5)
    return loaded(bench, of_state(bench, model.state_dict()))


class _Same(torch.nn.Module):
    def forward(self, weight: Any) -> Any:
        return weight


@fault("weights_wrapped")
def a_load_of_a_model_with_parametrizations(bench: Bench):
    model = bench.fresh("llama")
    for layer in model.model.layers:
        for part in (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.gate_proj):
            parametrize.register_parametrization(part, "weight", _Same())
    return loaded(bench, of_state(bench, model.state_dict()))


def adapted(key: str) -> str:
    is_adapted = key.endswith(("q_proj.weight", "v_proj.weight"))
    return key.replace(".weight", ".base_layer.weight") if is_adapted else key


@fault("weights_wrapped")
def a_load_of_an_adapted_model_saved_whole(bench: Bench):
    return loaded(bench, renamed(bench, adapted))


@fault("weights_wrapped")
def a_load_of_an_adapted_model_in_its_wrapper(bench: Bench):
    return loaded(bench, renamed(bench, lambda key: f"base_model.model.{adapted(key)}"))


@fault("weights_wrapped")
def a_load_of_opt_with_every_part_adapted(bench: Bench):
    folder = bench.copy(bench.other("opt"))
    held = load_file(folder / "model.safetensors")
    held = {key.replace("proj.weight", "proj.base_layer.weight"): one for key, one in held.items()}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return loaded(bench, folder)


@fault("weights_prefixed")
def a_part_that_is_called_otherwise_in_each_layer(bench: Bench):
    return loaded(bench, renamed(bench, lambda key: key.replace("o_proj", "dense")))


@fault("weights_prefixed")
def a_word_inside_every_linear_name(bench: Bench):
    def change(key: str) -> str:
        return key.replace("proj.weight", "proj.inner.weight")

    return loaded(bench, renamed(bench, change))


@fault("weights_prefixed")
def norms_that_are_called_otherwise(bench: Bench):
    def change(key: str) -> str:
        return key.replace("layernorm.weight", "layernorm.scale")

    return loaded(bench, renamed(bench, change))


@fault("weights_initialised")
def parts_of_which_nobody_can_say_which_is_which(bench: Bench):
    words = {"gate_proj": "w1", "up_proj": "w3"}

    def change(key: str) -> str:
        for word, other in words.items():
            key = key.replace(word, other)
        return key

    return loaded(bench, renamed(bench, change))


@clean(*ALL, generations=(5,))
def names_that_are_mapped_while_loading(bench: Bench):
    folder = renamed(bench, lambda key: f"_orig_mod.{key}")
    return loaded(bench, folder, AutoModelForCausalLM, key_mapping={r"_orig_mod\.": ""})


@clean(*ALL)
def words_inside_that_are_mapped_while_loading(bench: Bench):
    return loaded(bench, renamed(bench, adapted), key_mapping={r"base_layer\.": ""})


@clean(*ALL)
def an_adapter_that_was_merged(bench: Bench):
    model = bench.fresh("llama")
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight.add_(0.1)
    return loaded(bench, of_state(bench, model.state_dict()))


@clean(*ALL)
def weight_norm_under_its_older_names(bench: Bench):
    folder = bench.copy(bench.other("wav2vec2"))
    held = load_file(folder / "model.safetensors")
    for new, old in (("original0", "g"), ("original1", "v")):
        held = {
            key.replace(f"parametrizations.weight.{new}", f"weight_{old}"): one
            for key, one in held.items()
        }
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return loaded(bench, folder, bench.other_auto("wav2vec2"))
