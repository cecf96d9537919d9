"""Where files, headers and index of a checkpoint disagree: bytes that don't add up, other names.

Decided from what was read already; this module opens no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from tracer.checkpoint import Header, Index
from tracer.explain.sentences import phrase
from tracer.formats import pickled
from tracer.formats.entries import size_of
from tracer.problems import Problem, named, problem


def of_pickle(file: str, header: Header) -> Iterator[Problem]:
    """Whether tensors of a `.bin` lie where no load looks, or beside what no load will make."""
    strange = json.loads(header.metadata.get(pickled.STRANGE, "[]"))
    if strange:
        yield problem(
            "wrong_format",
            phrase("folders.strange_objects", file=file, names=named(strange)),
            file=file,
            key=strange[0],
            expected=0,
            found=len(strange),
        )
    outer = json.loads(header.metadata.get(pickled.NESTED, "[]"))
    inside = [key for key in header.tensors if key.startswith(tuple(f"{one}." for one in outer))]
    if inside:
        yield problem(
            "nested",
            phrase(
                "folders.nested",
                file=file,
                keys=named(outer),
                number=len(inside),
                first=inside[0].removeprefix(f"{outer[0]}."),
            ),
            file=file,
            key=outer[0],
            expected=0,
            found=len(inside),
        )


def of_header(file: str, header: Header) -> Iterator[Problem]:
    """Whether a safetensors file's tensors fill it to the byte, each with the bytes it needs."""
    end = 8 + header.header_bytes
    for entry in sorted(header.tensors.values(), key=lambda one: one.offset_bytes):
        need = size_of(entry.dtype, entry.shape)
        if need is None:
            told = phrase("folders.strange_dtype", file=file, key=entry.key, dtype=entry.dtype)
            yield problem("damaged_header", told, file=file, key=entry.key, found=entry.dtype)
        if need is not None and need != entry.size_bytes:
            yield problem(
                "size_mismatch",
                phrase(
                    "folders.size_mismatch",
                    file=file,
                    key=entry.key,
                    found=entry.size_bytes,
                    shape=list(entry.shape),
                    dtype=entry.dtype,
                    expected=need,
                ),
                file=file,
                key=entry.key,
                expected=need,
                found=entry.size_bytes,
            )
        if entry.offset_bytes != end:
            yield problem(
                "gap",
                phrase(
                    "folders.gap", file=file, key=entry.key, found=entry.offset_bytes, expected=end
                ),
                file=file,
                key=entry.key,
                expected=end,
                found=entry.offset_bytes,
            )
        end = max(end, entry.offset_bytes + entry.size_bytes)
    if header.file_bytes > end:
        yield problem(
            "extra_bytes",
            phrase(
                "folders.extra_bytes",
                file=file,
                found=header.file_bytes,
                expected=end,
                surplus=header.file_bytes - end,
            ),
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
            phrase("folders.stray_file", file=file, index=index.file),
            file=file,
        )
    yield from _total(index, asked, headers, on_disk)


def _absent(index: Index, asked: Mapping[str, list[str]], on_disk: set[str]) -> Iterator[Problem]:
    for file in sorted(asked.keys() - on_disk):
        if is_outside(file):
            yield problem(
                "outside_folder",
                phrase("folders.outside_folder", file=file, index=index.file),
                file=file,
            )
            continue
        yield problem(
            "absent_file",
            phrase("folders.absent_file", file=file, index=index.file, tensors=len(asked[file])),
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
            kind = "misplaced" if others else "not_held"
            where = {"others": named(others)} if others else {}
            yield problem(
                kind,
                phrase(f"folders.{kind}", index=index.file, key=key, file=file, **where),
                file=file,
                key=key,
                expected=file,
                found=others[0] if others else None,
            )
        for key in header.tensors:
            if key not in index.weight_map:
                yield problem(
                    "not_in_index",
                    phrase("folders.not_in_index", file=file, key=key, index=index.file),
                    file=file,
                    key=key,
                    found=file,
                )
    for key, files in holders.items():
        if len(files) > 1:
            yield problem(
                "held_twice",
                phrase("folders.held_twice", key=key, files=named(files)),
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
    sums = {"index": index.file, "expected": index.total_size, "found": held}
    told = phrase("folders.total_size", **sums)
    if lacking:
        told = phrase("folders.total_size_lacking", lacking=lacking, files=len(asked), **sums)
    yield problem(
        "total_size",
        told,
        file=index.file,
        key="total_size",
        expected=index.total_size,
        found=held,
        missing_bytes=missing,
    )
