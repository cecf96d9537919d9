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

from tracer import checkpoint, problems
from tracer.checkpoint import FolderFile, Header, Index
from tracer.errors import CheckpointError
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
    why_not: dict[str, str]
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
    root = Path(folder)
    if not os.path.isdir(root):
        what = "is a file, not a folder" if os.path.isfile(root) else "is no folder on this machine"
        raise CheckpointError(
            f"{os.fspath(folder)} {what}; give the folder that holds config.json", kind="no_folder"
        )
    files = checkpoint.list_files(root)
    found: list[Problem] = []
    entry = _entry(files, order)
    index, chosen = _chosen(root, files, entry, found)
    why_not = _why_not(files, entry, chosen)
    read = dict(headers or {})
    files_read = [*_weights(files), *_under_a_name(root, files, chosen)]
    for file in files_read:
        if file.path not in read:
            problem = _read(root, file, read)
            if problem is not None and file.path in chosen:
                found.append(problem)
            elif problem is not None:
                why_not[file.path] += f"; {problem.sentence}"
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
                f"{entry} names no tensor at all, so a load finds no weights and stops",
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
        sentence = f"the folder's weights are GGUF: load it with gguf_file={ggufs[0]!r}"
        return problems.problem("no_weights", sentence, expected=" or ".join(ORDER[::2]), found=0)
    variants = [one for file in weights if (one := _VARIANT.fullmatch(file.path))]
    if variants:
        named = variants[0]
        return problems.problem(
            "no_index",
            f"{named[0]} is there, but neither {ORDER[0]} nor {ORDER[1]}: load it with "
            f"variant={named[1]!r}",
            expected=f'variant="{named[1]}" as an argument',
            found=len(weights),
        )
    if weights:
        return problems.problem(
            "no_index",
            f"{problems.named(file.path for file in weights)} "
            f"{'are' if len(weights) > 1 else 'is'} there, but neither {ORDER[0]} nor "
            f"{ORDER[1]}, which names the shards: download the index, or rename a single file",
            expected=ORDER[1],
            found=len(weights),
        )
    return problems.problem(
        "no_weights",
        "the folder holds no weights file at all; download them (how many bytes, no file here "
        "tells; tracer.inspect(folder).model() builds the model without weights to know)",
        expected=" or ".join(ORDER[::2]),
        found=0,
    )


def _why_not(files: list[FolderFile], entry: str | None, chosen: list[str]) -> dict[str, str]:
    """Of what a plain load leaves out, why."""
    indexes = [file for file in files if file.kind == "index" and file.path != entry]
    others = [file for file in _weights(files) if file.path not in chosen]
    return {file.path: _reason(file, entry) for file in (*others, *indexes)}


def _reason(file: FolderFile, entry: str | None) -> str:
    if "/" in file.path:
        return "in a folder below, which from_pretrained does not enter by itself"
    if file.format == "gguf":
        return f"GGUF is read only where gguf_file={file.path!r} asks for it"
    if file.path in _ADAPTERS:
        return "an adapter: read on top of the base model that it names"
    variant = _VARIANT.fullmatch(file.path)
    if variant is not None:
        return f"read only where variant={variant[1]!r} asks for it"
    if entry is None:
        return "no index names it"
    if entry.endswith(".index.json") and file.kind == "weights" and file.format == _format(entry):
        return f"{entry} does not name it"
    return f"{entry} is there and comes first"


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
        if path not in present and not problems.is_outside(path) and os.path.lexists(root / path):
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
            yield from problems.of_header(path, headers[path])
    if index is not None and entry is not None:
        present = [
            file.path
            for file in _weights(files)
            if file.format == _format(entry)
            and (file.path in chosen or ("/" not in file.path and file.path not in _ADAPTERS))
        ]
        yield from problems.of_index(index, headers, present)


def _marked(path: str) -> Problem:
    return problems.problem(
        "damaged_json",
        f"{path} begins with a byte order mark, which the library's reader of JSON refuses: save "
        "it as UTF-8 without one",
        file=path,
        expected="{",
        found="byte order mark",
    )


def _instead(files: list[FolderFile]) -> str:
    """What to do about a folder without a configuration."""
    below = [file.path.rpartition("/")[0] for file in files if file.kind == "config"]
    if any(file.path == "model_index.json" for file in files):
        return f"it is a pipeline of parts: {problems.named(below)} hold a model each"
    return f"{problems.named(below)} has one: give that folder" if below else "download it"


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
            f"the folder has no config.json, so no model can be built from it; {_instead(files)}",
            expected="config.json",
            found=0,
        )
