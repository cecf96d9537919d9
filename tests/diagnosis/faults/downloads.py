"""Faults of folders as they come from downloads, copies and conversions."""

from __future__ import annotations

from typing import Any

from diagnosis.bench import Bench
from diagnosis.cases import clean, fault
from diagnosis.faults.headers import LLAMA_CONFIG, folder_of
from diagnosis.handmade import INDEX, in_shards, llama, tensors_file, tokenizer, written

BARE = ("folder_without_tokenizer",)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 17082987\n" % (
    b"a" * 64
)
ONE = "model-00001-of-00002.safetensors"


def shards(bench: Bench, **config: Any):
    folder = bench.new()
    in_shards(folder, llama(), 2)
    return written(folder, config__json=LLAMA_CONFIG | config)


@fault("file_damaged", also=BARE)
def a_pickle_under_the_name_of_a_safetensors_file(bench: Bench):
    folder = folder_of(bench, llama())
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04" + bytes(400))
    return folder


@fault("file_damaged", also=BARE)
def a_refusal_of_the_hub_saved_as_a_shard(bench: Bench):
    folder = shards(bench)
    (folder / ONE).write_bytes(b'{"error":"Access to model org/x is restricted."}')
    return folder


@fault("file_damaged", also=())
def a_configuration_with_a_byte_order_mark(bench: Bench):
    folder = folder_of(bench, llama())
    path = folder / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return written(folder, **tokens())


def tokens() -> dict[str, Any]:
    own = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "b", "pad_token": "a"}
    own |= {"chat_template": "{{ messages }}"}
    return {"tokenizer__json": tokenizer("abc"), "tokenizer_config__json": own}


@fault("file_damaged", also=())
def a_configuration_that_was_cut(bench: Bench):
    folder = folder_of(bench, llama())
    path = folder / "config.json"
    path.write_text(path.read_text("utf-8")[:-30], "utf-8")
    return written(folder, **tokens())


@fault("file_damaged", also=())
def a_tokenizer_that_is_a_list(bench: Bench):
    return written(folder_of(bench, llama()), **tokens() | {"tokenizer__json": [1, 2]})


@fault("file_empty", also=())
def a_configuration_without_bytes(bench: Bench):
    return written(folder_of(bench, llama()), **tokens(), config__json="")


@fault("file_empty", also=())
def a_vocabulary_without_bytes(bench: Bench):
    return written(folder_of(bench, llama()), **tokens(), tokenizer__model=b"")


@fault("file_pointer", also=())
def pieces_that_git_did_not_fetch(bench: Bench):
    return written(folder_of(bench, llama()), **tokens(), spiece__model=POINTER)


@fault("file_pointer", also=BARE)
def every_shard_a_pointer(bench: Bench):
    folder = shards(bench)
    for path in folder.glob("*.safetensors"):
        path.write_bytes(POINTER)
    return folder


@fault("file_absent", also=BARE)
def an_index_without_any_shard(bench: Bench):
    folder = shards(bench)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    return folder


@fault("folder_incomplete")
def the_folder_above_a_snapshot(bench: Bench):
    folder = bench.new()
    inner = folder / "snapshots" / "abc"
    inner.mkdir(parents=True)
    tensors_file(inner / "model.safetensors", llama())
    written(inner, config__json=LLAMA_CONFIG)
    return written(folder / "refs", main="abc").parent


@fault("folder_incomplete")
def a_pipeline_of_several_models(bench: Bench):
    folder = bench.new()
    (folder / "text_encoder").mkdir()
    tensors_file(folder / "text_encoder" / "model.safetensors", llama())
    written(folder / "text_encoder", config__json=LLAMA_CONFIG)
    return written(folder, model_index__json={"_class_name": "Pipeline"})


@fault("folder_incomplete", also=BARE)
def weights_of_other_frameworks_alone(bench: Bench):
    return written(
        bench.new(), config__json=LLAMA_CONFIG, tf_model__h5=b"\x89HDF\r\n\x1a\n" + bytes(9)
    )


@fault("folder_incomplete", also=BARE)
def a_single_quantised_file_of_another_format(bench: Bench):
    return written(
        bench.new(), config__json=LLAMA_CONFIG, model__gguf=b"GGUF\x03\0\0\0" + bytes(16)
    )


@fault("index_disagrees", also=BARE)
def one_tensor_in_two_shards(bench: Bench):
    folder = bench.new()
    shapes = llama()
    tensors_file(folder / ONE, shapes)
    tensors_file(folder / "model-00002-of-00002.safetensors", {"lm_head.weight": (32, 4)})
    names = dict.fromkeys(shapes, ONE) | {"lm_head.weight": "model-00002-of-00002.safetensors"}
    return written(
        folder, config__json=LLAMA_CONFIG, **{INDEX: {"metadata": {}, "weight_map": names}}
    )


@fault("index_disagrees", also=BARE)
def two_shards_that_changed_their_names(bench: Bench):
    folder = shards(bench)
    other = folder / "model-00002-of-00002.safetensors"
    (folder / ONE).rename(folder / "kept")
    other.rename(folder / ONE)
    (folder / "kept").rename(other)
    return folder


@fault("path_outside_folder", also=BARE)
def an_index_with_whole_paths(bench: Bench):
    folder = bench.new()
    names = dict.fromkeys(llama(), "/data/model.safetensors")
    return written(
        folder, config__json=LLAMA_CONFIG, **{INDEX: {"metadata": {}, "weight_map": names}}
    )


@fault("dtype_of_config_differs", also=BARE)
def a_file_in_float32_for_a_configuration_in_float16(bench: Bench):
    folder = bench.new()
    tensors_file(folder / "model.safetensors", llama(), "F32")
    return written(folder, config__json=LLAMA_CONFIG | {"torch_dtype": "float16"})


@clean("file_damaged", "file_unused", "folder_incomplete", also=BARE)
def files_of_a_trainer_beside_pickled_shards(bench: Bench):
    """`optimizer.pt` and its like are no shards, whatever the index is of."""
    folder = shards(bench)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "training_args.bin"):
        (folder / name).write_bytes(b"PK\x03\x04" + bytes(60))
    return folder
