"""What can be wrong with a model folder, as rows: kind, file, key, numbers and one sentence.

Each is decided from bytes and names, never from the text of another library's error. `inspect`,
a failed load's trace and the doctor share these rows; this module opens no file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from tracer.checkpoint import Header, Index
from tracer.errors import CheckpointError
from tracer.formats.entries import size_of

Level = Literal["error", "warning", "note"]

KINDS: Final[dict[str, Level]] = {
    # Of one file
    "absent_file": "error",
    "broken_link": "error",
    "no_permission": "error",
    "unreadable": "error",
    "empty_file": "error",
    "lfs_pointer": "error",
    "wrong_format": "error",
    "header_cut": "error",
    "tail_cut": "error",
    "damaged_header": "error",
    "extra_bytes": "error",
    "gap": "error",
    "size_mismatch": "error",
    "damaged_json": "error",
    # Between index, headers and files
    "damaged_index": "error",
    "outside_folder": "error",
    "not_held": "error",
    "misplaced": "warning",
    "not_in_index": "warning",
    "held_twice": "warning",
    "total_size": "warning",
    "stray_file": "note",
    # Of the folder
    "no_folder": "error",
    "no_config": "error",
    "no_weights": "error",
    "no_index": "error",
    "no_tokenizer": "note",
    "no_template": "note",
    "vocabulary": "warning",
    "token_ids": "warning",
    "no_room": "warning",
    # Against the model as built
    "no_model": "error",
    "missing": "warning",
    "unexpected": "note",
    "mismatched": "error",
    "other_prefix": "warning",
}
"""Every kind of problem. `error`: a load fails. `warning`: it may end well with values or answers
that nobody asked for. `note`: harmless, and often asked about."""

_SPOIL_A_FILE: Final = {
    "absent_file", "broken_link", "no_permission", "unreadable", "empty_file", "lfs_pointer",
    "wrong_format", "header_cut", "tail_cut", "damaged_header", "extra_bytes", "gap",
    "size_mismatch", "damaged_json", "damaged_index", "outside_folder",
}  # fmt: skip
_OF_NAMES: Final = {"not_held", "misplaced", "not_in_index", "held_twice"}
_MOST_NAMES: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        kind: One of `KINDS`.
        file: File that it is about, by its path in the folder; None for the whole folder.
        key: Tensor, parameter or setting that it is about, if it is about one.
        expected: What should be there: bytes, a count or a word.
        found: What is there.
        missing_bytes: Bytes of weights that are not there; None where nothing tells.
        sentence: What happened, with the values, and what to do.
    """

    kind: str
    file: str | None
    key: str | None
    expected: int | str | None
    found: int | str | None
    missing_bytes: int | None
    sentence: str

    @property
    def level(self) -> Level:
        """How bad it is: error, warning or note."""
        return KINDS[self.kind]


def problem(
    kind: str,
    sentence: str,
    *,
    file: str | None = None,
    key: str | None = None,
    expected: int | str | None = None,
    found: int | str | None = None,
    missing_bytes: int | None = None,
) -> Problem:
    """Make a row; what isn't known is left out."""
    return Problem(kind, file, key, expected, found, missing_bytes, sentence)


def from_error(error: CheckpointError, file: str) -> Problem:
    """The row of a file that could not be read."""
    return Problem(
        error.kind, file, None, error.expected, error.found, error.missing_bytes, str(error)
    )


def causes(found: Iterable[Problem]) -> dict[str, Problem]:
    """Of each file that can't be used, the first thing that is wrong with it."""
    first: dict[str, Problem] = {}
    for one in found:
        if one.file is not None and one.kind in _SPOIL_A_FILE:
            first.setdefault(one.file, one)
    return first


def after_success(found: Iterable[Problem]) -> list[Problem]:
    """What is still worth saying where the library read every file: names that disagree.

    A sum alone proves little: nobody reads it, and published ones are wrong now and then.
    """
    listed = list(found)
    of_names = [one for one in listed if one.kind in _OF_NAMES]
    return of_names + [one for one in listed if of_names and one.kind == "total_size"]


def named(names: Iterable[str]) -> str:
    """`a, b, c and 4 more`."""
    listed = list(names)
    shown = ", ".join(listed[:_MOST_NAMES])
    return shown if len(listed) <= _MOST_NAMES else f"{shown} and {len(listed) - _MOST_NAMES} more"


