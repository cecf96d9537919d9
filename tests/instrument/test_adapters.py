"""PEFT adapters: a folder given to an Auto class, and one that is added to a loaded model."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
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


def _broken(trace):
    verdicts = trace.audit().set_index("check").drop("5 explained time")["verdict"]
    return verdicts.index[verdicts == "broken"].tolist()


def _rows_of_adapter(trace, call, model, folder):
    """Placements of a call that added the adapter, set against file and live model."""
    placed = trace["placements"].query("call == @call").set_index("param")
    held, live = load_file(folder / "adapter_model.safetensors"), dict(model.named_parameters())
    assert set(placed["origin"]) == {"checkpoint"}
    assert set(placed["verified"]) == {"equal"}
    assert sorted(json.loads(text)[0] for text in placed["sources"]) == sorted(held)
    for name, row in placed.iterrows():
        assert torch.equal(held[json.loads(row["sources"])[0]], live[name])
    reads = trace["tensor_loads"].query("call == @call")
    fates = trace["checkpoint_tensors"].query("call == @call")
    assert sorted(reads["key"]) == sorted(fates["key"]) == sorted(held)
    assert set(fates["fate"]) == {"loaded"}
    files = trace["files"].query("call == @call").set_index("path")
    assert set(files.index) == {path.name for path in folder.iterdir()}
    assert files.loc[["adapter_model.safetensors", "adapter_config.json"], "read"].all()
    return placed


def test_an_adapter_that_is_wrapped_round_a_loaded_model_is_a_load_of_its_own(folders):
    base, adapter = folders
    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(base)
        whole = peft.PeftModel.from_pretrained(model, adapter)
    trace = recording.trace
    of_base, wrapper = trace["models"].to_dict("records")
    assert (of_base["class_name"], wrapper["class_name"]) == ("LlamaForCausalLM", "PeftModel")
    assert wrapper["folder"] == str(adapter)
    assert wrapper["parameters"] == sum(one.numel() for one in whole.parameters())
    placed = _rows_of_adapter(trace, wrapper["call"], whole, adapter)
    assert placed.index.str.contains("lora_").all()
    rest = trace["placements"][trace["placements"]["model"] == of_base["model"]]
    assert set(rest["origin"]) <= {"checkpoint", "rebuilt"}
    assert trace.rows("faults") == 0
    assert _broken(trace) == []
    verdicts = tracer.audit_model(model, base).set_index("check")["verdict"]
    assert verdicts["4 parameters = sources"] == "holds"


def test_an_adapter_that_a_loaded_model_takes_up_is_a_load_of_its_own(folders):
    base, adapter = folders
    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(base)
        model.load_adapter(str(adapter), adapter_name="second")
    trace = recording.trace
    assert len(trace["models"]) == 1
    call = trace["calls"].query("name == 'LlamaForCausalLM.load_adapter'")
    placed = _rows_of_adapter(trace, call["seq"].iloc[0], model, adapter)
    assert placed.index.str.contains("lora_.[.]second[.]weight").all()
    assert _broken(trace) == []


def test_whole_modules_of_an_adapter_stand_beside_those_of_the_base(folders, tmp_path):
    base, _ = folders
    folder = tmp_path / "saved"
    lora = peft.LoraConfig(
        r=2, target_modules=["q_proj"], modules_to_save=["lm_head"],
        base_model_name_or_path=str(base), init_lora_weights=False,
    )  # fmt: skip
    model = peft.get_peft_model(LlamaForCausalLM.from_pretrained(base), lora)
    with torch.no_grad():
        model.base_model.model.lm_head.modules_to_save["default"].weight += 1
    model.save_pretrained(folder)
    with tracer.record(strict=True, verify_weights=True) as recording:
        AutoModelForCausalLM.from_pretrained(folder)
    placed = recording.trace["placements"].set_index("param")
    for part, key in (
        ("original_module", "lm_head.weight"),
        ("modules_to_save.default", "base_model.model.lm_head.weight"),
    ):
        row = placed.loc[f"lm_head.{part}.weight"]
        assert (row["origin"], row["sources"]) == ("checkpoint", json.dumps([key]))
        assert row["verified"] == "equal"
    assert _broken(recording.trace) == []


def test_a_part_that_the_adapters_file_lacks_is_as_peft_made_it(folders):
    _base, adapter = folders
    held = load_file(adapter / "adapter_model.safetensors")
    lacking = sorted(held)[0]
    save_file(
        {key: held[key] for key in held if key != lacking}, adapter / "adapter_model.safetensors"
    )
    with tracer.record(strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(adapter)
    placed = recording.trace["placements"].set_index("param")
    (row,) = placed[
        placed.index.str.contains("lora_") & (placed["origin"] != "checkpoint")
    ].to_dict("records")
    assert row["origin"] == "initialised"
    assert row["because"] == "in no file; as PEFT made it when it added the adapter"


def _failed(folder):
    with tracer.record(strict=True) as recording, pytest.raises(Exception):  # noqa: B017, PT011
        AutoModelForCausalLM.from_pretrained(folder)
    return recording.trace


def test_an_adapter_without_its_base_is_named(folders):
    base, adapter = folders
    base.rename(base.with_name("moved"))
    (row,) = _failed(adapter)["faults"].to_dict("records")
    assert row["target"] == "adapter_config.json"
    assert f"names {base} as its base model, and there is no such folder" in row["reason"]


def test_an_adapter_without_its_configuration_is_named(folders):
    base, _adapter = folders
    (base / "model.safetensors").rename(base / "adapter_model.safetensors")
    (row,) = _failed(base)["faults"].to_dict("records")
    assert row["reason"].startswith("adapter_model.safetensors holds an adapter alone")


def test_an_adapter_that_was_cut_is_named_in_its_own_folder(folders):
    _, adapter = folders
    path = adapter / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    trace = _failed(adapter)
    told = "40 bytes of weights are missing"
    assert told in " ".join(trace["faults"]["reason"])
    assert told in trace["files"].set_index("path").loc[path.name, "why_not"]


def test_a_lora_weight_that_changed_is_no_alarm_for_the_base(folders):
    base, adapter = folders
    model = AutoModelForCausalLM.from_pretrained(adapter)
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.base_layer.weight[0, 0] += 1
    row = tracer.audit_model(model, base).set_index("check").loc["4 parameters = sources"]
    assert row["verdict"] == "broken"
    assert "layers.0.self_attn.q_proj.base_layer.weight" in row["evidence"]
