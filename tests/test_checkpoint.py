"""Checkpoint files read without torch: what the bytes say, and one clear sentence when they lie."""

import json
from pathlib import Path

import pytest

from tracer.checkpoint import filesystem_of, list_files, read_header, read_index
from tracer.errors import CheckpointError

ENTRIES = {
    "__metadata__": {"format": "pt", "note": "说明"},
    "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b.bias": {"dtype": "F32", "shape": [4], "data_offsets": [12, 28]},
    "c": {"dtype": "I64", "shape": [], "data_offsets": [28, 36]},
}
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n"
)


def header_bytes(entries=ENTRIES) -> bytes:
    """The length and the JSON that begin a file."""
    raw = json.dumps(entries).encode()
    return len(raw).to_bytes(8, "little") + raw


def write(folder: Path, raw: bytes, name: str = "model.safetensors") -> Path:
    """A file with these bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(raw)
    return folder / name


@pytest.mark.parametrize("folder", ["plain", "with space", "模型 文件夹", "a'b\"c"])
def test_a_header_gives_names_shapes_and_places(tmp_path, folder):
    start = header_bytes()
    header = read_header(write(tmp_path / folder, start + bytes(36)))
    assert header.header_bytes == len(start) - 8
    assert header.file_bytes == len(start) + 36
    assert header.metadata == {"format": "pt", "note": "说明"}
    assert list(header.tensors) == ["a.weight", "b.bias", "c"]
    bias = header.tensors["b.bias"]
    assert (bias.dtype, bias.shape, bias.size_bytes) == ("F32", (4,), 16)
    assert bias.offset_bytes == len(start) + 12
    assert header.tensors["c"].shape == ()


def test_the_library_writes_what_is_read_here(tmp_path):
    import numpy as np
    from safetensors.numpy import save_file

    path = tmp_path / "real.safetensors"
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones(5, np.int8)}
    save_file(arrays, path, metadata={"format": "np"})
    header, raw = read_header(path), path.read_bytes()
    for name, array in arrays.items():
        entry = header.tensors[name]
        assert raw[entry.offset_bytes :][: entry.size_bytes] == array.tobytes()
        assert entry.shape == array.shape
    assert header.metadata == {"format": "np"}


def test_a_file_without_tensors_or_metadata_is_a_file(tmp_path):
    header = read_header(write(tmp_path, header_bytes({})))
    assert (header.tensors, header.metadata) == ({}, {})


def test_bytes_after_the_last_tensor_are_left_to_the_audit(tmp_path):
    header = read_header(write(tmp_path, header_bytes() + bytes(36 + 5)))
    end = max(one.offset_bytes + one.size_bytes for one in header.tensors.values())
    assert header.file_bytes - end == 5


def _entry(**changes):
    return header_bytes({"a": ENTRIES["a.weight"] | changes})


DAMAGES = {
    "empty": (b"", "is empty"),
    "seven bytes": (bytes(7), "too few for the 8"),
    "pointer": (POINTER.encode(), "12345 bytes .* `git lfs pull`"),
    "header cut": (header_bytes()[:40], "cut short"),
    "tail cut": (header_bytes() + bytes(30), "6 bytes of weights are missing"),
    "no weights": (header_bytes(), "36 bytes of weights are missing"),
    "zip": (b"PK\x03\x04" + bytes(range(200)), "no safetensors file"),
    "not JSON": ((4).to_bytes(8, "little") + b"oops", "damaged header"),
    "a list": ((2).to_bytes(8, "little") + b"[]", "damaged header"),
    "not text": ((2).to_bytes(8, "little") + b"\xff\xfe", "damaged header"),
    "no offsets": (header_bytes({"a": {"dtype": "F32", "shape": [1]}}), "damaged header"),
    "entry a number": (header_bytes({"a": 3}), "damaged header"),
    "offsets of text": (_entry(data_offsets=["0", "x"]), "damaged header"),
    "one offset": (_entry(data_offsets=[0]), "damaged header"),
    "no shape": (_entry(shape=None), "damaged header"),
}


@pytest.mark.parametrize(("raw", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_named_with_its_damage(tmp_path, raw, words):
    path = write(tmp_path, raw, "model-00002-of-00003.safetensors")
    with pytest.raises(CheckpointError, match=words) as caught:
        read_header(path)
    assert str(caught.value).startswith("model-00002-of-00003.safetensors")


@pytest.mark.parametrize("name", ["missing.safetensors", "."])
def test_a_path_that_is_no_file_is_a_checkpoint_error(tmp_path, name):
    with pytest.raises(CheckpointError, match="can't be read"):
        read_header(tmp_path / name)


def test_the_index_maps_names_to_files(tmp_path):
    index = {"metadata": {"total_size": 36}, "weight_map": {"a": "one.safetensors"}}
    write(tmp_path, json.dumps(index).encode(), "model.safetensors.index.json")
    assert read_index(tmp_path) == {"a": "one.safetensors"}


def test_a_folder_without_index_has_none(tmp_path):
    assert read_index(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": []}', '{"weight_map": 1}'])
def test_a_damaged_index_is_named(tmp_path, text):
    write(tmp_path, text.encode(), "model.safetensors.index.json")
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors\.index\.json is no usable index"
    ):
        read_index(tmp_path)


KINDS = {
    "config.json": ("config", "json"),
    "generation_config.json": ("generation_config", "json"),
    "model-00001-of-00002.safetensors": ("weights", "safetensors"),
    "model.safetensors.index.json": ("index", "json"),
    "pytorch_model.bin": ("weights", "pickle"),
    "model.Q4.gguf": ("weights", "gguf"),
    "tokenizer.json": ("tokenizer", "json"),
    "merges.txt": ("tokenizer", "text"),
    "preprocessor_config.json": ("processor", "json"),
    "chat_template.jinja": ("template", "text"),
    "modeling_own.py": ("code", "python"),
    "LICENSE": ("other", "other"),
    "original/consolidated.pth": ("weights", "pickle"),
    "说明 书.md": ("other", "text"),
}


def test_every_file_is_listed_with_its_kind_and_size(tmp_path):
    for number, name in enumerate(KINDS):
        write((tmp_path / name).parent, bytes(number), Path(name).name)
    write(tmp_path / ".cache", b"hidden", "config.json")
    found = {file.path: file for file in list_files(tmp_path)}
    assert {path: (file.kind, file.format) for path, file in found.items()} == KINDS
    assert [found[name].size_bytes for name in KINDS] == list(range(len(KINDS)))
    by_folder = [file.path for file in list_files(tmp_path) if "/" not in file.path]
    assert by_folder == sorted(by_folder)


def test_a_broken_link_is_listed_without_a_size(tmp_path):
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "blobs" / "gone")
    (file,) = list_files(tmp_path)
    assert (file.path, file.kind, file.size_bytes) == ("model.safetensors", "weights", 0)


def test_the_file_system_of_a_path_is_told_where_the_system_tells():
    if not Path("/proc/mounts").exists():
        assert filesystem_of("/") is None
        return
    assert filesystem_of("/proc/self") == "proc"
    assert filesystem_of("/")
