"""A load told completely: every tensor of every header, every parameter and buffer of the model."""

import json
import shutil
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

import tracer
from tracer.checkpoint import read_header
from tracer.demo import checkpoint_folder

SHARDS = sorted(checkpoint_folder().glob("*.safetensors"))


def _tensors(model):
    return dict(model.named_parameters(remove_duplicate=False)) | dict(
        model.named_buffers(remove_duplicate=False)
    )


def _headers(folder):
    return {path.name: read_header(path) for path in sorted(folder.glob("*.safetensors"))}


def _load(folder, **arguments):
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(folder, **arguments)
    assert recording.trace.rows("faults") == 0
    return model, recording.trace


@pytest.fixture(scope="module")
def gpt2_load(gpt2_folder):
    """A GPT-2 loaded in bfloat16 from float32: every tensor is cast, the head is tied."""
    return _load(gpt2_folder, dtype=torch.bfloat16)


def test_every_tensor_of_every_header_is_read_once(demo):
    entries = {
        (file, key): entry
        for file, header in _headers(checkpoint_folder()).items()
        for key, entry in header.tensors.items()
    }
    reads = demo.trace["tensor_loads"]
    assert sorted(zip(reads["file"], reads["key"], strict=True)) == sorted(entries)
    for read in reads.itertuples():
        entry = entries[read.file, read.key]
        assert json.loads(read.shape) == list(entry.shape)
        assert read.size_bytes == entry.size_bytes
        assert (read.stored_dtype, read.loaded_dtype) == ("bfloat16", "bfloat16")
        assert not read.discarded


def test_a_read_is_its_parts_and_lies_in_a_workers_thread(demo):
    reads = demo.trace["tensor_loads"]
    assert (reads["read_ns"] + reads["cast_ns"] == reads["duration_ns"]).all()
    assert (reads[["queue_ns", "read_ns", "cast_ns"]] >= 0).all(axis=None)
    assert (reads["worker"] == reads["thread"]).all()
    assert reads["mapped"].all()  # same dtype on the CPU: still a view of the file


def test_a_cast_is_no_longer_a_view_of_the_file(gpt2_load):
    _, trace = gpt2_load
    reads = trace["tensor_loads"]
    assert set(reads["loaded_dtype"]) == {"bfloat16"}
    assert set(reads["stored_dtype"]) == {"float32"}
    assert not reads["mapped"].any()


def test_every_header_entry_has_one_fate(demo):
    entries = demo.trace["checkpoint_tensors"]
    headers = _headers(checkpoint_folder())
    expected = [(file, key) for file, header in headers.items() for key in header.tensors]
    assert sorted(zip(entries["file"], entries["key"], strict=True)) == sorted(expected)
    assert set(entries["fate"]) <= {"loaded", "converted"}
    assert entries["in_index"].all()
    offsets = {(file, key): header.tensors[key].offset_bytes
               for file, header in headers.items() for key in header.tensors}  # fmt: skip
    for entry in entries.itertuples():
        assert entry.offset_bytes == offsets[entry.file, entry.key]


@pytest.mark.parametrize("table", ["placements", "meta_params"])
def test_every_parameter_and_buffer_has_one_row(demo, table):
    live, rows = _tensors(demo.model), demo.trace[table]
    assert sorted(rows["param"]) == sorted(live)
    for row in rows.itertuples():
        assert json.loads(row.shape) == list(live[row.param].shape)
        is_parameter = isinstance(live[row.param], torch.nn.Parameter)
        assert row.kind == ("parameter" if is_parameter else "buffer")


def test_placements_tell_live_dtype_device_and_origin(demo):
    live, placed = _tensors(demo.model), demo.trace["placements"]
    for row in placed.itertuples():
        assert row.dtype == str(live[row.param].dtype).removeprefix("torch.")
        assert row.device == str(live[row.param].device)
        assert row.matches
        assert row.residence == "resident"
        is_parameter = isinstance(live[row.param], torch.nn.Parameter)
        assert row.origin == ("checkpoint" if is_parameter else "rebuilt")


def test_sources_and_rules_lead_from_the_file_to_the_parameter(demo):
    reads = demo.trace["tensor_loads"].set_index("key")["param"]
    placed = demo.trace["placements"].set_index("param")
    for param, sources in placed["sources"].items():
        for key in json.loads(sources):
            assert reads[key] == param
            assert isinstance(placed["rule"][param], str) == (key != param)
    renamed = placed.loc["model.language_model.layers.0.mlp.up_proj.weight"]
    assert json.loads(renamed["sources"]) == ["model.layers.0.mlp.up_proj.weight"]
    assert isinstance(renamed["rule"], str)


def test_meta_parameters_have_shapes_and_no_device_memory(demo):
    rows = demo.trace["meta_params"]
    parameters = rows[rows["kind"] == "parameter"]
    assert set(parameters["device"]) == {"meta"}
    assert set(rows["planned_device"]) == {"cpu"}
    size = sum(one.numel() * one.element_size() for one in demo.model.parameters())
    assert parameters["size_bytes"].sum() == size


def test_the_models_row_adds_up(demo):
    (row,) = demo.trace["models"].itertuples()
    assert row.class_name == type(demo.model).__name__
    assert row.parameters == sum(one.numel() for one in demo.model.parameters())
    assert row.size_bytes == sum(
        one.numel() * one.element_size()
        for one in (*demo.model.parameters(), *demo.model.buffers())
    )
    assert (row.dtype, row.training) == ("bfloat16", False)
    assert row.folder == str(checkpoint_folder())


