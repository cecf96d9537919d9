"""Faults put into a loaded model: `audit_model` names each tensor, what is wrong, and no other."""

import copy
import json

import pytest
import torch
from instrument.families import saved

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations
FOUR = release() < FIVE
MIXTRAL = "model.layers.1.mlp.experts"


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """A new model of a family, with the folder that it comes from."""
    folders = {}

    def of(family, **settings):
        if family not in folders:
            folder = tmp_path_factory.mktemp(family)
            folders[family] = folder, saved(family, folder)
        folder, auto = folders[family]
        return auto.from_pretrained(folder, **settings), folder

    return of


def faults(model, folder):
    """Checks that are broken, to what each parameter is said to be."""
    found = tracer.audit_model(model, folder)
    broken = found[found["verdict"] == "broken"]
    rows = zip(broken["check"], map(json.loads, broken["evidence"]), strict=True)
    return {check: dict(each.split(": ", 1) for each in evidence) for check, evidence in rows}


def only(model, folder, check, param):
    """What is said of the one parameter that breaks the one check."""
    found = faults(model, folder)
    assert list(found) == [check]
    assert list(found[check]) == [param]
    return found[check][param]


@torch.no_grad()
def test_a_value_changed_after_the_load(load):
    model, folder = load("llama")
    model.model.layers[1].mlp.up_proj.weight[3, 4] = 2
    why = only(model, folder, "4 parameters = sources", "model.layers.1.mlp.up_proj.weight")
    assert why.startswith("differs from its source in 1 of 384 values; the first at [3, 4] is 2 ")


@torch.no_grad()
def test_a_nan_is_a_difference_and_a_nan_of_the_file_is_none(load, tmp_path):
    model, folder = load("llama")
    model.model.norm.weight[2] = float("nan")
    why = only(model, folder, "4 parameters = sources", "model.norm.weight")
    assert "differs from its source in 1 of 16 values; the first at [2] is nan" in why
    model.save_pretrained(tmp_path)
    assert faults(model, tmp_path) == {}


@torch.no_grad()
def test_minus_zero_is_not_zero(load):
    model, _ = load("llama")
    model.model.norm.weight[0] = 0.0
    source = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert faults(model, source) == {}
    model.model.norm.weight[0] = -0.0
    assert "4 parameters = sources" in faults(model, source)


@torch.no_grad()
def test_a_parameter_filled_from_another_tensor(load):
    model, folder = load("llama")
    layers = model.model.layers
    layers[0].self_attn.k_proj.weight.copy_(layers[1].self_attn.v_proj.weight)
    why = only(model, folder, "4 parameters = sources", "model.layers.0.self_attn.k_proj.weight")
    assert why == "holds model.layers.1.self_attn.v_proj.weight instead"


@torch.no_grad()
def test_a_parameter_filled_from_another_tensor_that_the_file_calls_otherwise(load):
    model, folder = load("qwen2_5_vl")
    named = dict(model.named_parameters())
    (param,) = [name for name in named if name.endswith("layers.0.mlp.up_proj.weight")]
    other = param.replace(".0.", ".1.")
    named[param].copy_(named[other])
    why = only(model, folder, "4 parameters = sources", param)
    key = other.replace("language_model.", "")
    assert why == f"holds {other if key == other else f'{other} ({key} of the file)'} instead"


@torch.no_grad()
def test_a_fused_parameter_filled_from_another_layer(load):
    model, folder = load("mixtral")
    named = dict(model.named_parameters())
    first, second = [
        name for name in named if ("expert" in name and "down" in name) or ".1.w2" in name
    ]
    named[first].copy_(named[second])
    why = only(model, folder, "4 parameters = sources", first)
    assert why.startswith(f"holds {second}")


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_garbage_rotary_buffer(load, dtype):
    model, folder = load("llama")
    model = model.to(dtype)
    model.model.rotary_emb.inv_freq.copy_(torch.tensor([3.0, -1.0, 7.0, 9.0]))
    found = faults(model, folder)["4 buffers = sources"]
    assert list(found) == ["model.rotary_emb.inv_freq"]
    (why,) = found.values()
    assert why.startswith("has little in common with what its class makes (4 of 4 values differ)")


@torch.no_grad()
def test_an_empty_rotary_buffer(load):
    model, folder = load("llama")
    model.model.rotary_emb.inv_freq.zero_()
    why = only(model, folder, "4 buffers = sources", "model.rotary_emb.inv_freq")
    assert why == "holds nothing but zeros"