def of_header(file: str, header: Header) -> Iterator[Problem]:
    """Whether a safetensors file's tensors fill it to the byte, each with the bytes it needs."""
    end = 8 + header.header_bytes
    for entry in sorted(header.tensors.values(), key=lambda one: one.offset_bytes):
        need = size_of(entry.dtype, entry.shape)
        if need is not None and need != entry.size_bytes:
            yield problem(
                "size_mismatch",
                f"{file} gives {entry.key} {entry.size_bytes} bytes, its shape "
                f"{list(entry.shape)} in {entry.dtype} needs {need}; the file is damaged",
                file=file,
                key=entry.key,
                expected=need,
                found=entry.size_bytes,
            )
        if entry.offset_bytes != end:
            yield problem(
                "gap",
                f"{file} places {entry.key} at byte {entry.offset_bytes}, where the tensor before "
                f"it ends at {end}; the file is damaged",
                file=file,
                key=entry.key,
                expected=end,
                found=entry.offset_bytes,
            )
        end = max(end, entry.offset_bytes + entry.size_bytes)
    if header.file_bytes > end:
        yield problem(
            "extra_bytes",
            f"{file} has {header.file_bytes} bytes, its header needs {end}: "
            f"{header.file_bytes - end} bytes too many; download it again",
            file=file,
            expected=end,
            found=header.file_bytes,
        )


def of_index(
    index: Index, headers: Mapping[str, Header], present: Iterable[str]
) -> Iterator[Problem]:
    """Where an index, the headers and the files on disk name different things.

    Args:
        index: What the index says.
        headers: Headers of the files that could be read, by path in the folder.
        present: Weights files of that format on disk, readable or not.
    """
    asked: dict[str, list[str]] = {}
    for key, file in index.weight_map.items():
        asked.setdefault(file, []).append(key)
    holders: dict[str, list[str]] = {}
    for file, header in headers.items():
        if file in asked:
            for key in header.tensors:
                holders.setdefault(key, []).append(file)
    on_disk = set(present)
    yield from _absent(index, asked, on_disk)
    yield from _misnamed(index, asked, headers, holders)
    for file in sorted(on_disk - asked.keys()):
        yield problem(
            "stray_file",
            f"{file} is not named by {index.file}: nothing reads it",
            file=file,
        )
    yield from _total(index, asked, headers, on_disk)


def _absent(index: Index, asked: Mapping[str, list[str]], on_disk: set[str]) -> Iterator[Problem]:
    for file in sorted(asked.keys() - on_disk):
        if is_outside(file):
            yield problem(
                "outside_folder",
                f"{index.file} names {file}, a path out of the folder; the lab does not follow it",
                file=file,
            )
            continue
        yield problem(
            "absent_file",
            f"{file} is not there; {index.file} names it for {len(asked[file])} tensors. "
            "Download it, or the index is left over from another sharding",
            file=file,
            expected=len(asked[file]),
            found=0,
        )


def is_outside(file: str) -> bool:
    """Whether a file's name leads out of the folder that names it."""
    return (
        file.startswith(("/", "\\", "~"))
        or ":" in file
        or ".." in file.replace("\\", "/").split("/")
    )


def _misnamed(
    index: Index,
    asked: Mapping[str, list[str]],
    headers: Mapping[str, Header],
    holders: Mapping[str, list[str]],
) -> Iterator[Problem]:
    for file, header in headers.items():
        if file not in asked:
            continue
        for key in asked[file]:
            if key in header.tensors:
                continue
            others = holders.get(key, [])
            where = f"it lies in {named(others)}" if others else "no file holds it"
            yield problem(
                "misplaced" if others else "not_held",
                f"{index.file} promises {key} in {file}, whose header does not name it; {where}",
                file=file,
                key=key,
                expected=file,
                found=others[0] if others else None,
            )
        for key in header.tensors:
            if key not in index.weight_map:
                yield problem(
                    "not_in_index",
                    f"{file} holds {key}, which {index.file} does not name: releases before 5 "
                    "leave it out and fill the parameter with random values",
                    file=file,
                    key=key,
                    found=file,
                )
    for key, files in holders.items():
        if len(files) > 1:
            yield problem(
                "held_twice",
                f"{key} lies in {named(files)}; the file that is read last wins",
                file=files[-1],
                key=key,
                expected=1,
                found=len(files),
            )


def _total(
    index: Index,
    asked: Mapping[str, list[str]],
    headers: Mapping[str, Header],
    on_disk: set[str],
) -> Iterator[Problem]:
    if index.total_size is None:
        return
    held = sum(
        entry.size_bytes
        for file in asked
        if file in headers
        for entry in headers[file].tensors.values()
    )
    if held == index.total_size:
        return
    lacking = len([file for file in asked if file not in headers])
    missing = max(index.total_size - held, 0) if lacking else None
    why = f": {lacking} of {len(asked)} files can't be read" if lacking else ""
    yield problem(
        "total_size",
        f"{index.file} promises {index.total_size} bytes of tensors, the headers that can be read "
        f"name {held}{why}",
        file=index.file,
        key="total_size",
        expected=index.total_size,
        found=held,
        missing_bytes=missing,
    )
