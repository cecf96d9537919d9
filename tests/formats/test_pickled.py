"""Files of torch.save, read without torch and without running what they pickle."""

import io
import os
import pickle
import zipfile

import pytest
import torch

from tracer.errors import CheckpointError
from tracer.formats.pickled import NESTED, read_header

STATE = {
    "a.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b.bias": torch.ones(4, dtype=torch.bfloat16),
    "c": torch.tensor(7),
    "half": torch.zeros(2, 2, dtype=torch.float16),
    "flags": torch.tensor([True, False]),
}
FORMS = {"zip": True, "before 1.6": False}


def saved(folder, state, is_zip=True):
    path = folder / "pytorch_model.bin"
    torch.save(state, path, _use_new_zipfile_serialization=is_zip)
    return path


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("is_zip", FORMS.values(), ids=FORMS)
def test_names_shapes_dtypes_and_places_are_those_of_the_file(tmp_path, is_zip):
    path = saved(tmp_path, STATE, is_zip)
    header, raw = read_header(path), path.read_bytes()
    assert list(header.tensors) == list(STATE)
    dtypes = [entry.dtype for entry in header.tensors.values()]
    assert dtypes == ["F32", "BF16", "I64", "F16", "BOOL"]
    for name, tensor in STATE.items():
        entry = header.tensors[name]
        assert entry.shape == tuple(tensor.shape)
        assert raw[entry.offset_bytes :][: entry.size_bytes] == bytes_of(tensor)


@pytest.mark.parametrize("is_zip", FORMS.values(), ids=FORMS)
def test_two_names_of_one_storage_have_one_place(tmp_path, is_zip):
    whole = torch.arange(8.0)
    state = {"whole": whole, "tail": whole[4:], "same": whole}
    tensors = read_header(saved(tmp_path, state, is_zip)).tensors
    assert tensors["same"].offset_bytes == tensors["whole"].offset_bytes
    assert tensors["tail"].offset_bytes == tensors["whole"].offset_bytes + 16
    assert (tensors["tail"].shape, tensors["tail"].size_bytes) == ((4,), 16)


def test_parameters_and_a_wrapped_state_dict_are_read(tmp_path):
    module = torch.nn.Linear(3, 2)
    plain = read_header(saved(tmp_path, dict(module.named_parameters())))
    assert {name: one.shape for name, one in plain.tensors.items()} == {
        "weight": (2, 3),
        "bias": (2,),
    }
    wrapped = read_header(saved(tmp_path, {"epoch": 3, "state_dict": module.state_dict()}))
    assert list(wrapped.tensors) == ["state_dict.weight", "state_dict.bias"]
    assert plain.metadata == {}
    assert wrapped.metadata == {NESTED: '["state_dict"]'}


class _Bomb:
    def __reduce__(self):
        return os.mkdir, (str(_Bomb.target),)


@pytest.mark.parametrize("is_zip", FORMS.values(), ids=FORMS)
def test_nothing_that_a_pickle_names_is_run(tmp_path, is_zip):
    _Bomb.target = tmp_path / "was-run"
    header = read_header(saved(tmp_path, {"bomb": _Bomb(), "a": torch.ones(2)}, is_zip))
    assert list(header.tensors) == ["a"]
    assert not _Bomb.target.exists()
    torch.load(tmp_path / "pytorch_model.bin", weights_only=False)
    assert _Bomb.target.exists()  # a real bomb: torch itself runs it where it is allowed to


def archive(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


class _Custom:
    pass


def nested(depth):
    """A key whose hash takes two to the power of the depth steps."""
    key: tuple[object, ...] = ()
    for _ in range(depth):
        key = (key, key)
    return key


_OLD = io.BytesIO()
torch.save({"a": torch.ones(64)}, _OLD, _use_new_zipfile_serialization=False)
_NEW = io.BytesIO()
torch.save({"a": torch.ones(64)}, _NEW)
DAMAGES = {
    "empty": (b"", "empty_file", "is empty"),
    "text": (b"hello, this is no checkpoint", "wrong_format", "plain text"),
    "JSON": (b'{"a": 1}', "wrong_format", "JSON"),
    "zip of others": (archive({"word/document.xml": "x"}), "wrong_format", r"without data\.pkl"),
    "zip cut": (_NEW.getvalue()[:-50], "tail_cut", "no archive directory"),
    "old cut": (_OLD.getvalue()[:-50], "tail_cut", "50 bytes of weights are missing"),
    "old cut early": (_OLD.getvalue()[:40], "damaged_header", "damaged pickle"),
    "no pickle": (archive({"m/data.pkl": b"nonsense"}), "damaged_header", "damaged pickle"),
    "a list": (archive({"m/data.pkl": pickle.dumps([1])}), "wrong_format", "no state dict"),
    "object": (archive({"m/data.pkl": pickle.dumps(_Custom())}), "wrong_format", "no state dict"),
    "other": (pickle.dumps({"a": 1}), "wrong_format", "not one of torch"),
    "empty pickle": (archive({"m/data.pkl": b"."}), "damaged_header", "damaged pickle"),
}


@pytest.mark.parametrize(("raw", "kind", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_named_with_its_damage(tmp_path, raw, kind, words):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=words) as caught:
        read_header(path)
    assert caught.value.kind == kind
    assert str(caught.value).startswith("pytorch_model.bin")


def test_keys_that_would_take_for_ever_to_hash_are_passed_over(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    key = nested(60)
    raw = io.BytesIO()
    pickler = pickle.Pickler(raw, protocol=2)
    pickler.dump([key])
    # EMPTY_DICT, the nested tuple, a value, SETITEM: a dictionary that Python could not build.
    body = b"\x80\x02}" + raw.getvalue()[2:].split(b"]q\x00", 1)[1][:-2] + b"K\x01s."
    path.write_bytes(archive({"m/data.pkl": body}))
    assert read_header(path).tensors == {}
