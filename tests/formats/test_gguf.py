"""GGUF headers as the format's own library writes them, and as nobody should."""

import struct

import numpy as np
import pytest

from tracer.errors import CheckpointError
from tracer.formats.gguf import read_header

gguf = pytest.importorskip("gguf")


@pytest.fixture
def written(tmp_path):
    """A file of three tensors, one of them in quantised blocks, and what went into it."""
    path = tmp_path / "model.gguf"
    arrays = {
        "token_embd.weight": np.arange(128, dtype=np.float32).reshape(4, 32),
        "norm.weight": np.ones(32, dtype=np.float16),
        "output.weight": gguf.quants.quantize(
            np.arange(128, dtype=np.float32).reshape(4, 32), gguf.GGMLQuantizationType.Q8_0
        ),
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("小模型")
    writer.add_block_count(2)
    writer.add_token_list([f"t{number}" for number in range(300)])
    for name, array in arrays.items():
        kind = gguf.GGMLQuantizationType.Q8_0 if name == "output.weight" else None
        writer.add_tensor(name, array, raw_dtype=kind)
    for write in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file"):
        getattr(writer, write)()
    writer.close()
    return path, arrays


def test_the_formats_own_library_writes_what_is_read_here(written):
    path, arrays = written
    header, raw = read_header(path), path.read_bytes()
    assert list(header.tensors) == list(arrays)
    assert [one.dtype for one in header.tensors.values()] == ["F32", "F16", "Q8_0"]
    assert header.tensors["output.weight"].shape == (4, 32)
    assert header.tensors["token_embd.weight"].shape == (4, 32)
    for name, array in arrays.items():
        entry = header.tensors[name]
        assert raw[entry.offset_bytes :][: entry.size_bytes] == array.tobytes()


def test_settings_are_text_and_lists_their_length(written):
    metadata = read_header(written[0]).metadata
    assert metadata["general.name"] == "小模型"
    assert metadata["llama.block_count"] == "2"
    assert metadata["tokenizer.ggml.tokens"] == "300 values"


def test_types_have_the_sizes_of_the_formats_own_table():
    from tracer.formats.gguf import _TYPES

    for number, (name, block, size) in _TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert (kind.name, *gguf.GGML_QUANT_SIZES[kind]) == (name, block, size)


def start(version=3, tensors=1, settings=0):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, settings)


def name(text):
    return struct.pack("<Q", len(text)) + text


DAMAGES = {
    "another format": (b"PK\x03\x04" + bytes(60), "wrong_format", "a zip archive"),
    "version 1": (start(1), "damaged_header", "version 1"),
    "cut at once": (b"GGUF", "header_cut", "ends within its header"),
    "cut in a name": (start() + struct.pack("<Q", 50) + b"x", "header_cut", "ends within"),
    "length of 2**60": (start() + struct.pack("<Q", 2**60), "header_cut", "ends within"),
    "count of 2**60": (start(3, 2**60, 2**60), "header_cut", "ends within"),
    "unknown setting": (
        start(3, 0, 1) + name(b"a") + struct.pack("<I", 99),
        "damaged_header",
        "type 99",
    ),
    "unknown type": (
        start() + name(b"a") + struct.pack("<IQIQ", 1, 8, 999, 0),
        "damaged_header",
        "type 999",
    ),
    "many dimensions": (start() + name(b"a") + struct.pack("<I", 9), "damaged_header", "9 dimen"),
}


@pytest.mark.parametrize(("raw", "kind", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_named_with_its_damage(tmp_path, raw, kind, words):
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=words) as caught:
        read_header(path)
    assert caught.value.kind == kind


def test_weights_that_are_cut_are_counted_and_the_header_is_kept(written):
    path, arrays = written
    raw = path.read_bytes()
    end = max(one.offset_bytes + one.size_bytes for one in read_header(path).tensors.values())
    path.write_bytes(raw[: end - 10])
    with pytest.raises(CheckpointError, match="10 bytes of weights are missing") as caught:
        read_header(path)
    assert list(caught.value.header.tensors) == list(arrays)
