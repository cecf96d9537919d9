"""A model folder read without torch: its files, its index, headers of each format, JSON files.

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
from tracer.explain.sentences import phrase
from tracer.formats import gguf, pickled, signature
from tracer.formats.entries import Header, TensorEntry
from tracer.formats.safetensors import read_header

__all__ = [
    "FolderFile",
    "Header",
    "Index",
    "TensorEntry",
    "filesystem_of",
    "list_files",
    "read_any_header",
    "read_header",
    "read_index",
    "read_index_file",
    "read_json",
]

_LARGEST_JSON = 200_000_000
# Nearly all of them are shorter: one look at the file is enough.
_FIRST_LOOK = 1 << 16

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
    "spiece.model": "tokenizer",
    "sentencepiece.bpe.model": "tokenizer",
    "source.spm": "tokenizer",
    "target.spm": "tokenizer",
    "tekken.json": "tokenizer",
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
    ".spm": "sentencepiece",
}
_WEIGHT_FORMATS = {"safetensors", "pickle", "gguf"}


@dataclasses.dataclass(frozen=True, slots=True)
class FolderFile:
    """One file of a model folder, by its path inside it."""

    path: str
    kind: str
    format: str
    size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """What an index says: the file of each tensor, and sums where it has them.

    Attributes:
        file: Name of the index itself.
        weight_map: File by tensor name.
        total_size: Bytes of all tensors, without headers.
        total_parameters: Values of all tensors.
    """

    file: str
    weight_map: dict[str, str]
    total_size: int | None
    total_parameters: int | None


def read_any_header(path: str | os.PathLike[str], file_format: str) -> Header:
    """Read the header of a weights file in one of the formats that `list_files` tells.

    Raises:
        CheckpointError: the file can't be read as one of that format; the cause is decided from
            its bytes.
    """
    readers = {"safetensors": read_header, "pickle": pickled.read_header, "gguf": gguf.read_header}
    return readers[file_format](path)


def read_index(folder: str | os.PathLike[str]) -> dict[str, str] | None:
    """Tensor name to file name, out of the folder's safetensors index; None where there is none.

    Raises:
        CheckpointError: the index is not the JSON that it should be.
    """
    paths = sorted(Path(folder).glob("*.safetensors.index.json"))
    return None if not paths else read_index_file(paths[0]).weight_map


def read_index_file(path: str | os.PathLike[str]) -> Index:
    """Read one index.

    Raises:
        CheckpointError: the index is not the JSON that it should be.
    """
    file = Path(path)
    try:
        content = read_json(file)
        weight_map = {str(key): str(name) for key, name in content["weight_map"].items()}
        metadata = content["metadata"]  # without it the library stops too
        total = _whole(metadata.get("total_size"))
        parameters = _whole(metadata.get("total_parameters"))
    except CheckpointError as error:
        kind = "damaged_index" if error.kind == "damaged_json" else error.kind
        raise CheckpointError(
            phrase("folders.no_index", file=file.name, why=error.told),
            kind=kind,
            expected=error.expected,
            found=error.found,
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            phrase("folders.no_index", file=file.name, why=repr(error)), kind="damaged_index"
        ) from error
    return Index(file.name, weight_map, total, parameters)


def _whole(value: Any) -> int | None:
    # Some savers write a whole number with a point.
    return int(value) if isinstance(value, int | float) else None


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON object, such as a configuration.

    Raises:
        CheckpointError: the file can't be read, is empty, a Git LFS pointer, or no JSON object.
    """
    file = Path(path)
    start, size = signature.read_start(file, _FIRST_LOOK)
    if size > _LARGEST_JSON:
        raise CheckpointError(
            phrase("folders.json_too_large", file=file.name, found=size),
            kind="damaged_json",
            found=size,
        )
    try:
        raw = start if len(start) == size else file.read_bytes()
        content = json.loads(raw.decode("utf-8-sig"))
    except OSError as error:
        raise signature.unreadable(file, error) from error
    except (ValueError, RecursionError) as error:
        said = phrase("folders.no_json", file=file.name, error=error)
        raise CheckpointError(said, kind="damaged_json") from error
    if not isinstance(content, dict):
        raise CheckpointError(phrase("folders.no_object", file=file.name), kind="damaged_json")
    return content


def list_files(folder: str | os.PathLike[str]) -> list[FolderFile]:
    """Every file below a model folder, hidden folders left out, sorted by path."""
    found = []
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = os.path.relpath(directory, folder).replace(os.sep, "/")
        for name in sorted(names):
            relative = name if below == "." else f"{below}/{name}"
            found.append(_describe(relative, name, os.path.join(directory, name)))
    return found


def _describe(relative: str, name: str, path: str) -> FolderFile:
    file_format = _FORMATS.get(os.path.splitext(name)[1].lower(), "other")
    kind = _KINDS.get(name, "other")
    if name.endswith(".index.json"):
        kind = "index"
    elif file_format in _WEIGHT_FORMATS:
        kind = "weights"
    elif file_format == "python":
        kind = "code"
    try:
        size = os.stat(path).st_size
    except OSError:
        size = 0  # a broken link has a name and no size; it is listed all the same
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
