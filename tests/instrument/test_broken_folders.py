"""Folders that can't be loaded: the user's exception as it is, and file, cause and numbers told.

Runs on older releases too. What the library raises for each differs between releases and is not
tested; that the very same exception arrives with and without a recording is.
"""

import itertools
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)

import tracer
from tracer.checkpoint import read_header
from tracer.explain import said_again
from tracer.instrument.installer import release
from tracer.survey import survey_folder

pytestmark = pytest.mark.generations

PUBLISHED = Path(__file__).resolve().parents[3] / "shared/data/folders"
INDEX = "model.safetensors.index.json"
CHINESE = re.compile("[\u4e00-\u9fff]")
POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:ac02591061f1344027a7e7b11dbb4143f75f166c47dc09b742f5de3ab1dde1d1\n"
    b"size 2669283096\n"
)


@pytest.fixture(scope="module")
def sound_folder(tmp_path_factory):
    """A Llama in several shards."""
    folder = tmp_path_factory.mktemp("sound")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder, max_shard_size="8KB")
    assert len(shards(folder)) >= 3
    return folder


@pytest.fixture
def folder(sound_folder, tmp_path):
    """A copy of it, to be broken; its name is not an easy one."""
    return Path(shutil.copytree(sound_folder, tmp_path / "模型 v1.5 (副本)"))


@pytest.fixture
def chinese():
    tracer.language("zh")
    yield
    tracer.language("en")


def shards(folder):
    return sorted(folder.glob("*.safetensors"))


def load(folder, auto_class=AutoModelForCausalLM):
    """What a load says without and with a recording, and the recording's trace."""
    errors = []
    for is_on in (False, True):
        recording = tracer.start(strict=True) if is_on else None
        try:
            auto_class.from_pretrained(folder)
            errors.append(None)
        except Exception as error:
            errors.append((type(error), str(error)))
        finally:
            if recording is not None:
                recording.stop()
    assert errors[0] == errors[1]
    return errors[1], recording.trace


def told(trace, target):
    """What `faults` says of a file."""
    faults = trace["faults"]
    return " ".join(faults.loc[faults["target"] == target, "reason"])


def cut_tail(path):
    os.truncate(path, path.stat().st_size - 100)
    return "tail_cut", "100 bytes of weights are missing"


def cut_header(path):
    os.truncate(path, 60)
    need = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    return "header_cut", f"has 60 bytes, its header alone needs {need}"


def keep_four_bytes(path):
    os.truncate(path, 4)
    return "header_cut", "has 4 bytes, too few for the 8"


def empty(path):
    os.truncate(path, 0)
    return "empty_file", "is empty"


def point(path):
    path.write_bytes(POINTER)
    size = len(POINTER)
    return "lfs_pointer", f"Git LFS pointer of {size} bytes, not the file of 2669283096 bytes"


def append(path):
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(100))
    return "extra_bytes", f"has {size + 100} bytes, its header needs {size}: 100 bytes too many"


def write_page(path):
    path.write_text("<!DOCTYPE html><html><body>Sign in to download</body></html>")
    return "wrong_format", "no safetensors file but a web page"


def write_pickle(path):
    torch.save({"a": torch.ones(3)}, path)
    return "wrong_format", "no safetensors file but a zip archive"


def write_gguf(path):
    path.write_bytes(b"GGUF" + bytes(200))
    return "wrong_format", "no safetensors file but a GGUF file"


