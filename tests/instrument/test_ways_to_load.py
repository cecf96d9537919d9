"""from_pretrained in its other forms: each time every parameter and buffer has its one origin."""

import signal
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, LlamaForCausalLM

import tracer

WAYS = {
    "device_map auto": {"device_map": "auto"},
    "device_map cpu": {"device_map": "cpu"},
    "loading info": {"output_loading_info": True},
    "eager attention": {"attn_implementation": "eager"},
    "dtype as text": {"dtype": "float16"},
    "old name of dtype": {"torch_dtype": torch.float16},
}


def _names(model):
    return {name for name, _ in model.named_parameters(remove_duplicate=False)} | {
        name for name, _ in model.named_buffers()
    }


def _assert_whole(trace, model):
    placed = trace["placements"]
    assert sorted(placed["param"]) == sorted(_names(model))
    assert set(trace["meta_params"]["param"]) == _names(model)
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []
    assert trace.rows("faults") == 0


@pytest.mark.parametrize("arguments", WAYS.values(), ids=WAYS)
@pytest.mark.filterwarnings("ignore:`torch_dtype` is deprecated")
def test_each_way_to_load_is_told_whole(llama_folder, arguments):
    with tracer.record(strict=True) as recording:
        loaded = AutoModelForCausalLM.from_pretrained(llama_folder, **arguments)
    model = loaded[0] if isinstance(loaded, tuple) else loaded
    _assert_whole(recording.trace, model)
    (row,) = recording.trace["models"].itertuples()
    assert row.dtype == str(model.dtype).removeprefix("torch.")
    assert row.attention == arguments.get("attn_implementation", "sdpa")


def test_a_load_with_a_config_object_is_told_whole(llama_folder):
    config = AutoConfig.from_pretrained(llama_folder)
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(llama_folder, config=config)
    _assert_whole(recording.trace, model)


@pytest.mark.parametrize("dtype", ["dtype", "torch_dtype"])
@pytest.mark.filterwarnings("ignore:`torch_dtype` is deprecated")
def test_an_argument_given_as_none_is_not_where_a_value_comes_from(llama_folder, dtype):
    found = []
    for given in ({}, {dtype: None, "attn_implementation": None}):
        with tracer.record(strict=True) as recording:
            LlamaForCausalLM.from_pretrained(llama_folder, **given)
        settings = recording.trace["settings"].set_index("setting")
        of_both = settings.loc[["dtype", "attn_implementation"], ["effective", "origin", "why"]]
        found.append(of_both.fillna("").to_dict("index"))
    assert found[0] == found[1]
    assert found[1]["dtype"]["origin"] == "config.json"


def test_a_base_model_leaves_the_head_of_the_file_unexpected(llama_folder):
    with tracer.record(strict=True) as recording:
        model = AutoModel.from_pretrained(llama_folder)
    _assert_whole(recording.trace, model)
    fates = recording.trace["checkpoint_tensors"].set_index("key")["fate"]
    assert fates.to_dict() == dict.fromkeys(fates.index, "loaded") | {
        "lm_head.weight": "unexpected"
    }


def test_a_pickled_checkpoint_is_read_tensor_by_tensor_too(llama, tmp_path):
    llama.config.save_pretrained(tmp_path)
    torch.save(llama.state_dict(), tmp_path / "pytorch_model.bin")
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(tmp_path)
    trace = recording.trace
    assert sorted(trace["tensor_loads"]["key"]) == sorted(llama.state_dict())
    assert sorted(trace["placements"]["param"]) == sorted(_names(model))
    files = trace["files"].set_index("path")
    assert (files.loc["pytorch_model.bin", ["kind", "format"]] == ["weights", "pickle"]).all()


def test_a_state_dict_of_the_user_is_told_whole(llama):
    state = {name: tensor.clone() for name, tensor in llama.state_dict().items()}
    with tracer.record(strict=True) as recording:
        model = LlamaForCausalLM.from_pretrained(None, config=llama.config, state_dict=state)
    trace = recording.trace
    assert sorted(trace["tensor_loads"]["key"]) == sorted(state)
    assert sorted(trace["placements"]["param"]) == sorted(_names(model))
    assert trace.rows("files") == 0


def test_a_parameter_of_another_shape_is_initialised_and_its_source_discarded(llama_folder):
    with tracer.record(strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(
            llama_folder, vocab_size=320, ignore_mismatched_sizes=True
        )
    trace = recording.trace
    odd = {"lm_head.weight", "model.embed_tokens.weight"}
    placed = trace["placements"].set_index("param")
    assert set(placed.loc[sorted(odd), "origin"]) == {"initialised"}
    fates = trace["checkpoint_tensors"].set_index("key")["fate"]
    assert set(fates.index[fates == "discarded"]) == odd
    discarded = trace["tensor_loads"].set_index("key")["discarded"]
    assert set(discarded.index[discarded]) == odd


def test_a_load_offloaded_to_the_disk_is_told_whole(llama_folder, tmp_path):
    parts = ("model.embed_tokens", "model.layers.1", "model.norm", "model.rotary_emb", "lm_head")
    devices = dict.fromkeys(parts, "cpu") | {"model.layers.0": "disk"}
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(
            llama_folder, device_map=devices, offload_folder=tmp_path
        )
    assert "offloaded_disk" in set(recording.trace["placements"]["residence"])
    _assert_whole(recording.trace, model)


_KILLED = """
import os, signal, sys, torch, tracer
from transformers import AutoModelForCausalLM
def kill(ids, scores):
    if ids.shape[1] == 6:
        recording._recorder.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return scores
with tracer.record(sys.argv[2], strict=True) as recording:
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
    model.generate(torch.tensor([[5, 6, 7, 8]]), max_new_tokens=9, logits_processor=[kill])
"""


@pytest.mark.slow
def test_a_killed_run_opens_with_its_load_and_its_first_steps(llama_folder, tmp_path):
    arguments = [sys.executable, "-c", _KILLED, str(llama_folder), str(tmp_path / "run")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    trace = tracer.open_trace(tmp_path / "run")
    calls = trace["calls"].set_index("name")["status"]
    assert calls["LlamaForCausalLM.generate"] == "interrupted"
    assert calls["LlamaForCausalLM.from_pretrained"] == "ok"
    assert trace.rows("tensor_loads") == trace.rows("checkpoint_tensors") > 0
    steps = trace["steps"].sort_values("seq")
    assert steps["status"].tolist()[:1] == ["ok"]
    assert "interrupt" in trace.summary() or "killed" in trace.summary()