def test_files_are_all_listed_and_the_shards_described(demo):
    files = demo.trace["files"].set_index("path")
    assert set(files.index) == {path.name for path in checkpoint_folder().iterdir()}
    for path in SHARDS:
        header = read_header(path)
        row = files.loc[path.name]
        assert row["size_bytes"] == path.stat().st_size
        assert row["header_bytes"] == header.header_bytes
        assert row["tensors"] == len(header.tensors)
        assert json.loads(row["metadata"]) == header.metadata
        assert row["read"]
        assert row["access"] == "mmap"
    assert files.loc["config.json", "read"]
    assert not files.loc["README.md", "read"]
    assert files.loc["README.md", "why_not"]


def test_a_tied_head_is_tied_and_nothing_else(gpt2_load):
    model, trace = gpt2_load
    placed = trace["placements"].set_index("param")
    assert model.lm_head.weight is model.transformer.wte.weight
    assert placed.loc["lm_head.weight", "origin"] == "tied"
    assert json.loads(placed.loc["lm_head.weight", "sources"]) == ["transformer.wte.weight"]
    assert (placed["origin"] == "tied").sum() == 1
    assert json.loads(trace["models"]["tied"].iloc[0])


def test_shards_are_read_whole(llama_folder):
    _, trace = _load(llama_folder)
    headers = _headers(llama_folder)
    reads = trace["tensor_loads"]
    assert len(headers) > 1
    assert reads.groupby("file").size().to_dict() == {
        file: len(header.tensors) for file, header in headers.items()
    }


def test_asked_and_effective_settings_of_a_load(gpt2_load):
    settings = gpt2_load[1]["settings"].query("scope == 'load'").set_index("setting")
    row = settings.loc["dtype"]
    assert (json.loads(row["asked"]), json.loads(row["effective"])) == ("bfloat16", "bfloat16")
    assert row["origin"] == "call"
    assert gpt2_load[1]["models"]["dtype_why"].iloc[0] == "argument"


def test_an_accepted_and_ignored_argument_says_so(gpt2_folder):
    _, trace = _load(gpt2_folder, low_cpu_mem_usage=True)
    settings = trace["settings"].query("scope == 'load'").set_index("setting")
    assert not settings.loc["low_cpu_mem_usage", "used"]
    assert settings.loc["low_cpu_mem_usage", "why"]


def test_a_parameter_that_no_file_holds_is_initialised(llama_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    for path in llama_folder.iterdir():
        if "safetensors" not in path.name:
            shutil.copy(path, tmp_path)
    tensors = {}
    for path in llama_folder.glob("*.safetensors"):
        tensors |= load_file(path)
    tensors["stranger.weight"] = tensors.pop("lm_head.weight")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    _, trace = _load(tmp_path)
    placed = trace["placements"].set_index("param")
    assert placed.loc["lm_head.weight", "origin"] == "initialised"
    fates = trace["checkpoint_tensors"].set_index("key")["fate"]
    assert fates["stranger.weight"] == "unexpected"
    assert (fates.drop("stranger.weight") == "loaded").all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread waited")
def test_what_a_call_waited_between_its_parts_is_a_part_of_what_it_waited(demo):
    calls = demo.trace["calls"]
    assert calls[["waited_ns", "gap_waited_ns"]].notna().all(axis=None)
    assert (calls["gap_waited_ns"] >= 0).all()
    assert (calls["gap_waited_ns"] <= calls["waited_ns"]).all()


def test_memory_is_sampled_before_and_after(demo):
    memory = demo.trace["memory"]
    boundaries = memory[memory["name"] != "between reads"]
    assert boundaries["name"].tolist() == [
        "before the load",
        "after the weights",
        "after the load",
        "before the first forward",
        "after the first forward",
    ]
    assert (memory["rss_bytes"] > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_verified_weights_equal_their_sources(gpt2_folder, dtype):
    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(gpt2_folder, dtype=dtype)
    placed = recording.trace["placements"].set_index("param")
    parameters = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert set(placed.loc[parameters, "verified"]) == {"equal"}
    assert (
        recording.trace.audit().set_index("check").loc["4 values = sources", "verdict"] == "holds"
    )
    assert "verify" in set(recording.trace["spans"]["stage"])
    assert recording.trace.rows("faults") == 0


@pytest.mark.parametrize("option", ["verify_weights", "values"])
def test_what_a_cast_makes_infinite_or_zero_is_counted(gpt2_folder, tmp_path, option):
    from safetensors.torch import load_file, save_file

    shutil.copytree(gpt2_folder, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["transformer.h.0.ln_1.weight"][:5] = torch.tensor([1e9, -1e9, 1e-20, 0.0, 1.0])
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with tracer.record(strict=True, **{option: True}) as recording:
        AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float16)
    placed = recording.trace["placements"].set_index("param")
    row = placed.loc["transformer.h.0.ln_1.weight"]
    assert (row["new_infinities"], row["new_zeros"]) == (2, 1)
    assert (row["verified"] == "equal") == (option == "verify_weights")
    reads = recording.trace["tensor_loads"]
    parts = reads[["queue_ns", "read_ns", "cast_ns", "duration_ns"]]
    assert (parts >= 0).all(axis=None)


def test_without_asking_nothing_is_compared(gpt2_load):
    assert set(gpt2_load[1]["placements"]["verified"]) == {"not compared"}