def shrink_a_tensor(path):
    """The header says one value less than its bytes hold."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__")
    begin, end = header[name]["data_offsets"]
    header[name]["shape"] = [(end - begin) // 4 - 1]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return "size_mismatch", f"gives {name} {end - begin} bytes"


def remove(path):
    path.unlink()
    return "absent_file", f"is not there; {INDEX} names it for"


def link_to_nothing(path):
    path.unlink()
    path.symlink_to("blob-that-is-gone")
    return "broken_link", "it is a link to blob-that-is-gone, which is not there"


def be_a_folder(path):
    path.unlink()
    path.mkdir()
    return "unreadable", "can't be read: it is a folder"


BREAKAGES = [
    cut_tail, cut_header, keep_four_bytes, empty, point, append, write_page, write_pickle,
    write_gguf, shrink_a_tensor, remove, link_to_nothing, be_a_folder,
]  # fmt: skip


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_shard_is_named_with_cause_and_numbers(folder, breakage):
    path = shards(folder)[1]
    kind, words = breakage(path)
    error, trace = load(folder)
    assert error is not None
    found = [one for one in survey_folder(folder).problems if one.file == path.name]
    assert found[0].kind == kind
    assert words in found[0].sentence
    assert words in told(trace, path.name)
    row = trace["files"].set_index("path").loc[path.name]
    assert words in row["why_not"]
    assert trace["calls"]["status"].tolist().count("error") >= 1
    assert "recorder failed" not in " ".join(trace["faults"]["reason"])


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_what_is_wrong_is_recorded_in_english_and_told_in_chinese(folder, breakage, chinese):
    breakage(shards(folder)[0])
    _, trace = load(folder)
    recorded = {*trace["faults"]["reason"], *trace["files"]["why_not"].dropna()}
    assert len(recorded) > 1
    for reason in recorded:
        assert not CHINESE.search(reason.replace(folder.name, ""))
        assert CHINESE.search(said_again(reason))


def test_a_sound_folder_tells_no_fault(folder):
    error, trace = load(folder)
    assert error is None
    assert trace.rows("faults") == 0
    files = trace["files"].set_index("path")
    assert (files["expected_bytes"] == files["size_bytes"])[files["kind"] == "weights"].all()
    assert files.loc[files["kind"] == "weights", "why_not"].isna().all()


def test_what_the_library_could_read_is_not_called_broken(folder):
    """A sum in the index that is wrong, and a pickle of another make, beside whole shards."""
    content = json.loads((folder / INDEX).read_text())
    content["metadata"]["total_size"] += 1
    (folder / INDEX).write_text(json.dumps(content))
    (folder / "training_args.bin").write_bytes(b"\x80\x04nonsense")
    error, trace = load(folder)
    assert error is None
    assert trace.rows("faults") == 0


def test_bytes_that_are_missing_are_summed(folder):
    first, second, *_ = shards(folder)
    lost = sum(one.size_bytes for one in read_header(first).tensors.values())
    first.unlink()
    cut_tail(second)
    _, trace = load(folder)
    assert f"{lost + 100} bytes of weights are missing" in told(trace, folder.name)


def test_every_header_of_a_failed_load_is_in_the_trace(folder):
    cut_tail(shards(folder)[0])
    _, trace = load(folder)
    tensors = trace["checkpoint_tensors"]
    assert len(tensors) == len(json.loads((folder / INDEX).read_text())["weight_map"])
    assert set(tensors["fate"]) == {"skipped"}
    assert tensors["in_index"].all()


def rewrite_index(folder, change):
    path = folder / INDEX
    content = json.loads(path.read_text())
    change(content["weight_map"])
    path.write_text(json.dumps(content))


def a_tensor(folder, place=0):
    """Shard and one of its tensors."""
    path = shards(folder)[place]
    return path, next(iter(read_header(path).tensors))


def without_a_tensor(path, name):
    """Write a shard again without one of its tensors."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    lost = tensors.pop(name)
    save_file(tensors, path, metadata={"format": "pt"})
    return lost.numel() * lost.element_size()


def test_a_tensor_that_the_index_promises_and_no_shard_holds(folder):
    path, name = a_tensor(folder)
    size = without_a_tensor(path, name)
    _, trace = load(folder)  # the library says nothing, or a line in its log
    words = f"{INDEX} promises {name} in {path.name}, whose header does not name it"
    assert words in told(trace, path.name)
    held = sum(trace["checkpoint_tensors"]["size_bytes"])
    assert f"promises {held + size} bytes of tensors" in told(trace, INDEX)
    placed = trace["placements"].set_index("param") if trace.rows("placements") else None
    if placed is not None:
        assert placed.loc[name, "origin"] in {"initialised", "unwritten"}


