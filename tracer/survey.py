"""A model folder looked over without torch: files, headers, index, and where they disagree.

What a load would read is told by listing.py. Nothing outside the folder is opened and no weight is
read.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tracer import checkpoint, disagreements, problems
from tracer.checkpoint import FolderFile, Header, Index
from tracer.errors import CheckpointError
from tracer.explain.sentences import Sentence, phrase, then
from tracer.formats import signature
from tracer.listing import (
    ADAPTER_CONFIG,
    ADAPTERS,
    ORDER,
    VARIANT,
    Listing,
    asked_for,
    asks_for_gguf,
    format_of,
    list_folder,
    weights_files,
)
from tracer.problems import Problem

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SIDE_KINDS: Final = (
    "config", "generation_config", "adapter_config", "tokenizer", "processor", "template",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Survey(Listing):
    """What a folder holds: its listing, with all that headers and small files tell.

    Attributes:
        headers: Headers that could be read, by path in the folder.
        why_not: Why a weights file would not be read, by path.
        settings: JSON objects of configuration, tokenizer and template, by path; empty where those
            were not to be looked at.
    """

    headers: dict[str, Header]
    why_not: dict[str, Sentence]
    settings: dict[str, dict[str, Any]]

    @property
    def missing_bytes(self) -> int:
        """Bytes of weights that are not there; tensor bytes where an index tells their sum.

        A shard that is absent while no index tells the sum counts nothing: its size isn't known.
        """
        weights = [one for one in self.problems if one.file in self.chosen]
        by_index = [one for one in self.problems if one.kind == "total_size" and one.missing_bytes]
        if by_index:
            # What a cut file lacks is named by its header, so the sum does not lack it.
            by_index += [one for one in weights if one.kind == "tail_cut"]
        return sum(one.missing_bytes or 0 for one in by_index or weights)


def survey_folder(
    folder: str | os.PathLike[str],
    headers: Mapping[str, Header] | None = None,
    *,
    order: Sequence[str] = ORDER,
    beside: bool = True,
) -> Survey:
    """Look a model folder over.

    Args:
        folder: A local folder.
        headers: Headers that are known already, by path in the folder; they are not read again.
        order: Files that the load looks for, in this order.
        beside: Whether to check configuration, tokenizer and template too.

    Raises:
        CheckpointError: there is no such folder.
    """
    return survey_listing(list_folder(folder, order), headers, beside=beside)


def survey_listing(
    listing: Listing, headers: Mapping[str, Header] | None = None, *, beside: bool = True
) -> Survey:
    """Look a folder over that was listed before; the rest as for `survey_folder`."""
    root, files, entry = listing.folder, listing.files, listing.entry
    index, chosen, found = listing.index, listing.chosen, list(listing.problems)
    why_not = _why_not(listing)
    read = dict(headers or {})
    files_read = [*weights_files(files), *_under_a_name(root, files, chosen)]
    for file in files_read:
        if file.path not in read:
            problem = _read(root, file, read)
            if problem is not None and file.path in chosen:
                found.append(problem)
            elif problem is not None:
                why_not[file.path] = then(why_not[file.path], problem.told)
    found += _disagreements(files_read, index, entry, chosen, read)
    settings: dict[str, dict[str, Any]] = {}
    if beside:
        found += _beside(listing, settings)
    return Survey(root, listing.order, files, entry, index, chosen, found, read, why_not, settings)


def _why_not(listing: Listing) -> dict[str, Sentence]:
    """Of what a load leaves out, why."""
    files, entry = listing.files, listing.entry
    indexes = [file for file in files if file.kind == "index" and file.path != entry]
    others = [file for file in weights_files(files) if file.path not in listing.chosen]
    return {file.path: _reason(file, entry, listing.order) for file in (*others, *indexes)}


def _reason(file: FolderFile, entry: str | None, order: Sequence[str]) -> Sentence:
    if "/" in file.path:
        return phrase("unread.below")
    if file.format == "gguf":
        return phrase("unread.gguf", file=file.path)
    if file.path in ADAPTERS:
        return phrase("unread.adapter")
    variant = VARIANT.fullmatch(file.path)
    if variant is not None:
        return phrase("unread.variant", variant=variant[1])
    if entry is None and order != ORDER:
        return phrase("unread.asked_otherwise", asked=asked_for(order))
    if entry is None:
        return phrase("unread.no_index")
    if entry.endswith(".index.json") and file.kind == "weights" and file.format == format_of(entry):
        return phrase("unread.not_named", entry=entry)
    return phrase("unread.second", entry=entry)


def _read(root: Path, file: FolderFile, headers: dict[str, Header]) -> Problem | None:
    """Read one header; one whose weights are cut short is known all the same."""
    try:
        headers[file.path] = checkpoint.read_any_header(root / file.path, file.format)
    except CheckpointError as error:
        if isinstance(error.header, Header):
            headers[file.path] = error.header
        return problems.from_error(error, file.path)
    return None


def _under_a_name(root: Path, files: list[FolderFile], chosen: list[str]) -> Iterator[FolderFile]:
    """What stands where a weights file should and is none, such as a folder."""
    present = {file.path for file in files}
    for path in chosen:
        if (
            path not in present
            and not disagreements.is_outside(path)
            and os.path.lexists(root / path)
        ):
            yield FolderFile(path, "weights", format_of(path), 0)


def _disagreements(
    files: list[FolderFile],
    index: Index | None,
    entry: str | None,
    chosen: list[str],
    headers: Mapping[str, Header],
) -> Iterator[Problem]:
    formats = {file.path: file.format for file in files}
    for path in chosen:
        if path in headers and formats.get(path) == "safetensors":
            yield from disagreements.of_header(path, headers[path])
        elif path in headers and formats.get(path) == "pickle":
            yield from disagreements.of_pickle(path, headers[path])
    if index is not None and entry is not None:
        present = [
            file.path
            for file in weights_files(files)
            if file.format == format_of(entry)
            and (file.path in chosen or ("/" not in file.path and file.path not in ADAPTERS))
        ]
        yield from disagreements.of_index(index, headers, present)


def _marked(path: str) -> Problem:
    return problems.problem(
        "damaged_json",
        phrase("folders.byte_order_mark", file=path),
        file=path,
        expected="{",
        found="byte order mark",
    )


def _instead(files: list[FolderFile]) -> Sentence:
    """What to do about a folder without a configuration."""
    below = [file.path.rpartition("/")[0] for file in files if file.kind == "config"]
    if any(file.path == "model_index.json" for file in files):
        return phrase("folders.is_pipeline", folders=problems.named(below))
    return (
        phrase("folders.is_below", folders=problems.named(below))
        if below
        else phrase("folders.download")
    )


def _beside(listing: Listing, settings: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    """Small files that can't be what their names say: pointers, empty ones, JSON that is none."""
    root, files = listing.folder, listing.files
    for file in files:
        if file.kind not in _SIDE_KINDS or "/" in file.path:
            continue
        try:
            if file.format == "json":
                settings[file.path] = checkpoint.read_json(root / file.path)
                if signature.read_start(root / file.path)[0].startswith(_BYTE_ORDER_MARK):
                    yield _marked(file.path)
            else:
                signature.read_start(root / file.path)
        except CheckpointError as error:
            yield problems.from_error(error, file.path)
    base = settings.get(ADAPTER_CONFIG, {}).get("base_model_name_or_path")
    if isinstance(base, str) and os.path.isabs(base) and not os.path.isdir(base):
        yield problems.problem(
            "no_base",
            phrase("folders.no_base", file=ADAPTER_CONFIG, base=base),
            file=ADAPTER_CONFIG,
            key="base_model_name_or_path",
            expected=base,
            found=0,
        )
    has_config = any(
        file.kind in {"config", "adapter_config"} and "/" not in file.path for file in files
    )
    if not has_config and not asks_for_gguf(listing.order):
        yield problems.problem(
            "no_config",
            phrase("folders.no_config", instead=_instead(files)),
            expected="config.json",
            found=0,
        )
