"""Copies of a model folder in which one thing is changed, for experiments with loading.

Weights are linked where the system can, so a copy costs next to nothing. Used by `02_loading`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tracer.errors import CheckpointError
from tracer.explain.sentences import phrase

_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"


def changed_copy(folder: str | Path, target: str | Path, config: Mapping[str, Any]) -> Path:
    """Copy a model folder with some fields of its `config.json` set anew.

    Args:
        folder: The folder, which stays as it is.
        target: Where the copy goes; an older copy is replaced.
        config: Fields of `config.json` and their values; None takes a field away.

    Raises:
        CheckpointError: The folder has no `config.json`.
    """
    if not (Path(folder) / _CONFIG).is_file():
        raise CheckpointError(phrase("errors.no_model_to_copy", folder=folder, file=_CONFIG))
    copy = _copied(Path(folder), Path(target))
    written = json.loads((Path(folder) / _CONFIG).read_text("utf-8")) | dict(config)
    kept = {name: value for name, value in written.items() if value is not None}
    (copy / _CONFIG).write_text(json.dumps(kept, indent=2), "utf-8")
    return copy


def one_file_copy(
    folder: str | Path, target: str | Path, *, leave_out: Collection[str] = ()
) -> Path:
    """Copy a folder of safetensors shards with all tensors in a single file, without an index.

    Needs torch, since the tensors are written anew.

    Args:
        folder: The folder, which stays as it is.
        target: Where the copy goes; an older copy is replaced.
        leave_out: Keys of tensors that the copy shall lack.

    Raises:
        CheckpointError: The folder has no safetensors file, or none of them such a tensor.
    """
    from safetensors.torch import load_file, save_file

    shards = sorted(Path(folder).glob("*.safetensors"))
    if not shards:
        raise CheckpointError(phrase("errors.no_file_to_join", folder=folder))
    tensors = {key: tensor for shard in shards for key, tensor in load_file(shard).items()}
    for key in leave_out:
        if tensors.pop(key, None) is None:
            raise CheckpointError(phrase("errors.no_tensor_to_leave", folder=folder, key=key))
    copy = _copied(Path(folder), Path(target), without=[_INDEX, *[each.name for each in shards]])
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def _copied(folder: Path, target: Path, without: list[str] | None = None) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in folder.iterdir():
        if path.is_file() and path.name not in {_CONFIG, *(without or ())}:
            _link(path.resolve(), target / path.name)
    if without:
        shutil.copyfile(folder / _CONFIG, target / _CONFIG)
    return target


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError:  # another disk, or a system without links
        shutil.copyfile(path, target)
