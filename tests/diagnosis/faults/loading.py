"""Faults of a load: repeated, failed, slow, with code of the folder's own."""

import os

from analysis.load_rows import call
from diagnosis.bench import Bench, rewritten
from diagnosis.cases import clean, fault
from synthetic import event, make_trace
from transformers import AutoModelForCausalLM, AutoTokenizer

MS, GB = 1_000_000, 10**9


@fault("load_repeated")
def a_load_for_each_request(bench: Bench):
    with bench.recorded() as recording:
        for _ in range(3):
            AutoModelForCausalLM.from_pretrained(bench.folder("gpt2"))
    return recording.trace


@clean("load_repeated")
def two_models_side_by_side(bench: Bench):
    with bench.recorded() as recording:
        AutoModelForCausalLM.from_pretrained(bench.folder("gpt2"))
        AutoModelForCausalLM.from_pretrained(bench.folder("llama"))
    return recording.trace


@clean("load_repeated")
def one_folder_with_two_kernels(bench: Bench):
    with bench.recorded() as recording:
        for kernel in ("sdpa", "eager"):
            AutoModelForCausalLM.from_pretrained(bench.folder("llama"), attn_implementation=kernel)
    return recording.trace


def failed(bench: Bench, folder, **given):
    """The trace of a load that must fail."""
    with bench.recorded() as recording:
        try:
            AutoModelForCausalLM.from_pretrained(folder, **given)
        except Exception as error:
            print(f"as it should: {type(error).__name__}")
        else:
            raise AssertionError("the load was to fail")
    return recording.trace


@fault("load_failed")
def a_load_of_a_file_cut_short(bench: Bench):
    folder = bench.copy(bench.folder("llama"))
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 100)
    return failed(bench, folder)


@fault("load_failed")
def a_load_without_a_shard(bench: Bench):
    folder = bench.copy(bench.folder("llama", max_shard_size="9KB"))
    (folder / "model-00002-of-00003.safetensors").unlink()
    return failed(bench, folder)


@fault("load_failed", "weights_mismatched")
def a_load_of_another_vocabulary(bench: Bench):
    folder = bench.copy(bench.folder("llama"))
    rewritten(folder / "config.json", lambda config: config.update(vocab_size=80))
    return failed(bench, folder)


@fault("load_failed_elsewhere")
def a_load_with_a_kernel_that_there_is_not(bench: Bench):
    return failed(bench, bench.folder("llama"), attn_implementation="no_such_kernel")


@clean("load_failed", "load_failed_elsewhere", "remote_code_unneeded", "remote_code_run")
def a_load_that_ends_well(bench: Bench):
    with bench.recorded() as recording:
        AutoModelForCausalLM.from_pretrained(bench.folder("gpt2"))
    return recording.trace


@fault("remote_code_unneeded")
def trust_for_a_folder_without_code(bench: Bench):
    with bench.recorded() as recording:
        AutoModelForCausalLM.from_pretrained(bench.folder("gpt2"), trust_remote_code=True)
    return recording.trace


CODE = """
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "doctor_own"


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


def with_code(bench: Bench):
    """A folder whose model is of a class that lies beside it."""
    folder = bench.copy(bench.folder("llama"))
    (folder / "modeling_own.py").write_text(CODE, "utf-8")
    to = {
        "AutoConfig": "modeling_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
    }
    rewritten(
        folder / "config.json", lambda config: config.update(model_type="doctor_own", auto_map=to)
    )
    return folder


@fault("remote_code_run")
def code_of_the_folder_that_was_trusted(bench: Bench):
    with bench.recorded() as recording:
        AutoModelForCausalLM.from_pretrained(with_code(bench), trust_remote_code=True)
    return recording.trace


def paged(filesystem: str, disk: int, seconds: int = 20):
    """A load of eight gigabytes, by rows: no test can make a disk cold on every machine."""
    file = {"event": 2, "call": 2, "rank": 0, "model": "m1", "path": "one", "kind": "weights"}
    file |= {"format": "safetensors", "access": "mmap", "read": True, "filesystem": filesystem}
    read = event(5, 2, 2, "tensor_load", "a", 40, 10) | {"model": "m1", "key": "a", "file": "one"}
    read |= {"param": "a", "size_bytes": 8 * GB, "read_ns": MS, "cast_ns": MS, "mapped": False}
    read |= {"stored_dtype": "bfloat16", "loaded_dtype": "float32", "worker": "loader_0"}
    samples = [(10, "before the load", 1, 0, 0), (12, "after the load", 99, disk, 30_000)]
    memory = [
        event(seq, 2, 2, "tensor_load", name, start, 0)
        | {"anonymous_bytes": 10**9, "file_bytes": 0, "disk_bytes": bytes_, "major_faults": faults}
        | {"minor_faults": 0}
        for seq, name, start, bytes_, faults in samples
    ]
    return make_trace(
        {
            "calls": [call(2, -1, 0, seconds * 1000, model="m1")],
            "tensor_loads": [read],
            "files": [file | {"size_bytes": 8 * GB}],
            "memory": memory if disk else [one | {"major_faults": 0} for one in memory],
        }
    )


@fault("load_slow")
def a_load_from_a_cold_disk(bench: Bench):
    return paged("ext4", 8 * GB)


@fault("load_slow")
def a_load_over_a_network(bench: Bench):
    return paged("nfs4", 0)


@clean("load_slow")
def a_load_from_warm_pages(bench: Bench):
    return paged("ext4", 0)


@clean("load_failed", "load_failed_elsewhere", "load_repeated")
def a_tokenizer_and_its_model(bench: Bench):
    with bench.recorded() as recording:
        AutoTokenizer.from_pretrained(bench.chat())
    return recording.trace