@torch.no_grad()
def test_a_head_initialised_again(load):
    model, folder = load("llama")
    model.lm_head.weight.normal_(0, 0.02)
    why = only(model, folder, "4 parameters = sources", "lm_head.weight")
    assert why.startswith("has little in common with its source (1024 of 1024 values differ)")


@pytest.mark.skipif(FOUR, reason="only generation 5 merges experts")
@torch.no_grad()
def test_experts_in_another_order(load):
    model, folder = load("mixtral")
    experts = model.model.layers[1].mlp.experts.gate_up_proj
    experts.copy_(experts[[1, 0, 2]])
    why = only(model, folder, "4 parameters = sources", f"{MIXTRAL}.gate_up_proj")
    assert why == "has slices of dimension 0 in other places: 0 holds 1, 1 holds 0 of its source"


@pytest.mark.skipif(FOUR, reason="only generation 5 merges gate and up")
@torch.no_grad()
def test_gate_and_up_the_wrong_way_round(load):
    model, folder = load("mixtral")
    experts = model.model.layers[1].mlp.experts.gate_up_proj
    experts.copy_(experts.roll(24, dims=1))
    why = only(model, folder, "4 parameters = sources", f"{MIXTRAL}.gate_up_proj")
    assert "of dimension 1 in other places: 0 to 23 holds 24 to 47, 24 to 47 holds 0 to 23" in why


@pytest.mark.skipif(FOUR, reason="only generation 5 merges experts")
@torch.no_grad()
def test_one_expert_twice(load):
    model, folder = load("mixtral")
    experts = model.model.layers[1].mlp.experts.down_proj
    experts[2].copy_(experts[0])
    why = only(model, folder, "4 parameters = sources", f"{MIXTRAL}.down_proj")
    assert why == "has slices of dimension 0 in other places: 2 holds 0 of its source"


@torch.no_grad()
def test_a_square_weight_transposed(load):
    model, folder = load("llama")
    weight = model.model.layers[0].self_attn.q_proj.weight
    weight.copy_(weight.T.clone())
    param = "model.layers.0.self_attn.q_proj.weight"
    assert only(model, folder, "4 parameters = sources", param) == "holds its source transposed"


def test_a_head_that_is_a_copy_instead_of_tied(load):
    model, folder = load("qwen2")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    why = only(model, folder, "4 ties", "lm_head.weight")
    assert why.startswith("is not tied to model.embed_tokens.weight, as its class ties it: is a ")


def test_a_head_of_its_own_instead_of_tied(load):
    model, folder = load("qwen2")
    model.lm_head.weight = torch.nn.Parameter(torch.randn(64, 16))
    why = only(model, folder, "4 ties", "lm_head.weight")
    assert "as its class ties it: has little in common with model.embed_tokens.weight" in why


@pytest.mark.parametrize("path", ["decoder.embed_tokens", "lm_head"])
def test_tied_in_one_place_and_not_in_another(load, path):
    model, folder = load("t5")
    # The whole module: generation 4 has one module in three places.
    model.set_submodule(path, copy.deepcopy(model.get_submodule(path)))
    assert model.encoder.embed_tokens.weight is model.shared.weight
    why = only(model, folder, "4 ties", f"{path}.weight")
    assert why == "is not tied to shared.weight, as its class ties it: is a copy of it"


@torch.no_grad()
def test_a_tied_parameter_that_changed_is_told_of_once(load):
    model, folder = load("qwen2")
    model.model.embed_tokens.weight[5] = 0
    why = only(model, folder, "4 parameters = sources", "model.embed_tokens.weight")
    assert why.startswith("differs from its source in 16 of 1024 values; the first at [5, 0] is 0")


def test_a_dtype_on_the_way_that_lost_digits(load):
    model, folder = load("llama")
    model = model.to(torch.bfloat16)
    assert faults(model, folder).keys() <= {"4 buffers = sources"}
    found = faults(model.float(), folder)["4 parameters = sources"]
    assert len(found) == 21
    assert set(found.values()) == {
        "holds its source rounded to bfloat16: it was in that dtype before"
    }


def test_the_wrong_folder(load):
    model, _ = load("llama")
    _, folder = load("gpt2")
    found = tracer.audit_model(model, folder).set_index("check")
    row = found.loc["2 every parameter is in a file"]
    assert row["verdict"] == "broken"
    assert row["found"].startswith("21 parameters, 21 in no file; 28 tensors of the files")
    assert found.loc["4 parameters = sources", "verdict"] == "not applicable"


def test_a_parameter_left_on_meta(load):
    model, folder = load("llama")
    model.model.norm.weight = torch.nn.Parameter(model.model.norm.weight.to("meta"))
    why = only(model, folder, "2 none left on meta", "model.norm.weight")
    assert why == "on meta: it has no values"
