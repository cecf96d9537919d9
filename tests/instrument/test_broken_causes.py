"""A load that fails, or that its folder misleads: the trace names file, cause and numbers.

Beside `test_broken_folders.py`, whose folders are shards of safetensors: GGUF, `.bin`, adapters,
arguments that ask for other files, shapes that the configuration does not have.
"""

import argparse
import json
import shutil

import pytest
import torch
from instrument.gguf_files import write_llama
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer
from tracer.instrument.installer import release

pytestmark = pytest.mark.generations
INDEX = "model.safetensors.index.json"
SIZES = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """A Llama in several shards."""
    folder = tmp_path_factory.mktemp("sharded")
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder, max_shard_size="8KB")
    return folder


@pytest.fixture
def folder(sharded, tmp_path):
    """A copy of it, to be broken."""
    return shutil.copytree(sharded, tmp_path / "copy")


def failed(folder, auto_class=AutoModelForCausalLM, **arguments):
    """The trace of a load that raises what it raises without the lab."""
    with pytest.raises(Exception) as bare:  # noqa: PT011
        auto_class.from_pretrained(folder, **arguments)
    with tracer.record(strict=True) as recording, pytest.raises(type(bare.value)) as seen:
        auto_class.from_pretrained(folder, **arguments)
    assert str(seen.value) == str(bare.value)
    return recording.trace


def said(trace):
    return " | ".join(trace["faults"]["reason"])


def configured(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | settings), "utf-8")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 123456\n"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda raw: raw[:-100], "bytes of weights are missing"),
        (lambda raw: raw[:60], "ends within its header"),
        (lambda raw: b"", "is empty"),
        (lambda raw: POINTER, "not the file of 123456 bytes"),
        (lambda raw: b"<!DOCTYPE html><html>", "no GGUF file but a web page"),
    ],
    ids=["tail", "header", "empty", "pointer", "page"],
)
def test_a_damaged_gguf_file_is_named_with_its_cause(tmp_path, damage, words):
    pytest.importorskip("gguf", reason="gguf is not installed")
    file = tmp_path / "toy.gguf"
    write_llama(file)
    file.write_bytes(damage(file.read_bytes()))
    trace = failed(tmp_path, gguf_file="toy.gguf")
    assert "toy.gguf" in trace["faults"]["target"].tolist()
    assert words in said(trace)
    assert "gguf_file=" not in said(trace)  # it was given
    assert "config.json" not in said(trace)  # a GGUF file has its own


def test_a_gguf_file_that_is_not_there(tmp_path):
    pytest.importorskip("gguf", reason="gguf is not installed")
    write_llama(tmp_path / "other.gguf")
    trace = failed(tmp_path, gguf_file="toy.gguf")
    assert "other.gguf is there, but the call asks for toy.gguf" in said(trace)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ({"use_safetensors": False}, "pytorch_model.bin"),
        ({"variant": "fp16"}, "model.fp16.safetensors, pytorch_model.fp16.bin"),
    ],
    ids=["use_safetensors", "variant"],
)
def test_arguments_that_ask_for_files_of_other_names(folder, arguments, asked):
    trace = failed(folder, **arguments)
    assert f"{INDEX} is there, but the call asks for {asked}" in said(trace)
    weights = trace["files"].query("kind in ('weights', 'index')")
    assert set(weights["why_not"]) == {f"the call asks for {asked}"}


def test_shapes_that_the_configuration_does_not_have(folder):
    configured(folder, vocab_size=48)
    trace = failed(folder)
    (row,) = trace["faults"].to_dict("records")
    assert row["target"] == "config.json"
    assert row["reason"].startswith("shapes of 2 tensors are not those that the configuration asks")
    assert "[64, 16] there, [48, 16] in the model" in row["reason"]


def test_a_file_that_a_failed_load_did_not_come_to(folder):
    _, second, *rest = sorted(path.name for path in folder.glob("*.safetensors"))
    (folder / second).write_bytes(b"")
    files = failed(folder)["files"].set_index("path")
    assert files.loc[second, "why_not"] == f"{second} is empty; download it again"
    if release() >= (5, 0):  # opens one after the other
        assert set(files.loc[rest, "why_not"]) == {"the load failed before it came to this file"}


def test_an_index_without_what_the_library_takes_from_it(folder):
    path = folder / INDEX
    held = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({"weight_map": held["weight_map"]}), "utf-8")
    assert f"{INDEX} is no usable index: KeyError('metadata')" in said(failed(folder))


def test_a_length_of_a_header_that_is_damaged(folder):
    path = sorted(folder.glob("*.safetensors"))[1]
    raw = path.read_bytes()
    path.write_bytes((1 << 40).to_bytes(8, "little") + raw[8:])
    assert "its first 8 bytes are damaged" in said(failed(folder))


