"""Faults of a folder's files, index and configuration, found before anything is loaded."""

import json
import os
import shutil

from diagnosis.bench import Bench, rewritten
from diagnosis.cases import clean, fault

from tracer.inspecting import fit
from tracer.inspection import Inspection, inspect
from tracer.machine import Room

BARE = ("folder_without_tokenizer",)  # a toy of a family has none
CHAT = ("folder_pad_is_end",)  # the chat model pads with one of its two end tokens
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 5000000\n" % (b"a" * 64)
SHARD = "model-00002-of-00003.safetensors"
FILES = ("file_absent", "file_empty", "file_pointer", "file_cut", "file_damaged", "file_unused")
FILES += ("file_unreadable", "path_outside_folder", "folder_incomplete", "index_disagrees")
FILES += ("index_total_wrong", "dtype_of_config_differs", "remote_code_present")


def shards(bench: Bench):
    """A Llama in three shards with an index, to be broken."""
    return bench.copy(bench.folder("llama", max_shard_size="9KB"))


@clean(*FILES, "memory_too_small", "embedding_of_another_size", also=BARE)
def three_shards_with_their_index(bench: Bench):
    return bench.folder("llama", max_shard_size="9KB")


@clean(*FILES, "folder_without_tokenizer", "folder_without_template", "ids_beyond_embedding",
       "stop_ids_disagree", "settings_unsavable", "settings_shipped", also=CHAT)  # fmt: skip
def a_whole_chat_model(bench: Bench):
    return bench.chat()


@fault("file_absent", also=BARE)
def a_shard_that_was_not_downloaded(bench: Bench):
    folder = shards(bench)
    (folder / SHARD).unlink()
    return folder


@fault("file_absent", also=BARE)
def a_shard_that_is_a_link_to_nothing(bench: Bench):
    folder = shards(bench)
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to(folder / "blobs" / "gone")
    return folder


@fault("file_absent", "file_unused", also=BARE)
def an_index_of_another_sharding(bench: Bench):
    folder = shards(bench)
    for path in folder.glob("*.safetensors"):
        path.rename(folder / path.name.replace("of-00003", "of-00004"))
    return folder


@fault("file_unreadable", also=BARE)
def a_folder_where_a_shard_should_be(bench: Bench):
    folder = shards(bench)
    (folder / SHARD).unlink()
    (folder / SHARD).mkdir()
    return folder


@fault("file_empty", also=BARE)
def a_shard_without_bytes(bench: Bench):
    folder = shards(bench)
    (folder / SHARD).write_bytes(b"")
    return folder


@fault("file_pointer", also=BARE)
def a_shard_that_git_did_not_fetch(bench: Bench):
    folder = shards(bench)
    (folder / SHARD).write_bytes(POINTER)
    return folder


@fault("file_pointer", also=CHAT)
def a_tokenizer_that_git_did_not_fetch(bench: Bench):
    folder = bench.copy(bench.chat())
    (folder / "tokenizer.json").write_bytes(POINTER)
    return folder


@fault("file_cut", also=BARE)
def a_download_that_stopped_in_the_weights(bench: Bench):
    folder = shards(bench)
    os.truncate(folder / SHARD, (folder / SHARD).stat().st_size - 100)
    return folder


@fault("file_cut", also=BARE)
def a_download_that_stopped_in_the_header(bench: Bench):
    folder = shards(bench)
    os.truncate(folder / SHARD, 60)
    return folder


@fault("file_damaged", also=BARE)
def bytes_behind_the_last_tensor(bench: Bench):
    folder = shards(bench)
    with (folder / SHARD).open("ab") as file:
        file.write(bytes(100))
    return folder


@fault("file_damaged", also=BARE)
def a_web_page_under_the_name_of_a_shard(bench: Bench):
    folder = shards(bench)
    (folder / SHARD).write_bytes(b"<!doctype html><html><body>Sign in</body></html>" * 9)
    return folder


@fault("file_damaged", also=BARE)
def an_index_that_is_no_json(bench: Bench):
    folder = shards(bench)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": ', "utf-8")
    return folder


