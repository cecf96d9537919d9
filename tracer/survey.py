"""A model folder looked over without torch: files, headers, index, and where they disagree.

Which weights `from_pretrained` would read is told by the order that the library looks in: one
safetensors file, a safetensors index, one `.bin`, a `.bin` index. Nothing outside the folder is
opened and no weight is read.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tracer import checkpoint, disagreements, problems
from tracer.checkpoint import FolderFile, Header, Index
from tracer.errors import CheckpointError
from tracer.explain.sentences import Sentence, phrase, then
from tracer.formats import signature
from tracer.problems import Problem

ORDER: Final = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""What the library looks for in a local folder, in this order (`_get_resolved_checkpoint_files`,
modeling_utils.py, 4.51.3 to 5.24.0)."""
_EITHER: Final = {"first": ORDER[0], "second": ORDER[1]}
_VARIANT: Final = re.compile(r"(?:model|pytorch_model)\.([\w-]+)\.(?:safetensors|bin)")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SIDE_KINDS: Final = ("config", "generation_config", "tokenizer", "processor", "template")
_ADAPTERS: Final = ("adapter_model.safetensors", "adapter_model.bin")


@dataclasses.dataclass(frozen=True, slots=True)
class Survey:
    """What a folder holds.

    Attributes:
        folder: The folder.
        files: Every file in it, hidden folders left out.
        entry: File that the load begins with; None where there is none.
        index: The index that it would follow, if that is one that can be read.
        headers: Headers that could be read, by path in the folder.
        chosen: Weights files that would be read, absent ones too, in the order of their names.
        why_not: Why a weights file would not be read, by path.
        problems: Everything that is wrong.
        settings: JSON objects of configuration, tokenizer and template, by path; empty where those
            were not to be looked at.
    """

    folder: Path
    files: list[FolderFile]
    entry: str | None
    index: Index | None
    headers: dict[str, Header]
    chosen: list[str]
    why_not: dict[str, Sentence]
    problems: list[Problem]
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


