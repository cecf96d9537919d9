"""Analyses of real loads: they add up, tell mapped from read, and say where the disk was paid."""

import os
import subprocess
import sys

import pytest
import torch
from instrument.toys import text_inputs
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer
from tracer.analysis import load_files, load_memory, load_time
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells faults and disk bytes")
# Rows of the embeddings, which are nearly all of the model. Half of their bytes are over 32 MB: the
# allocator keeps smaller blocks that were freed, and a load that takes those adds nothing.
TOKENS = 140_000
WEIGHTS = TOKENS * 128 * 4


def _recorded(folder, **options):
    with tracer.record(strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(folder, **options)
    return recording.trace


@pytest.fixture(scope="module")
def heavy_folder(tmp_path_factory):
    """A model of 72 MB, nearly all of it one tensor."""
    folder = tmp_path_factory.mktemp("heavy")
    config = LlamaConfig(
        vocab_size=TOKENS, hidden_size=128, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def _forget(folder):
    """Take a folder's files out of the page cache, as far as the system lets anyone."""
    for path in folder.iterdir():
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


# In a process of its own: one that has run long has memory to spare, and a load then adds none. The
# small load before it takes what is taken once.
_ALONE = """
import sys, torch, tracer
from transformers import LlamaForCausalLM
place, small, folder, dtype = sys.argv[1:]
for one in (small, folder):
    with tracer.record(place, strict=True, if_exists="replace"):
        model = LlamaForCausalLM.from_pretrained(one, torch_dtype=getattr(torch, dtype))
        with torch.no_grad():
            model(input_ids=torch.arange(5)[None])
    del model
"""


def _alone(place, *arguments):
    subprocess.run([sys.executable, "-c", _ALONE, place, *arguments], check=True)
    return tracer.open_trace(place)


def _loaded_and_run(folder, **options):
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(folder, **options)
        with torch.no_grad():
            model(**text_inputs())
    return recording.trace


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_nanosecond_of_a_load_has_a_name(llama_folder, dtype):
    trace = _recorded(llama_folder, torch_dtype=dtype)
    times = load_time.load_time(trace)
    outer = trace["calls"].query("parent == -1").iloc[0]
    assert times.loc[times["is_loading"], "total_ns"].sum() == outer["duration_ns"]
    parts = load_time.by_part(times).set_index("part")
    assert (parts["total_ns"] >= 0).all()
    assert parts.loc["recorder", "total_ns"] == outer["recorder_ns"]
    assert {"meta_init", "read", "place", "recorder"} <= set(parts.index)
    reads = trace["tensor_loads"]
    # Generation 5 only takes a view of what keeps its dtype; before it, "cast" is a difference.
    is_cast = (reads["stored_dtype"] != reads["loaded_dtype"]).any()
    assert ("cast" in parts.index) == (is_cast or release() < FIVE)
    read = times.loc[times["part"].isin(["read", "cast"]), "total_ns"].sum()
    assert read == reads["duration_ns"].sum()
    is_five = release() >= FIVE
    assert (parts.loc["read", "workers_ns"] > 0) == is_five
    assert ({"queue", "wait"} <= set(parts.index)) == is_five


@pytest.mark.skipif(release() < FIVE, reason="generation 4 has no workers by default")
def test_without_workers_the_loading_thread_reads_itself(llama_folder, monkeypatch):
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")
    times = load_time.load_time(_recorded(llama_folder))
    assert times["is_loading"].all()
    parts = load_time.by_part(times).set_index("part")["total_ns"]
    assert parts["read"] > 0


def test_files_are_mapped_or_read_and_progress_ends_with_nothing_left(llama_folder):
    sizes = {
        path.name: path.stat().st_size for path in llama_folder.glob("*.safetensors")
    }  # tensors, header and its length
    mapped = load_files.load_files(_recorded(llama_folder, torch_dtype="float32"))
    assert mapped["file"].tolist() == sorted(sizes)
    assert (mapped["read_bytes"] == 0).all()
    assert mapped["mb_per_s"].isna().all()
    trace = _recorded(llama_folder, torch_dtype=torch.float16)
    cast = load_files.load_files(trace)
    assert (cast["mapped_bytes"] == 0).all()
    assert (cast["mb_per_s"] > 0).all()
    progress = load_files.load_progress(trace)
    assert sorted(progress["file"]) == sorted(sizes)
    assert progress.iloc[-1][["left_tensors", "left_bytes"]].tolist() == [0, 0]
    known = progress["known_tensors"]
    assert known.iloc[-1] == progress["loaded_tensors"].iloc[-1] == trace.rows("tensor_loads")
    assert (known.iloc[0] == known.iloc[-1]) == (release() >= FIVE)


@LINUX
def test_a_cold_load_is_told_from_a_warm_one_by_what_came_from_the_disk(heavy_folder):
    _forget(heavy_folder)
    (cold,) = load_memory.cold_or_warm(_loaded_and_run(heavy_folder)).to_dict("records")
    if cold["disk_bytes"] < WEIGHTS // 2:
        pytest.skip(f"files of {cold['filesystem']} stay in memory: nothing came from a disk")
    assert cold["verdict"] == "cold"
    assert cold["disk_mb_per_s"] > 0
    frame = load_memory.cold_or_warm(_loaded_and_run(heavy_folder))
    assert frame["verdict"].tolist() == ["warm"]
    assert frame["disk_mb_per_s"].isna().all()


@pytest.mark.slow
@LINUX
def test_a_mapped_load_leaves_the_pages_to_the_first_forward_and_a_cast_takes_them(
    heavy_folder, llama_folder, tmp_path
):
    trace = _alone(tmp_path / "run", llama_folder, heavy_folder, "float32")
    paid = load_memory.where_paid(trace).set_index("phase")
    assert paid.loc["mapped", "size_bytes"] >= WEIGHTS
    assert paid.loc["load", "file_added_bytes"] < WEIGHTS // 2
    assert paid.loc["first forward", "file_added_bytes"] > WEIGHTS // 2
    assert paid.loc["first forward", "minor_faults"] > 0
    trace = _alone(tmp_path / "run", llama_folder, heavy_folder, "bfloat16")
    paid = load_memory.where_paid(trace).set_index("phase")
    assert paid.loc["read", "size_bytes"] >= WEIGHTS
    assert paid.loc["load", "anonymous_added_bytes"] > WEIGHTS // 3
    assert paid.loc["first forward", "file_added_bytes"] < WEIGHTS // 2


@pytest.mark.slow
@LINUX
def test_peak_memory_goes_by_the_path_that_the_bytes_take(heavy_folder, llama_folder, tmp_path):
    """A mapped file needs none of its own, a cast its result, a `.bin` that is read all of it."""
    model = LlamaForCausalLM.from_pretrained(heavy_folder)
    model.config.save_pretrained(tmp_path)
    weights = {"lm_head.weight": model.lm_head.weight, **model.state_dict()}
    # The format before the zip archives: it can't be mapped.
    torch.save(weights, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    del model, weights
    peaks = [
        load_memory.load_memory(_alone(tmp_path / "run", llama_folder, folder, dtype)).iloc[0]
        for folder, dtype in [
            (heavy_folder, "float32"),
            (heavy_folder, "bfloat16"),
            (tmp_path, "float32"),
        ]
    ]
    mapped, cast, read = [peak["times_weights"] for peak in peaks]
    assert mapped < 0.3
    assert 0.4 < cast < 0.8
    assert 0.9 < read < 1.6
    assert [peak["format"] for peak in peaks] == ["safetensors", "safetensors", "pickle"]
    assert peaks[1]["cast"] == "float32 to bfloat16"


def test_a_load_that_fails_still_has_its_time(tmp_path, llama_folder):
    for path in llama_folder.iterdir():
        if path.suffix != ".safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with tracer.record(strict=True) as recording, pytest.raises(OSError, match="safetensors"):
        AutoModelForCausalLM.from_pretrained(tmp_path)
    trace = recording.trace
    times = load_time.load_time(trace)
    outer = trace["calls"].query("parent == -1").iloc[0]
    assert times.loc[times["is_loading"], "total_ns"].sum() == outer["duration_ns"]
    assert load_files.load_files(trace).empty
    assert load_memory.cold_or_warm(trace)["verdict"].tolist() == ["unknown"]
