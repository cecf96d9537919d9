"""GGUF: tensors by the file's own names, unpacked by the library under names of its own."""

import json
import sys

import pytest
import torch
from instrument.gguf_files import write_lfm2, write_llama
from transformers import AutoModelForCausalLM

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.generations


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A model and the trace of its load: some tensors in blocks, one that no parameter is for."""
    folder = tmp_path_factory.mktemp("gguf")
    write_llama(folder / "toy.gguf")
    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="toy.gguf")
    return folder / "toy.gguf", model, recording.trace


def test_every_tensor_of_the_file_has_one_fate(loaded):
    path, model, trace = loaded
    tensors = trace["checkpoint_tensors"].set_index("key")
    reader = {each.name: each for each in gguf.GGUFReader(str(path)).tensors}
    assert tensors["size_bytes"].to_dict() == {n: one.n_bytes for n, one in reader.items()}
    assert tensors["offset_bytes"].to_dict() == {n: one.data_offset for n, one in reader.items()}
    fates = tensors["fate"].to_dict()
    assert fates.pop("stranger.weight") == "skipped"
    assert fates.pop("blk.1.ffn_up.weight") == "converted"
    assert set(fates.values()) == {"loaded"}
    assert tensors.loc["blk.1.ffn_up.weight", ["dtype", "shape"]].tolist() == ["Q8_0", "[32, 32]"]
    # Not of the parameters alone: generation 4 reads no buffer out of a file.
    reads = trace["tensor_loads"].set_index("key")
    assert set(reads.index) == {*reader} - {"stranger.weight"}
    assert reads["size_bytes"].to_dict() == tensors["size_bytes"].drop("stranger.weight").to_dict()
    assert set(reads["param"]) == {name for name, _ in model.named_parameters()}
    assert not reads["mapped"].any()  # its tensors are copies


def test_a_parameter_leads_back_to_the_files_own_name(loaded):
    placed = loaded[2]["placements"].query("kind == 'parameter'").set_index("param")
    row = placed.loc["model.layers.1.mlp.up_proj.weight"]
    told = [row[name] for name in ("origin", "sources", "operations", "stored_dtype", "dtype")]
    assert told == [
        "converted", '["blk.1.ffn_up.weight"]', '["Dequantize(Q8_0)"]', "Q8_0", "float32",
    ]  # fmt: skip
    row = placed.loc["model.layers.0.self_attn.v_proj.weight"]
    assert (row["origin"], row["sources"]) == ("checkpoint", '["blk.0.attn_v.weight"]')
    assert "GGUF's names" in row["rule"]
    assert set(placed["origin"]) == {"checkpoint", "converted"}


def test_the_file_adds_up_and_the_audit_judges_it(loaded):
    path, _, trace = loaded
    row = trace["files"].set_index("path").loc["toy.gguf"]
    assert (row["read"], row["access"], row["tensors"]) == (True, "mmap", 22)
    assert row["header_bytes"] == min(trace["checkpoint_tensors"]["offset_bytes"])
    assert row["size_bytes"] == path.stat().st_size
    if release() >= FIVE:
        assert trace["settings"].set_index("setting").loc["gguf_file", "used"]
    verdicts = trace.audit().set_index("check")["verdict"]
    judged = ["1 one fate a tensor", "1 reads = fates", "2 none unwritten", "3 bytes of a file"]
    assert verdicts[judged].tolist() == ["holds"] * 4
    assert "broken" not in set(verdicts)


@pytest.mark.skipif(release() >= FIVE, reason="generation 5 builds one model alone")
def test_a_model_that_is_built_for_its_names_has_a_span_of_its_own(loaded):
    trace = loaded[2]
    spans = trace["spans"].sort_values("seq").query("stage == 'meta_init'")
    built = [name for name in spans["name"] if "built on meta" in name]
    assert built == [
        "LlamaForCausalLM built on meta for its names",
        "LlamaForCausalLM built on meta",
    ]
    (call,) = trace["models"]["call"]
    assert set(spans["parent"]) == {call}


def test_every_value_is_compared_with_what_the_file_unpacks_to(loaded):
    """Blocks dequantised and attention turned round as the library's own reader does it."""
    _, _, trace = loaded
    placed = trace["placements"]
    assert set(placed["verified"]) == {"equal"}
    verdicts = trace.audit().set_index("check")["verdict"]
    assert set(verdicts[verdicts.index.str.startswith("4 ")]) == {"holds"}


def test_a_live_model_is_compared_with_its_gguf_file(loaded):
    path, model, _ = loaded
    found = tracer.audit_model(model, path).set_index("check")
    assert set(found["verdict"]) <= {"holds", "not applicable"}
    assert "1 tensor of the files is for no parameter" in " ".join(found["found"])
    weight = model.model.layers[1].mlp.up_proj.weight
    other = model.model.layers[0].self_attn.q_proj.weight
    kept = weight[0, 0].item(), other.detach().clone()
    with torch.no_grad():
        weight[0, 0] += 1
        other.copy_(other.flip(0))
    broken = tracer.audit_model(model, path.parent).set_index("check").loc["4 parameters = sources"]
    with torch.no_grad():
        weight[0, 0] = kept[0]
        other.copy_(kept[1])
    assert broken["verdict"] == "broken"
    named = json.loads(broken["evidence"])
    assert [one.partition(":")[0] for one in named] == [
        "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.up_proj.weight",
    ]  # fmt: skip


def test_without_the_package_it_says_what_it_needs(loaded, monkeypatch):
    path, model, _ = loaded
    monkeypatch.setitem(sys.modules, "gguf", None)
    found = tracer.audit_model(model, path).set_index("check")["found"]
    assert "the package gguf, which unpacks it, is not installed" in found["4 parameters = sources"]


@pytest.mark.skipif(release() < FIVE, reason="generation 4 reads no file lazily")
def test_a_file_that_is_read_lazily_is_compared_through_its_own_conversions(tmp_path):
    write_lfm2(tmp_path / "toy.gguf")
    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="toy.gguf")
    placed = recording.trace["placements"].set_index("param")
    assert set(placed["verified"]) == {"equal"}
    row = placed.loc["model.layers.0.conv.conv.weight"]
    assert (row["origin"], row["sources"]) == ("converted", '["blk.0.shortconv.conv.weight"]')
    with torch.no_grad():
        model.model.layers[1].feed_forward.w3.weight[0, 0] += 1
    found = tracer.audit_model(model, tmp_path / "toy.gguf").set_index("check")
    assert "feed_forward.w3.weight" in found.loc["4 parameters = sources", "evidence"]
    assert len(json.loads(found.loc["4 parameters = sources", "evidence"])) == 1