@fault("file_damaged", also=(*BARE, "file_unused"))
def an_index_that_names_nothing(bench: Bench):
    folder = shards(bench)
    rewritten(folder / "model.safetensors.index.json", lambda index: index.update(weight_map={}))
    return folder


@fault("path_outside_folder", also=BARE)
def an_index_that_leads_out(bench: Bench):
    folder = shards(bench)
    rewritten(folder / "model.safetensors.index.json", leads_out)
    return folder


def leads_out(index):
    key = next(iter(index["weight_map"]))
    index["weight_map"][key] = "../other/model.safetensors"


@fault("folder_incomplete", also=BARE)
def shards_without_their_index(bench: Bench):
    folder = shards(bench)
    (folder / "model.safetensors.index.json").unlink()
    return folder


@fault("folder_incomplete", also=BARE)
def weights_of_a_variant_alone(bench: Bench):
    folder = bench.copy(bench.folder("llama"))
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    return folder


@fault("folder_incomplete", also=BARE)
def weights_without_a_configuration(bench: Bench):
    folder = bench.copy(bench.folder("llama"))
    (folder / "config.json").unlink()
    return folder


@fault("folder_incomplete", also=CHAT)
def a_folder_without_weights(bench: Bench):
    folder = bench.copy(bench.chat())
    (folder / "model.safetensors").unlink()
    return folder


@fault("file_unused", also=BARE)
def a_shard_beside_the_index(bench: Bench):
    folder = shards(bench)
    shutil.copyfile(folder / SHARD, folder / "model-00009-of-00009.safetensors")
    return folder


@fault("index_disagrees", also=BARE)
def a_tensor_that_no_file_holds(bench: Bench):
    folder = shards(bench)
    rewritten(
        folder / "model.safetensors.index.json",
        lambda index: index["weight_map"].update({"model.layers.7.gone": SHARD}),
    )
    return folder


@fault("index_disagrees", also=BARE)
def a_tensor_that_the_index_forgot(bench: Bench):
    folder = shards(bench)
    rewritten(
        folder / "model.safetensors.index.json",
        lambda index: index["weight_map"].pop("model.norm.weight"),
    )
    return folder


@fault("index_total_wrong", also=BARE)
def a_total_that_is_wrong_alone(bench: Bench):
    folder = shards(bench)
    rewritten(
        folder / "model.safetensors.index.json",
        lambda index: index["metadata"].update(total_size=7),
    )
    return folder


@fault("memory_too_small", also=BARE)
def weights_larger_than_what_is_left(bench: Bench):
    known = inspect(bench.folder("llama"))
    tight = fit.fits_of(known.survey, Room(10_000, 10_000, "a limit of this test"))
    return Inspection(known.survey, known.tokenizer, tight)


@fault("dtype_of_config_differs", also=CHAT)
def a_configuration_in_float16_over_a_bf16_file(bench: Bench):
    return bench.changed_chat("config.json", lambda config: config.update(torch_dtype="float16"))


@fault("dtype_of_config_differs", also=CHAT)
def a_configuration_in_float32_over_a_bf16_file(bench: Bench):
    return bench.changed_chat("config.json", lambda config: config.update(torch_dtype="float32"))


@clean("dtype_of_config_differs", also=CHAT)
def a_configuration_without_a_dtype(bench: Bench):
    return bench.changed_chat("config.json", lambda config: config.pop("torch_dtype"))


@fault("remote_code_present", also=CHAT)
def classes_that_the_folder_brings(bench: Bench):
    folder = bench.copy(bench.chat())
    (folder / "modeling_own.py").write_text("raise SystemExit('this ran')\n", "utf-8")
    to = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    rewritten(folder / "config.json", lambda config: config.update(auto_map=to))
    return folder


@clean("remote_code_present", also=CHAT)
def a_script_that_nothing_names(bench: Bench):
    folder = bench.copy(bench.chat())
    (folder / "convert.py").write_text("print('a script of the author')\n", "utf-8")
    return folder


@fault("embedding_of_another_size", also=BARE)
def a_vocabulary_that_was_resized_in_the_file_alone(bench: Bench):
    folder = bench.copy(bench.folder("llama"))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"vocab_size": 80}), "utf-8")
    return folder
