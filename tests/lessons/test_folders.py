"""A copy differs from its folder in the one thing that was asked for, and the folder stays."""

import json

import pytest
from safetensors import safe_open

from tracer.demo import checkpoint_folder
from tracer.errors import CheckpointError
from tracer.lessons.folders import changed_copy, one_file_copy


def keys(path):
    with safe_open(path, "pt") as file:
        return set(file.keys())


def config(folder):
    return json.loads((folder / "config.json").read_text("utf-8"))


def test_only_the_fields_asked_for_are_other(tmp_path):
    before = config(checkpoint_folder())
    copy = changed_copy(checkpoint_folder(), tmp_path / "copy", {"architectures": ["Other"]})
    assert config(copy) == before | {"architectures": ["Other"]}
    assert config(checkpoint_folder()) == before
    names = {path.name for path in checkpoint_folder().iterdir()}
    assert {path.name for path in copy.iterdir()} == names


def test_a_field_set_to_none_is_gone(tmp_path):
    copy = changed_copy(checkpoint_folder(), tmp_path / "copy", {"architectures": None})
    assert "architectures" not in config(copy)


def test_all_shards_go_into_one_file(tmp_path):
    copy = one_file_copy(checkpoint_folder(), tmp_path / "copy")
    shards = checkpoint_folder().glob("*.safetensors")
    assert [path.name for path in copy.glob("*.safetensors*")] == ["model.safetensors"]
    assert keys(copy / "model.safetensors") == set().union(*map(keys, shards))


def test_a_tensor_can_be_left_out_and_a_copy_replaced(tmp_path):
    for _ in range(2):
        copy = one_file_copy(checkpoint_folder(), tmp_path / "copy", leave_out=["lm_head.weight"])
    assert "lm_head.weight" not in keys(copy / "model.safetensors")


def test_a_tensor_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"'head\.w'"):
        one_file_copy(checkpoint_folder(), tmp_path / "copy", leave_out=["head.w"])


@pytest.mark.parametrize("copy", [one_file_copy, lambda one, two: changed_copy(one, two, {})])
def test_a_folder_without_a_model_is_no_model(copy, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="empty has no"):
        copy(tmp_path / "empty", tmp_path / "copy")