def test_a_tensor_that_the_index_does_not_name(folder):
    path, name = a_tensor(folder)
    rewrite_index(folder, lambda names: names.pop(name))
    error, trace = load(folder)
    assert error is None
    assert f"{path.name} holds {name}, which {INDEX} does not name" in told(trace, path.name)
    origin = trace["placements"].set_index("param").loc[name, "origin"]
    assert origin == ("checkpoint" if release() >= (5, 0) else "initialised")
    assert trace["checkpoint_tensors"].set_index("key").loc[name, "in_index"] == False  # noqa: E712


def test_an_index_of_another_sharding(folder):
    """Its names of files are those of a checkpoint in fewer pieces."""
    rewrite_index(
        folder, lambda names: names.update(dict.fromkeys(names, "model-1-of-1.safetensors"))
    )
    error, trace = load(folder)
    assert error is not None
    count = len(json.loads((folder / INDEX).read_text())["weight_map"])
    words = f"{INDEX} names it for {count} tensors"
    assert words in told(trace, "model-1-of-1.safetensors")
    files = trace["files"].set_index("path")
    assert set(files.loc[[path.name for path in shards(folder)], "why_not"]) == {
        f"{INDEX} does not name it"
    }


def test_shards_without_their_index(folder):
    (folder / INDEX).unlink()
    error, trace = load(folder)
    assert error is not None
    assert f"neither model.safetensors nor {INDEX}, which names the shards" in told(
        trace, folder.name
    )


def test_a_tensor_under_the_name_of_another_shard(folder):
    (first, name), (second, _) = a_tensor(folder), a_tensor(folder, 1)
    rewrite_index(folder, lambda names: names.update({name: second.name}))
    _, trace = load(folder)
    words = f"promises {name} in {second.name}, whose header does not name it; it lies in"
    assert f"{words} {first.name}" in told(trace, second.name)


def test_a_stray_shard_is_no_fault_and_not_read(folder):
    stray = folder / "model-00099-of-00099.safetensors"
    shutil.copy(shards(folder)[0], stray)
    error, trace = load(folder)
    assert error is None
    assert trace.rows("faults") == 0
    row = trace["files"].set_index("path").loc[stray.name]
    assert (row["read"], row["why_not"]) == (False, f"{INDEX} does not name it")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"weight_map": []}', POINTER])
def test_a_damaged_index_is_named(folder, content):
    (folder / INDEX).write_bytes(content)
    error, trace = load(folder)
    assert error is not None
    assert f"{INDEX} is no usable index" in told(trace, INDEX)


@pytest.mark.parametrize("content", [b"", b"{", POINTER])
def test_a_damaged_configuration_is_named(folder, content):
    (folder / "config.json").write_bytes(content)
    error, trace = load(folder)
    assert error is not None
    assert told(trace, "config.json").startswith("config.json is ")


def test_a_folder_without_configuration(folder):
    (folder / "config.json").unlink()
    error, trace = load(folder)
    assert error is not None
    assert "has no config.json" in told(trace, folder.name)


def test_a_tokenizer_that_is_a_pointer(folder):
    (folder / "tokenizer.json").write_bytes(POINTER)
    with tracer.record(strict=True) as recording, pytest.raises(Exception):  # noqa: B017, PT011
        AutoTokenizer.from_pretrained(folder)
    assert "not the file of 2669283096 bytes" in told(recording.trace, "tokenizer.json")