def test_a_dtype_that_the_format_does_not_have(folder):
    path = sorted(folder.glob("*.safetensors"))[1]
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"F32"', b'"F99"', 1))
    assert "the dtype F99, which the format does not have" in said(failed(folder))


def test_a_pickle_that_wants_more_than_tensors(folder, tmp_path):
    only = tmp_path / "pickled"
    only.mkdir()
    shutil.copy(folder / "config.json", only)
    torch.save({"a": torch.ones(2), "args": argparse.Namespace(x=1)}, only / "pytorch_model.bin")
    trace = failed(only)
    assert "pytorch_model.bin wants more than tensors: argparse.Namespace" in said(trace)
    (why,) = trace["files"].query("kind == 'weights'")["why_not"]
    assert "argparse.Namespace" in why


def test_shards_in_a_folder_below_the_index(folder):
    below = folder / "parts"
    below.mkdir()
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
        path.rename(below / path.name)
    path = folder / INDEX
    held = json.loads(path.read_text("utf-8"))
    held["weight_map"] = {key: f"parts/{file}" for key, file in held["weight_map"].items()}
    path.write_text(json.dumps(held), "utf-8")
    with tracer.record(strict=True, verify_weights=True) as recording:
        AutoModelForCausalLM.from_pretrained(folder)
    trace = recording.trace
    assert trace["models"]["folder"].tolist() == [str(folder)]
    files = trace["files"].set_index("path")
    assert files.loc[["config.json", INDEX], "read"].all()
    weights = files[files["kind"] == "weights"]
    assert weights["read"].all()
    assert set(weights.index) == {f"parts/{path.name}" for path in below.iterdir()}
    held = trace["checkpoint_tensors"]
    assert held["in_index"].all()
    assert set(held["key"]) == set(tensors)
    assert set(trace["tensor_loads"]["file"]) == set(weights.index)
    verdicts = trace.audit().set_index("check")["verdict"]
    assert verdicts.index[verdicts == "broken"].tolist() == []
    assert verdicts["3 index = headers"] == "holds"


def test_a_link_to_nothing_has_no_size(folder):
    (folder / "notes.txt").symlink_to("nowhere")
    with tracer.record(strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(folder)
    files = recording.trace["files"].set_index("path")
    assert files["size_bytes"].isna().to_dict()["notes.txt"]
    assert files["size_bytes"].isna().sum() == 1


def _renumbered(folder):
    """The folder's layers under a name of their own."""
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        renamed = {key.replace("model.layers", "stack"): one for key, one in tensors.items()}
        save_file(renamed, path, metadata={"format": "pt"})
    for path in folder.glob(INDEX):
        path.write_text(path.read_text("utf-8").replace("model.layers", "stack"), "utf-8")


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"^stack(": "model.layers"}, "is no regular expression"),
        ({r"^stack\.(\d+)": r"model.layers.\3"}, "can't turn "),
    ],
    ids=["pattern", "group"],
)
def test_a_mapping_of_names_that_cannot_be_applied(folder, mapping, words):
    _renumbered(folder)
    if words == "can't turn " and release() >= (5, 0):
        pytest.skip("generation 5 takes the number of the group literally")
    trace = failed(folder, key_mapping=mapping)
    (reason,) = trace["faults"].query("target == 'key_mapping'")["reason"]
    assert words in reason


@pytest.mark.skipif(release() >= (5, 0), reason="generation 5 loads it")
def test_a_mapping_that_gives_one_name_to_tensors_of_several_shards(folder):
    _renumbered(folder)
    trace = failed(folder, key_mapping={r"^stack\.\d+": "model.layers.0"})
    (reason,) = trace["faults"].query("target == 'key_mapping'")["reason"]
    assert "gives one name to several tensors, 9 times" in reason


def test_of_tensors_that_are_renamed_to_one_parameter_one_is_taken(tmp_path):
    folder = tmp_path / "whole"
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder)
    _renumbered(folder)
    held = {}
    for path in folder.glob("*.safetensors"):
        held |= load_file(path)
    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(
            folder, key_mapping={r"^stack\.\d+": "model.layers.0"}
        )
    trace = recording.trace
    name = "model.layers.0.mlp.up_proj.weight"
    placed = trace["placements"].set_index("param")
    (key,) = json.loads(placed.loc[name, "sources"])
    assert torch.equal(held[key], model.get_parameter(name))
    other = f"stack.{1 - int(key.split('.')[1])}.mlp.up_proj.weight"
    fates = trace["checkpoint_tensors"].set_index("key")
    assert fates.loc[key, "fate"] == "loaded"
    assert fates.loc[other, "fate"] in ("discarded", "skipped")
    assert key in fates.loc[other, "because"]
    verdicts = trace.audit().set_index("check")["verdict"]
    assert verdicts[["1 one fate a tensor", "1 reads = fates"]].tolist() == ["holds"] * 2
