"""Headers of GGUF files (versions 2 and 3): settings as text, then names and places."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, Final

from tracer.errors import CheckpointError
from tracer.explain.sentences import phrase
from tracer.formats import signature
from tracer.formats.entries import Header, TensorEntry

_VERSIONS: Final = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_ALIGNMENT: Final = 32  # unless general.alignment says otherwise
_MOST_DIMENSIONS: Final = 8
# Type number: the safetensors code, or GGUF's own name; values and bytes of a block.
_TYPES: Final = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2),
    26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read the header of a GGUF file; shapes as torch has them, the slowest dimension first.

    Raises:
        CheckpointError: the file can't be read, is empty, cut short, a Git LFS pointer, or no GGUF
            file of version 2 or 3.
    """
    file_path = Path(path)
    start, file_bytes = signature.read_start(file_path)
    looks_like = signature.format_of(start)
    if looks_like != "gguf":
        raise CheckpointError(
            phrase("folders.no_gguf", file=file_path.name, format=signature.name_of(looks_like)),
            kind="wrong_format",
            expected="gguf",
            found=looks_like,
        )
    try:
        with file_path.open("rb") as file:
            header = _Reader(file, file_bytes).header()
    except OSError as error:
        raise signature.unreadable(file_path, error) from error
    except EOFError as error:
        raise CheckpointError(
            phrase("folders.header_cut_within", file=file_path.name, found=file_bytes),
            kind="header_cut",
            found=file_bytes,
        ) from error
    except (ValueError, struct.error) as error:
        raise CheckpointError(
            phrase("folders.damaged_header", file=file_path.name, error=error),
            kind="damaged_header",
        ) from error
    _check_end(file_path, header)
    return header


def _check_end(path: Path, header: Header) -> None:
    ends = [one.offset_bytes + one.size_bytes for one in header.tensors.values()]
    end = max(ends, default=header.header_bytes)
    if end > header.file_bytes:
        raise CheckpointError(
            phrase(
                "folders.tail_cut",
                file=path.name,
                found=header.file_bytes,
                expected=end,
                missing=end - header.file_bytes,
            ),
            kind="tail_cut",
            expected=end,
            found=header.file_bytes,
            missing_bytes=end - header.file_bytes,
            header=header,
        )


class _Reader:
    """One file read from its start; every length is checked against the bytes that are left."""

    def __init__(self, file: BinaryIO, file_bytes: int) -> None:
        self.file = file
        self.file_bytes = file_bytes

    def header(self) -> Header:
        self.take(4)
        version = self.number("<I")
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is none of {_VERSIONS}")
        tensors, settings = self.number("<Q"), self.number("<Q")
        metadata = {}
        for _ in range(settings):
            name = self.text()
            metadata[name] = self.value(self.number("<I"))
        entries = [self.entry() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", str(_ALIGNMENT))
        step = int(alignment) if alignment.isdigit() and int(alignment) else _ALIGNMENT
        base = -(-self.file.tell() // step) * step
        placed = {
            key: TensorEntry(key, dtype, shape, base + offset, size)
            for key, dtype, shape, offset, size in entries
        }
        return Header(base, self.file_bytes, metadata, placed)

    def entry(self) -> tuple[str, str, tuple[int, ...], int, int]:
        key, dimensions = self.text(), self.number("<I")
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"{key} has {dimensions} dimensions")
        shape = tuple(reversed([self.number("<Q") for _ in range(dimensions)]))
        number, offset = self.number("<I"), self.number("<Q")
        if number not in _TYPES:
            raise ValueError(f"{key} has the type {number}, which the lab does not know")
        dtype, block, block_bytes = _TYPES[number]
        return key, dtype, shape, offset, math.prod(shape) // block * block_bytes

    def value(self, kind: int) -> str:
        """One setting as text; of a list, as long as a vocabulary, only its length."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return str(self.scalar(kind))
        inner, length = self.number("<I"), self.number("<Q")
        if inner == _STRING:
            for _ in range(length):
                self.skip(self.number("<Q"))
        else:
            self.skip(length * struct.calcsize(self.form(inner)))
        return f"{length} values"

    def scalar(self, kind: int) -> Any:
        return self.number(self.form(kind))

    def form(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ValueError(f"a setting has the type {kind}, which the format does not have")
        return _SCALARS[kind]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", "replace")

    def skip(self, length: int) -> None:
        if length > self.file_bytes - self.file.tell():
            raise EOFError
        self.file.seek(length, os.SEEK_CUR)

    def take(self, length: int) -> bytes:
        # A damaged length must not become a request for so much memory.
        if length > self.file_bytes - self.file.tell():
            raise EOFError
        return self.file.read(length)
