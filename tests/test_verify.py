"""`audit_model()`: what it takes, what it gives, and that it leaves everything as it was."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

import tracer
from tracer.audit import COLUMNS

CHECKS = [
    "2 none left on meta",
    "2 every parameter is in a file",
    "4 parameters = sources",
    "4 buffers = sources",
    "4 ties",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder, max_shard_size="10KB")
    return folder


@pytest.fixture
def model(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


def test_the_answer_is_like_that_of_a_traces_audit(model, folder):
    found = tracer.audit_model(model, folder)
    assert list(found.columns) == COLUMNS
    assert found["check"].tolist() == CHECKS
    verdicts = dict(zip(found["check"], found["verdict"], strict=True))
    assert verdicts.pop("4 buffers = sources") == "not applicable"  # it has none
    assert set(verdicts.values()) == {"holds"}
    assert set(found["evidence"]) == {"[]"}


@torch.no_grad()
def test_what_is_wrong_is_named_with_its_parameter(model, folder):
    model.transformer.h[0].mlp.c_fc.weight[0, 0] = 9
    model.transformer.wpe.weight.zero_()
    found = tracer.audit_model(model, folder).set_index("check").loc["4 parameters = sources"]
    assert found["verdict"] == "broken"
    assert found["found"] == "28 compared, 2 different"
    wpe, weight = json.loads(found["evidence"])
    assert wpe == "transformer.wpe.weight: holds nothing but zeros"
    assert weight.startswith("transformer.h.0.mlp.c_fc.weight: differs from its source in 1 of ")


@torch.no_grad()
def test_in_chinese_every_reason_is_chinese(model, folder):
    model.transformer.h[0].mlp.c_fc.weight[0, 0] = 9
    model.transformer.h[0].attn.c_attn.weight.normal_()
    model.transformer.h[0].attn.c_proj.weight.copy_(model.transformer.h[1].attn.c_proj.weight)
    rows = model.transformer.h[1].mlp.c_fc.weight
    rows.copy_(rows.flip(0))
    square = model.transformer.h[1].attn.c_proj.weight
    square.copy_(square.T.contiguous())
    model.transformer.wpe.weight.zero_()
    torch.nn.utils.parametrizations.weight_norm(model.transformer.h[1].mlp.c_proj)
    tracer.language("zh")
    try:
        found = tracer.audit_model(model, folder)
    finally:
        tracer.language("en")
    wrong = json.loads(found.set_index("check").loc["4 parameters = sources", "evidence"])
    assert len(wrong) == 6
    for told in [*found["expected"], *found["found"], *wrong]:
        assert re.search("[\u4e00-\u9fff]", told)
        assert not re.search(r"\b[a-z]{2,} [a-z]{2,}\b", told), told


def test_a_parametrized_weight_is_not_compared_and_no_alarm(model, folder):
    torch.nn.utils.parametrizations.weight_norm(model.transformer.h[0].mlp.c_fc)
    found = tracer.audit_model(model, folder).set_index("check")
    assert "broken" not in set(found["verdict"])
    told = found.loc["4 parameters = sources", "found"]
    assert "transformer.h.0.mlp.c_fc.weight is computed from it" in told


@pytest.mark.parametrize("name", ["", "model.safetensors.index.json"])
def test_a_folder_or_its_index_is_taken(model, folder, name):
    assert "broken" not in set(tracer.audit_model(model, str(folder / name))["verdict"])


def test_a_state_dict_is_taken(model):
    given = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert "broken" not in set(tracer.audit_model(model, given)["verdict"])


def test_one_shard_leaves_the_rest_in_no_file(model, folder):
    shard = sorted(folder.glob("*.safetensors"))[0]
    found = tracer.audit_model(model, shard).set_index("check")
    assert found.loc["2 every parameter is in a file", "verdict"] == "broken"
    assert found.loc["4 parameters = sources", "verdict"] == "holds"


def test_a_compiled_model_is_looked_into(model, folder):
    compiled = torch.compile(model, backend="eager")
    assert "broken" not in set(tracer.audit_model(compiled, folder)["verdict"])


def test_nothing_of_the_model_is_touched(model, folder):
    before = {name: (id(each), each._version) for name, each in model.named_parameters()}
    conversions = [vars(type(one)) for one in model._weight_conversions]
    random = torch.get_rng_state()
    tracer.audit_model(model, folder)
    assert torch.equal(torch.get_rng_state(), random)
    assert {name: (id(each), each._version) for name, each in model.named_parameters()} == before
    assert [vars(type(one)) for one in model._weight_conversions] == conversions
    assert not any(module._forward_hooks for module in model.modules())


def test_a_gguf_file_is_said_not_to_be_compared(model, tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    found = tracer.audit_model(model, file).set_index("check")
    row = found.loc["4 parameters = sources"]
    assert row["verdict"] == "not applicable"
    assert "29 not compared: in a GGUF file" in row["found"]
    assert "broken" not in set(found["verdict"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda place: place / "absent", "is no folder and no file"),
        (lambda place: place, "holds no weights under a name that the library looks for"),
        (lambda place: _file(place, "model.safetensors", b""), "model.safetensors is empty"),
        (lambda place: _file(place, "pytorch_model.bin", b"no"), "pytorch_model.bin can't be read"),
        (lambda place: _file(place, "model.safetensors.index.json", b"{}"), "is no usable index"),
        (
            lambda place: _file(
                place, "model.safetensors.index.json", b'{"weight_map": {"a": "one.safetensors"}}'
            ),
            "names 1 files that are not in .*: one.safetensors",
        ),
    ],
)
def test_what_can_not_be_read_is_said_with_its_reason(model, tmp_path, make, words):
    with pytest.raises(tracer.CheckpointError, match=words):
        tracer.audit_model(model, make(tmp_path))


def _file(folder, name, content):
    (folder / name).write_bytes(content)
    return folder


def test_a_module_that_is_no_transformers_model_is_refused(folder):
    with pytest.raises(TypeError, match="Linear is none; give the PreTrainedModel itself"):
        tracer.audit_model(torch.nn.Linear(2, 2), folder)


def test_without_torch_it_says_what_to_install(monkeypatch, folder):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(tracer.MissingPackageError, match=r"pip install 'tracer-lab\[live\]'"):
        tracer.audit_model(None, folder)


def test_asking_for_the_function_imports_no_torch():
    code = "import sys, tracer; tracer.audit_model; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
