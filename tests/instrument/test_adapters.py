"""A PEFT adapter's folder given to an Auto class: base and adapter are one load, told whole."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer

peft = pytest.importorskip("peft", reason="peft is not installed")
pytestmark = [
    pytest.mark.generations,
    # PEFT asks the library for names that it has given up.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def folders(tmp_path):
    """Folders of a Llama and of an adapter to it, whose values are not those of a fresh one."""
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    LlamaForCausalLM(config).save_pretrained(base)
    lora = peft.LoraConfig(
        r=2, target_modules=["q_proj"], base_model_name_or_path=str(base), init_lora_weights=False
    )
    peft.get_peft_model(LlamaForCausalLM.from_pretrained(base), lora).save_pretrained(adapter)
    return base, adapter


def test_an_adapters_folder_loads_base_and_adapter(folders):
    base, adapter = folders
    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(adapter)
    trace = recording.trace
    assert trace["models"]["folder"].tolist() == [str(base)]
    placed = trace["placements"].set_index("param")
    held = dict(model.named_parameters()) | dict(model.named_buffers())
    assert set(placed.index) == set(held)
    wrapped = placed.loc["model.layers.1.self_attn.q_proj.base_layer.weight"]
    assert (wrapped["origin"], wrapped["verified"]) == ("checkpoint", "equal")
    assert wrapped["sources"] == '["model.layers.1.self_attn.q_proj.weight"]'
    added = placed[placed.index.str.contains("lora_")]
    assert len(added) == 4
    assert set(added["origin"]) == {"checkpoint"}
    assert set(added["verified"]) == {"equal"}
    files = trace["files"].set_index("path")
    assert files.loc[["model.safetensors", "adapter_model.safetensors"], "read"].all()
    held = load_file(adapter / "adapter_model.safetensors")
    reads = trace["tensor_loads"].set_index("key")
    assert set(held) <= set(reads.index)
    fates = trace["checkpoint_tensors"].query("file == 'adapter_model.safetensors'")
    assert sorted(fates["key"]) == sorted(held)
    assert set(fates["fate"]) == {"loaded"}
    for name, row in added.iterrows():
        (key,) = json.loads(row["sources"])
        assert torch.equal(held[key], model.get_parameter(name))
        assert reads.loc[key, "param"] == name
    verdicts = trace.audit().set_index("check")
    assert verdicts.index[verdicts["verdict"] == "broken"].tolist() == []


def test_an_adapter_that_is_wrapped_round_a_loaded_model_changes_no_row_of_it(folders):
    base, adapter = folders
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(base)
        peft.PeftModel.from_pretrained(model, adapter)
    placed = recording.trace["placements"]
    assert set(placed["origin"]) <= {"checkpoint", "rebuilt"}
    assert not placed["param"].str.contains("lora_").any()
    verdicts = tracer.audit_model(model, base).set_index("check")["verdict"]
    assert verdicts["4 parameters = sources"] == "holds"


def test_a_lora_weight_that_changed_is_no_alarm_for_the_base(folders):
    base, adapter = folders
    model = AutoModelForCausalLM.from_pretrained(adapter)
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.base_layer.weight[0, 0] += 1
    row = tracer.audit_model(model, base).set_index("check").loc["4 parameters = sources"]
    assert row["verdict"] == "broken"
    assert "layers.0.self_attn.q_proj.base_layer.weight" in row["evidence"]
