"""Headers of safetensors files: eight bytes of length, JSON, then the tensors without a gap."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from tracer.errors import CheckpointError
from tracer.explain.sentences import phrase
from tracer.formats import signature
from tracer.formats.entries import Header, TensorEntry
from tracer.formats.signature import LENGTH_BYTES

# The format's own limit: safetensors refuses headers above 100 MB.
_LARGEST_HEADER: Final = 100_000_000
# Nearly all headers are shorter: one look at the file is enough.
_FIRST_LOOK: Final = 1 << 16
_OTHERS: Final = ("gguf", "zip", "hdf5", "pdf", "html", "json")


class HeaderText(NamedTuple):
    """A header that was read and not yet taken apart, so that it can be done at another time."""

    path: Path
    raw: bytes
    file_bytes: int


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read the header of a safetensors file.

    Raises:
        CheckpointError: the file can't be read, is empty, cut short, a Git LFS pointer, or no
            safetensors file. Bytes after the last tensor are no error here.
    """
    return parse_header(read_text(path))


def read_text(path: str | os.PathLike[str]) -> HeaderText:
    """Read the bytes of a safetensors file's header.

    Raises:
        CheckpointError: as `read_header` does, but for what shows only when it is taken apart.
    """
    file_path = Path(path)
    start, file_bytes = signature.read_start(file_path, _FIRST_LOOK)
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    _check_length(file_path, start[: signature.START_BYTES], length, file_bytes)
    raw = start[LENGTH_BYTES : LENGTH_BYTES + length]
    if len(raw) < length:
        try:
            with file_path.open("rb") as file:
                file.seek(LENGTH_BYTES)
                raw = file.read(length)
        except OSError as error:
            raise signature.unreadable(file_path, error) from error
    return HeaderText(file_path, raw, file_bytes)


def _check_length(path: Path, start: bytes, length: int, file_bytes: int) -> None:
    if file_bytes < LENGTH_BYTES:
        raise CheckpointError(
            phrase("folders.no_length", file=path.name, found=file_bytes),
            kind="header_cut",
            expected=LENGTH_BYTES,
            found=file_bytes,
        )
    looks_like = signature.format_of(start)
    # The first bytes of another format may well be a possible length.
    is_other = looks_like in _OTHERS and start[LENGTH_BYTES : LENGTH_BYTES + 1] != b"{"
    if length > _LARGEST_HEADER and looks_like == "safetensors":
        raise CheckpointError(
            phrase("folders.header_too_long", file=path.name, length=length, limit=_LARGEST_HEADER),
            kind="damaged_header",
            expected=_LARGEST_HEADER,
            found=length,
        )
    if length > _LARGEST_HEADER or is_other:
        raise CheckpointError(
            phrase(
                "folders.no_safetensors",
                file=path.name,
                length=length,
                format=signature.name_of(looks_like),
            ),
            kind="wrong_format",
            expected="safetensors",
            found=looks_like,
        )
    if LENGTH_BYTES + length > file_bytes:
        raise CheckpointError(
            phrase(
                "folders.header_cut",
                file=path.name,
                found=file_bytes,
                expected=LENGTH_BYTES + length,
            ),
            kind="header_cut",
            expected=LENGTH_BYTES + length,
            found=file_bytes,
        )


def parse_header(text: HeaderText) -> Header:
    """Take a header apart.

    Raises:
        CheckpointError: it is no JSON of tensors, or names more bytes than the file has.
    """
    path, raw, file_bytes = text
    base = LENGTH_BYTES + len(raw)
    try:
        entries: dict[str, Any] = json.loads(raw)
        metadata = entries.pop("__metadata__", {})
        tensors = {key: _entry(key, entry, base) for key, entry in entries.items()}
        texts = {str(name): str(value) for name, value in metadata.items()}
    # Brackets nested without end stop the parser by the depth of Python's own stack.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            phrase("folders.damaged_header", file=path.name, error=error), kind="damaged_header"
        ) from error
    end = max((one.offset_bytes + one.size_bytes for one in tensors.values()), default=base)
    if end > file_bytes:
        raise CheckpointError(
            phrase(
                "folders.tail_cut",
                file=path.name,
                found=file_bytes,
                expected=end,
                missing=end - file_bytes,
            ),
            kind="tail_cut",
            expected=end,
            found=file_bytes,
            missing_bytes=end - file_bytes,
            header=Header(len(raw), file_bytes, texts, tensors),
        )
    return Header(len(raw), file_bytes, texts, tensors)


def _entry(key: str, entry: dict[str, Any], base: int) -> TensorEntry:
    begin, end = entry["data_offsets"]
    dtype, shape = entry["dtype"], entry["shape"]
    if not isinstance(dtype, str):
        raise TypeError(f"dtype of {key} is {dtype!r}")
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end:
        raise ValueError(f"{key} begins at {begin} and ends at {end}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"{key} has the shape {shape!r}")
    return TensorEntry(key, dtype, tuple(shape), base + begin, end - begin)