def test_a_pickled_checkpoint_that_was_cut(sound_folder, tmp_path):
    shutil.copy(sound_folder / "config.json", tmp_path)
    state = LlamaForCausalLM.from_pretrained(sound_folder).state_dict()
    path = tmp_path / "pytorch_model.bin"
    torch.save(state, path)
    os.truncate(path, path.stat().st_size - 100)
    error, trace = load(tmp_path)
    assert error is not None
    size = path.stat().st_size
    assert f"has {size} bytes and no archive directory at its end" in told(trace, path.name)


@pytest.mark.skipif(not hasattr(os, "seteuid") or os.geteuid() != 0, reason="needs to be root")
def test_a_file_without_permission(folder, request):
    load(folder)  # whatever is imported on the way may lie where others can't read
    common = Path(tempfile.gettempdir()).resolve()
    if not folder.resolve().is_relative_to(common):
        pytest.skip("what lies above the test's folder is not ours to open")
    for parent in itertools.takewhile(common.__ne__, [folder, *folder.parents]):
        parent.chmod(0o755)
    path = shards(folder)[1]
    path.chmod(0)
    request.addfinalizer(lambda: os.seteuid(0))
    os.seteuid(65534)
    error, trace = load(folder)
    assert error is not None
    assert f"{path.name} can't be read: Permission denied" in told(trace, path.name)


def write_hollow(folder, config):
    """A checkpoint as long as it should be, with no content on the disk: its bytes are a hole."""
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    end, header = 0, {"__metadata__": {"format": "pt"}}
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            size = tensor.numel() * 2
            place = {"shape": list(tensor.shape), "data_offsets": [end, end + size]}
            header[name] = {"dtype": "BF16", **place}
            end += size
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)


@pytest.fixture
def short_of_memory():
    """This process may take 400 MB of addresses more than it has, and no more."""
    resource = pytest.importorskip("resource")
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux tells how much a process has")
    used = int(re.search(r"VmSize:\s+(\d+) kB", status.read_text())[1]) * 1024
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 400_000_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_machine_without_room_for_the_model(sound_folder, tmp_path, request):
    config = LlamaConfig.from_pretrained(sound_folder)
    config.vocab_size, config.tie_word_embeddings = 20_000_000, True  # 640 MB
    write_hollow(tmp_path, config)
    request.getfixturevalue("short_of_memory")
    error, trace = load(tmp_path)
    assert error is not None
    words = told(trace, "memory")
    numbers = re.match(r"the load failed with (\d+) bytes .* where (\d+) bytes", words)
    assert int(numbers[1]) >= 640_000_000 > int(numbers[2])
    assert "address space limit of the process" in words


PUBLISHED_CASES = {
    "granite-3.1-1b-a400m-instruct": ("model.safetensors", "2669283096 bytes that it stands for"),
    "WizardLM-2-8x22B": ("model-00059-of-00059.safetensors", "997233472 bytes that it stands for"),
    "Devstral-Small-2507": ("model-00010-of-00010.safetensors", "names it for 23 tensors"),
    "Qwen2.5-VL-7B-Instruct": ("Qwen2.5-VL-7B-Instruct", "holds no weights file at all"),
}
MISSING_BYTES = {
    "granite-3.1-1b-a400m-instruct": 2_669_283_096,
    "WizardLM-2-8x22B": 281_241_268_224,
    "Devstral-Small-2507": 47_144_806_400,
}


@pytest.mark.parametrize("name", PUBLISHED_CASES)
def test_a_published_folder_without_weights(name):
    if not (PUBLISHED / name).is_dir():
        pytest.skip(f"the published folder {name} is not here")
    is_seeing = "VL" in name
    auto_class = AutoModelForImageTextToText if is_seeing else AutoModelForCausalLM
    error, trace = load(PUBLISHED / name, auto_class)
    assert error is not None
    target, words = PUBLISHED_CASES[name]
    assert words in told(trace, target)
    if name in MISSING_BYTES:
        assert f"{MISSING_BYTES[name]} bytes of weights are missing" in told(trace, name)
        assert words in trace["files"].set_index("path").loc[target, "why_not"]
