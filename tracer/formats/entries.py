"""What a header tells of its tensors, in one form for every format, and how many bits each takes.

dtypes go by the safetensors codes (`BF16`); quantised GGUF blocks by GGUF's own (`Q4_K`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final


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
    """The header of one checkpoint file.

    Attributes:
        header_bytes: Bytes that describe the tensors; of safetensors without its 8 length bytes.
        file_bytes: Bytes of the whole file.
        metadata: What the header says beside its tensors, as text.
        tensors: Entries by name, in the header's order.
    """

    header_bytes: int
    file_bytes: int
    metadata: dict[str, str]
    tensors: dict[str, TensorEntry]


DTYPES: Final[dict[str, tuple[str, int]]] = {
    "F64": ("float64", 64), "F32": ("float32", 32), "F16": ("float16", 16),
    "BF16": ("bfloat16", 16), "F8_E4M3": ("float8_e4m3fn", 8), "F8_E5M2": ("float8_e5m2", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8), "F6_E2M3": ("float6_e2m3", 6), "F6_E3M2": ("float6_e3m2", 6),
    "F4": ("float4_e2m1fn_x2", 4), "C64": ("complex64", 64), "C128": ("complex128", 128),
    "I64": ("int64", 64), "I32": ("int32", 32), "I16": ("int16", 16), "I8": ("int8", 8),
    "U64": ("uint64", 64), "U32": ("uint32", 32), "U16": ("uint16", 16), "U8": ("uint8", 8),
    "BOOL": ("bool", 8),
}  # fmt: skip
"""Code of the safetensors format: torch's name, and bits a value takes."""


def dtype_name(code: str) -> str:
    """A stored dtype as torch calls it; a code that torch has no name for stays as it is."""
    return DTYPES[code][0] if code in DTYPES else code


def size_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes that a tensor of this dtype and shape takes; None for a dtype that isn't known."""
    if dtype not in DTYPES:
        return None
    bits = math.prod(shape) * DTYPES[dtype][1]
    return -(-bits // 8)
