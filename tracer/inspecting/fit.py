"""Bytes of the weights by dtype, and whether they fit into this machine's memory: an estimate.

Weights alone are counted. What a run needs beside them (activations, cache, a converted copy while
loading) is left out, so `fits` says no for certain and yes only as far as weights go.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tracer import machine, problems
from tracer.explain.languages import words
from tracer.explain.sentences import phrase
from tracer.formats.entries import DTYPES, TensorEntry, dtype_name
from tracer.machine import Room
from tracer.problems import Problem
from tracer.survey import Survey

_FLOATS: Final = {"F64", "F32", "F16", "BF16"}
_ASKED: Final = {"bfloat16": 16, "float16": 16, "float32": 32}


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """One dtype that a load may ask for.

    Attributes:
        dtype: The dtype, or `as stored`.
        needed_bytes: Bytes of all weights in it.
        left_bytes: Memory that this process can still get; None where the system does not tell.
        limit: What sets that.
        fits: Whether the weights alone have room; None where one of the two is not known.
        basis: What the bytes rest on: headers, index, or sizes in Git LFS pointers.
    """

    dtype: str
    needed_bytes: int
    left_bytes: int | None
    limit: str | None
    fits: bool | None
    basis: str


def limit(name: str | None) -> Any:
    """What sets a limit or what an estimate rests on, in words; a name without words as it is."""
    known = name is not None and name in words("folders")["limits"]
    return phrase(f"limits.{name}") if known else name


def chosen_entries(survey: Survey) -> Iterator[tuple[str, TensorEntry]]:
    """File and entry of each tensor that a load would read."""
    for path in survey.chosen:
        header = survey.headers.get(path)
        for entry in header.tensors.values() if header else ():
            yield path, entry


def fits_of(survey: Survey, room: Room | None = None) -> list[Fit]:
    """Each dtype that is worth asking for, as stored first; empty where no size is known.

    Args:
        survey: The folder.
        room: Memory to fit into; this machine's where none is given.
    """
    room = machine.memory_left() if room is None else room
    sizes, basis = _sizes(survey)
    return [
        Fit(
            name,
            needed,
            room.left_bytes if room else None,
            room.limit if room else None,
            needed <= room.left_bytes if room else None,
            basis,
        )
        for name, needed in sizes.items()
    ]


def _sizes(survey: Survey) -> tuple[dict[str, int], str]:
    entries = [entry for _, entry in chosen_entries(survey)]
    stored = sum(entry.size_bytes for entry in entries)
    promised = (survey.index.total_size if survey.index else None) or 0
    if entries and all(path in survey.headers for path in survey.chosen):
        asked = {
            name: sum(_bytes_in(entry, bits) for entry in entries) for name, bits in _ASKED.items()
        }
        return {"as stored": stored} | asked, "headers"
    whole: int = promised or _pointed_at(survey)
    if not whole:
        return {}, "nothing"
    basis = "index" if promised else "sizes in Git LFS pointers"
    bits = _config_bits(survey.settings.get("config.json", {}))
    if bits is None:
        return {"as stored": whole}, basis
    scaled = {name: whole * wanted // bits for name, wanted in _ASKED.items()}
    return {"as stored": whole} | scaled, f"{basis}, and the dtype in config.json"


def _bytes_in(entry: TensorEntry, bits: int) -> int:
    if entry.dtype in _FLOATS or entry.dtype not in DTYPES:
        return math.prod(entry.shape) * bits // 8
    return entry.size_bytes  # whole numbers and eight-bit floats stay what they are


def _pointed_at(survey: Survey) -> int:
    sizes = (
        one.expected
        for one in survey.problems
        if one.kind == "lfs_pointer" and one.file in survey.chosen
    )
    return sum(size for size in sizes if isinstance(size, int))


def _config_bits(config: Mapping[str, Any]) -> int | None:
    named = stored_dtype(config)
    return next((bits for name, bits in DTYPES.values() if name == named), None)


def stored_dtype(config: Mapping[str, Any]) -> str | None:
    """The dtype that a configuration names, under its new or its old name."""
    value = config.get("dtype", config.get("torch_dtype"))
    return value.removeprefix("torch.") if isinstance(value, str) else None


@dataclasses.dataclass(frozen=True, slots=True)
class DtypeSum:
    """Everything stored in one dtype."""

    dtype: str
    tensors: int
    parameters: int
    size_bytes: int


def dtypes_of(survey: Survey) -> list[DtypeSum]:
    """Tensors, values and bytes by stored dtype, the largest first."""
    sums: dict[str, list[int]] = {}
    for _, entry in chosen_entries(survey):
        each = sums.setdefault(entry.dtype, [0, 0, 0])
        each[0] += 1
        each[1] += math.prod(entry.shape)
        each[2] += entry.size_bytes
    found = [DtypeSum(dtype_name(code), *each) for code, each in sums.items()]
    return sorted(found, key=lambda one: (-one.size_bytes, one.dtype))


def fit_problems(fits: list[Fit]) -> Iterator[Problem]:
    """Whether the weights as stored have no room in memory."""
    for fit in fits[:1]:
        if fit.fits is False:
            yield problems.problem(
                "no_room",
                phrase(
                    "folders.no_room",
                    expected=fit.needed_bytes,
                    basis=limit(fit.basis),
                    found=fit.left_bytes,
                    limit=limit(fit.limit),
                ),
                key=fit.dtype,
                expected=fit.needed_bytes,
                found=fit.left_bytes,
            )
