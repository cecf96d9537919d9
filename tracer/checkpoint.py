"""Checkpoint files read without torch: safetensors headers, the index, the folder's files.

Only lengths, names and JSON are read, never a weight. What can't be read as a checkpoint raises
CheckpointError with the cause decided from the bytes, not from another library's error text.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from tracer.errors import CheckpointError

_LENGTH_BYTES = 8
# The format's own limit: safetensors refuses headers above 100 MB.
_LARGEST_HEADER = 100_000_000
_LFS_MARK = b"version https://git-lfs"

_KINDS = {
    "config.json": "config",
    "generation_config.json": "generation_config",
    "adapter_config.json": "adapter_config",
    "tokenizer.json": "tokenizer",
    "tokenizer_config.json": "tokenizer",
    "special_tokens_map.json": "tokenizer",
    "added_tokens.json": "tokenizer",
    "vocab.json": "tokenizer",
    "vocab.txt": "tokenizer",
    "merges.txt": "tokenizer",
    "tokenizer.model": "tokenizer",
    "preprocessor_config.json": "processor",
    "processor_config.json": "processor",
    "video_preprocessor_config.json": "processor",
    "chat_template.json": "template",
    "chat_template.jinja": "template",
}
_FORMATS = {
    ".safetensors": "safetensors",
    ".bin": "pickle",
    ".pt": "pickle",
    ".pth": "pickle",
    ".gguf": "gguf",
    ".json": "json",
    ".jinja": "text",
    ".txt": "text",
    ".md": "text",
    ".py": "python",
    ".model": "sentencepiece",
}
_WEIGHT_FORMATS = {"safetensors", "pickle", "gguf"}


@dataclasses.dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor as a header names it; `offset_bytes` counts from the start of the file."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int
    size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """The header of one safetensors file; `header_bytes` leaves the 8 length bytes out."""

    header_bytes: int
    file_bytes: int
    metadata: dict[str, str]
    tensors: dict[str, TensorEntry]


@dataclasses.dataclass(frozen=True, slots=True)
class FolderFile:
    """One file of a model folder, by its path inside it."""

    path: str
    kind: str
    format: str
    size_bytes: int


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read the header of a safetensors file.

    Raises:
        CheckpointError: the file is empty, cut short, a Git LFS pointer, or no safetensors file.
    """
    file_path = Path(path)
    try:
        file_bytes = file_path.stat().st_size
        with file_path.open("rb") as file:
            start = file.read(_LENGTH_BYTES)
            length = int.from_bytes(start, "little")
            _check_length(file_path, start, length, file_bytes)
            raw = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{file_path.name} can't be read: {error.strerror}") from error
    return _parse_header(file_path, raw, file_bytes)


def _check_length(path: Path, start: bytes, length: int, file_bytes: int) -> None:
    if file_bytes == 0:
        raise CheckpointError(f"{path.name} is empty; download it again")
    if start == _LFS_MARK[:_LENGTH_BYTES]:
        size = _pointer_size(path)
        raise CheckpointError(
            f"{path.name} is a Git LFS pointer of {file_bytes} bytes, not the file of {size} bytes "
            "that it stands for; run `git lfs pull`"
        )
    if len(start) < _LENGTH_BYTES:
        raise CheckpointError(
            f"{path.name} has {file_bytes} bytes, too few for the 8 that give the header's length"
        )
    if length > _LARGEST_HEADER:
        raise CheckpointError(
            f"{path.name} claims a header of {length} bytes, above the format's limit: "
            "it is no safetensors file"
        )
    if _LENGTH_BYTES + length > file_bytes:
        raise CheckpointError(
            f"{path.name} has {file_bytes} bytes, its header alone needs {_LENGTH_BYTES + length}; "
            "the download was cut short"
        )


def _pointer_size(path: Path) -> str:
    for line in path.read_text("utf-8", "replace").splitlines():
        if line.startswith("size "):
            return line.removeprefix("size ")
    return "unknown"


def _parse_header(path: Path, raw: bytes, file_bytes: int) -> Header:
    try:
        entries: dict[str, Any] = json.loads(raw)
        metadata = entries.pop("__metadata__", {})
        base = _LENGTH_BYTES + len(raw)
        tensors = {key: _tensor_entry(key, entry, base) for key, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path.name} has a damaged header: {error}") from error
    end = max(
        (tensor.offset_bytes + tensor.size_bytes for tensor in tensors.values()), default=base
    )
    if end > file_bytes:
        raise CheckpointError(
            f"{path.name} has {file_bytes} bytes, its header needs {end}: "
            f"{end - file_bytes} bytes of weights are missing"
        )
    return Header(len(raw), file_bytes, metadata, tensors)


def _tensor_entry(key: str, entry: dict[str, Any], base: int) -> TensorEntry:
    begin, end = entry["data_offsets"]
    return TensorEntry(key, entry["dtype"], tuple(entry["shape"]), base + begin, end - begin)


def read_index(folder: str | os.PathLike[str]) -> dict[str, str] | None:
    """Tensor name to file name, out of the folder's safetensors index; None where there is none.

    Raises:
        CheckpointError: the index is not the JSON that it should be.
    """
    paths = sorted(Path(folder).glob("*.safetensors.index.json"))
    if not paths:
        return None
    try:
        weight_map = json.loads(paths[0].read_text("utf-8"))["weight_map"]
        return {str(key): str(file) for key, file in weight_map.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CheckpointError(f"{paths[0].name} is no usable index: {error!r}") from error


def list_files(folder: str | os.PathLike[str]) -> list[FolderFile]:
    """Every file below a model folder, hidden folders left out, sorted by path."""
    root = Path(folder)
    found = []
    for directory, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(directory) / name
            found.append(_describe(path.relative_to(root).as_posix(), path))
    return found


def _describe(relative: str, path: Path) -> FolderFile:
    name = path.name
    file_format = _FORMATS.get(path.suffix.lower(), "other")
    kind = _KINDS.get(name, "other")
    if name.endswith(".index.json"):
        kind = "index"
    elif file_format in _WEIGHT_FORMATS:
        kind = "weights"
    elif file_format == "python":
        kind = "code"
    # A broken link has a name and no size; it is listed all the same.
    size = path.stat().st_size if path.exists() else 0
    return FolderFile(relative, kind, file_format, size)


def filesystem_of(path: str | os.PathLike[str]) -> str | None:
    """Type of the file system that holds a path (ext4, nfs, ...); None where it is hidden."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return None
    wanted = os.path.realpath(path)
    best, best_type = "", None
    for line in mounts.read_text("utf-8", "replace").splitlines():
        fields = line.split()
        mount = fields[1].replace("\\040", " ")
        inside = wanted == mount or wanted.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, best_type = mount, fields[2]
    return best_type