def order_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Files that a load with these arguments of `from_pretrained` looks for, in order."""
    if arguments.get("gguf_file"):
        return (str(arguments["gguf_file"]),)
    wanted, variant = arguments.get("use_safetensors"), arguments.get("variant")
    names = ORDER if wanted is None else ORDER[:2] if wanted else ORDER[2:]
    if not variant:
        return names
    # `model.fp16.safetensors`, `model.safetensors.index.fp16.json`
    return tuple(f"{stem}.{variant}.{end}" for stem, _, end in (n.rpartition(".") for n in names))


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


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """Of a folder what it takes to look it over later, when files may have changed.

    Attributes:
        root: The folder.
        files: Every file in it, hidden folders left out.
        entry: File that the load begins with; None where there is none.
        index: The index that it would follow, if that is one that can be read.
        chosen: Weights files that would be read, absent ones too, in the order of their names.
        problems: What is wrong so far.
    """

    root: Path
    files: list[FolderFile]
    entry: str | None
    index: Index | None
    chosen: list[str]
    problems: list[Problem]


def list_folder(folder: str | os.PathLike[str], order: Sequence[str] = ORDER) -> Listing:
    """List a model folder and read its index; no header is read.

    Raises:
        CheckpointError: there is no such folder.
    """
    root = Path(folder)
    if not os.path.isdir(root):
        words = "no_folder_but_file" if os.path.isfile(root) else "no_folder"
        raise CheckpointError(
            phrase(f"folders.{words}", folder=os.fspath(folder)), kind="no_folder"
        )
    files = checkpoint.list_files(root)
    found: list[Problem] = []
    entry = _entry(files, order)
    index, chosen = _chosen(root, files, entry, found)
    return Listing(root, files, entry, index, chosen, found)


def survey_listing(
    listing: Listing, headers: Mapping[str, Header] | None = None, *, beside: bool = True
) -> Survey:
    """Look a folder over that was listed before; the rest as for `survey_folder`."""
    root, files, entry = listing.root, listing.files, listing.entry
    index, chosen, found = listing.index, listing.chosen, list(listing.problems)
    why_not = _why_not(files, entry, chosen)
    read = dict(headers or {})
    files_read = [*_weights(files), *_under_a_name(root, files, chosen)]
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
        found += _beside(root, files, settings)
    return Survey(root, files, entry, index, read, chosen, why_not, found, settings)


def _weights(files: list[FolderFile]) -> Iterator[FolderFile]:
    return (file for file in files if file.kind == "weights")


def _entry(files: list[FolderFile], order: Sequence[str]) -> str | None:
    names = {file.path for file in files}
    return next((name for name in (*order, *_ADAPTERS) if name in names), None)


def _chosen(
    root: Path, files: list[FolderFile], entry: str | None, found: list[Problem]
) -> tuple[Index | None, list[str]]:
    if entry is None:
        found.append(_no_entry(files))
        return None, []
    if not entry.endswith(".index.json"):
        return None, [entry]
    try:
        index = checkpoint.read_index_file(root / entry)
    except CheckpointError as error:
        found.append(problems.from_error(error, entry))
        return None, []
    if not index.weight_map:
        found.append(
            problems.problem(
                "damaged_index",
                phrase("folders.empty_index", file=entry),
                file=entry,
                expected="names of tensors",
                found=0,
            )
        )
        return None, []
    return index, sorted(set(index.weight_map.values()))


def _no_entry(files: list[FolderFile]) -> Problem:
    weights = list(_weights(files))
    ggufs = [file.path for file in weights if file.format == "gguf"]
    if ggufs:
        told = phrase("folders.weights_are_gguf", file=ggufs[0])
        return problems.problem("no_weights", told, expected=" or ".join(ORDER[::2]), found=0)
    variants = [one for file in weights if (one := _VARIANT.fullmatch(file.path))]
    if variants:
        named = variants[0]
        return problems.problem(
            "no_index",
            phrase("folders.variant", file=named[0], variant=named[1], **_EITHER),
            expected=f'variant="{named[1]}" as an argument',
            found=len(weights),
        )
    if weights:
        return problems.problem(
            "no_index",
            phrase(
                f"folders.no_index_for_{'many' if len(weights) > 1 else 'one'}",
                files=problems.named(file.path for file in weights),
                **_EITHER,
            ),
            expected=ORDER[1],
            found=len(weights),
        )
    return problems.problem(
        "no_weights",
        phrase("folders.no_weights"),
        expected=" or ".join(ORDER[::2]),
        found=0,
    )


def _why_not(files: list[FolderFile], entry: str | None, chosen: list[str]) -> dict[str, Sentence]:
    """Of what a plain load leaves out, why."""
    indexes = [file for file in files if file.kind == "index" and file.path != entry]
    others = [file for file in _weights(files) if file.path not in chosen]
    return {file.path: _reason(file, entry) for file in (*others, *indexes)}


def _reason(file: FolderFile, entry: str | None) -> Sentence:
    if "/" in file.path:
        return phrase("unread.below")
    if file.format == "gguf":
        return phrase("unread.gguf", file=file.path)
    if file.path in _ADAPTERS:
        return phrase("unread.adapter")
    variant = _VARIANT.fullmatch(file.path)
    if variant is not None:
        return phrase("unread.variant", variant=variant[1])
    if entry is None:
        return phrase("unread.no_index")
    if entry.endswith(".index.json") and file.kind == "weights" and file.format == _format(entry):
        return phrase("unread.not_named", entry=entry)
    return phrase("unread.second", entry=entry)


def _format(entry: str) -> str:
    return "safetensors" if "safetensors" in entry else "pickle"


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
            yield FolderFile(path, "weights", _format(path), 0)


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
            for file in _weights(files)
            if file.format == _format(entry)
            and (file.path in chosen or ("/" not in file.path and file.path not in _ADAPTERS))
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


def _beside(
    root: Path, files: list[FolderFile], settings: dict[str, dict[str, Any]]
) -> Iterator[Problem]:
    """Small files that can't be what their names say: pointers, empty ones, JSON that is none."""
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
    if not any(
        file.kind in {"config", "adapter_config"} and "/" not in file.path for file in files
    ):
        yield problems.problem(
            "no_config",
            phrase("folders.no_config", instead=_instead(files)),
            expected="config.json",
            found=0,
        )
