"""Checkpoints and models that a quantiser has its part in: told, and compared all the same.

Two formats that the library unpacks without a package of others, and a quantiser of the test's own
that is registered with it: in one shape it gives what it makes, in the other it sets that by
itself, as those of other packages do.
"""

import json

import pytest
import torch
from instrument.packed import configured, in_four_bits
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer
from tracer.instrument.installer import release

if release() < (5, 0):
    pytest.skip("quantisers work in another way in generation 4", allow_module_level=True)

from transformers import GptOssConfig, GptOssForCausalLM
from transformers.core_model_loading import ConversionOps
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.quantizers_utils import get_module_from_name
from transformers.utils.quantization_config import QuantizationConfigMixin

pytestmark = pytest.mark.filterwarnings("ignore")  # words of the library on missing accelerators
SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
PROJECTION = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def llama(llama_in_one_file):
    """A Llama in one file."""
    return llama_in_one_file(**SIZES)


def _record(folder, **arguments):
    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(folder, **arguments)
    trace = recording.trace
    assert trace["faults"].to_dict("records") == []
    return model, trace, trace["placements"].set_index("param")


def _broken(audit):
    bad = audit[(audit["verdict"] == "broken") & (audit["check"] != "5 explained time")]
    return {check: json.loads(text) for check, text in zip(bad["check"], bad["evidence"])}  # noqa: B905


def _in_eight_bits(folder, block=16):
    """Projections in blocks of floats of eight bits, each block with its scale."""
    tensors = {}
    for key, whole in load_file(folder / "model.safetensors").items():
        if "proj" not in key:
            tensors[key] = whole.bfloat16()
            continue
        rows, columns = whole.shape
        blocks = whole.reshape(rows // block, block, columns // block, block)
        scales = blocks.abs().amax((1, 3)) / 448
        scaled = (blocks / scales[:, None, :, None]).reshape(rows, columns)
        tensors |= {key: scaled.to(torch.float8_e4m3fn), f"{key}_scale_inv": scales}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {"quant_method": "fp8", "weight_block_size": [block, block]}
    configured(folder, settings | {"activation_scheme": "dynamic"})


@pytest.fixture(params=["fp8", "mxfp4"])
def stored(request, tmp_path):
    """A folder whose weights are stored quantised, and a parameter that is unpacked."""
    if request.param == "fp8":
        model, name = LlamaForCausalLM(LlamaConfig(**SIZES)), PROJECTION
    else:
        sizes = SIZES | {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 8}
        model = GptOssForCausalLM(GptOssConfig(**sizes, layer_types=["full_attention"]))
        name = "model.layers.0.mlp.experts.gate_up_proj"
    model.bfloat16().save_pretrained(tmp_path)
    {"fp8": _in_eight_bits, "mxfp4": in_four_bits}[request.param](tmp_path)
    return tmp_path, name


def test_what_is_unpacked_as_it_is_loaded_equals_its_blocks(stored):
    folder, name = stored
    model, trace, placed = _record(folder)
    assert not hasattr(model, "hf_quantizer")  # it forgets that there was one
    assert set(placed["verified"]) == {"equal"}
    assert placed.loc[name, "origin"] == "converted"
    assert len(json.loads(placed.loc[name, "sources"])) == 2
    assert _broken(trace.audit()) == {}
    assert _broken(tracer.audit_model(model, folder)) == {}
    with torch.no_grad():
        model.get_parameter(name).view(-1)[5] += 1
    found = _broken(tracer.audit_model(model, folder))
    assert list(found) == ["4 parameters = sources"]
    (said,) = found["4 parameters = sources"]
    assert said.startswith(f"{name}: differs from its source in 1 of ")


class Halves(torch.Tensor):
    """Eight bits a value and one scale, as packages of quantisers make such tensors."""

    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)

    def __init__(self, data, scale):
        self.data_of, self.scale_of = data, scale

    def __tensor_flatten__(self):
        return ["data_of", "scale_of"], None

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return Halves(args[0].data_of, args[0].scale_of)
        raise NotImplementedError(function)


@register_quantization_config("toy_halves")
class _Config(QuantizationConfigMixin):
    def __init__(self, sets_itself=False, **_):
        self.quant_method = "toy_halves"
        self.sets_itself = sets_itself


class _Quantise(ConversionOps):
    def __init__(self, quantiser):
        self.hf_quantizer = quantiser

    def convert(self, input_dict, full_layer_name=None, model=None, missing_keys=None, **_):
        ((name, values),) = input_dict.items()
        scale = values[0].abs().max() / 127
        made = Halves((values[0] / scale).round().to(torch.int8), scale)
        parameter = torch.nn.Parameter(made, requires_grad=False)
        if not self.hf_quantizer.quantization_config.sets_itself:
            return {name: parameter}
        module, leaf = get_module_from_name(model, full_layer_name)
        setattr(module, leaf, parameter)
        module.scale_of_input = torch.ones(1)
        prefix = full_layer_name.removesuffix(leaf)
        missing_keys -= {full_layer_name, f"{prefix}scale_of_input"}
        module._is_hf_initialized = True
        return {}


@register_quantizer("toy_halves")
class _Quantiser(HfQuantizer):
    requires_calibration = False

    def _process_model_before_weight_loading(self, model, **_):
        for name, module in model.named_modules() if self.quantization_config.sets_itself else ():
            if name.endswith("proj"):
                module.register_buffer("scale_of_input", torch.ones(1, device="meta"))

    def param_needs_quantization(self, model, param_name, **_):
        return param_name.endswith("proj.weight")

    def get_quantize_ops(self):
        return _Quantise(self)

    @property
    def is_trainable(self):
        return False

    def is_serializable(self):
        return False


@pytest.mark.parametrize("sets_itself", [False, True], ids=["gives what it makes", "sets it"])
def test_what_a_quantiser_makes_is_told_and_made_again(llama, sets_itself):
    _, trace, placed = _record(llama, quantization_config=_Config(sets_itself))
    row = placed.loc[PROJECTION]
    assert (row["origin"], json.loads(row["operations"])) == ("converted", ["_Quantise"])
    assert json.loads(row["sources"]) == [PROJECTION]
    fates = trace["checkpoint_tensors"].set_index("key")["fate"]
    assert (fates == "converted").sum() == 7
    added = placed[placed.index.str.endswith("scale_of_input")]
    assert len(added) == (7 if sets_itself else 0)
    assert set(added["because"]) <= {"not part of any file; made by the quantiser toy_halves"}
    assert set(placed["origin"]) <= {"converted", "checkpoint", "rebuilt", "initialised"}
    assert _broken(trace.audit()) == {}
    assert placed.loc[PROJECTION, "verified_because"] == (
        "as toy_halves makes it of what the file holds"
    )
    assert set(placed.drop(added.index)["verified"]) == {"equal"}


@pytest.mark.parametrize("sets_itself", [False, True], ids=["gives what it makes", "sets it"])
def test_a_quantised_weight_that_changed_is_named_and_no_other(llama, sets_itself):
    model = AutoModelForCausalLM.from_pretrained(llama, quantization_config=_Config(sets_itself))
    before = {name: id(one) for name, one in model.named_parameters()}
    model.get_parameter(PROJECTION).data_of[3, 4] += 1
    found = _broken(tracer.audit_model(model, llama))
    assert list(found) == ["4 parameters = sources"]
    (said,) = found["4 parameters = sources"]
    assert said.startswith(f"{PROJECTION}: data_of differs from what the quantiser makes of its ")
    assert {name: id(one) for name, one in model.named_parameters()} == before
