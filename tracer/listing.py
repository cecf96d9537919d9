"""A model folder listed: its files, what a load would begin with, and the weights it would read.

Which weights `from_pretrained` would read is told by the order that the library looks in: one
safetensors file, a safetensors index, one `.bin`, a `.bin` index. No header is read here; survey.py
does that.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tracer import checkpoint, problems
from tracer.checkpoint import FolderFile, Index
from tracer.errors import CheckpointError
from tracer.explain.sentences import Sentence, phrase
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
VARIANT: Final = re.compile(r"(?:model|pytorch_model)\.([\w-]+)\.(?:safetensors|bin)")
"""Names of weights files with a variant, such as `model.fp16.safetensors`."""
ADAPTERS: Final = ("adapter_model.safetensors", "adapter_model.bin")
"""Weights files of a PEFT adapter."""
ADAPTER_CONFIG: Final = "adapter_config.json"


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


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """Of a folder what it takes to look it over later, when files may have changed.

    Attributes:
        folder: The folder.
        order: Files that the load looks for, in this order.
        files: Every file in it, hidden folders left out.
        entry: File that the load begins with; None where there is none.
        index: The index that it would follow, if that is one that can be read.
        chosen: Weights files that would be read, absent ones too, in the order of their names.
        problems: What is wrong so far.
    """

    folder: Path
    order: Sequence[str]
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
    index, chosen = _chosen(root, files, entry, found, order)
    return Listing(root, order, files, entry, index, chosen, found)


def asked_for(order: Sequence[str]) -> Sentence:
    """Names that a load looks for, an index for each but a GGUF file."""
    return problems.named(order[::2])


def weights_files(files: list[FolderFile]) -> Iterator[FolderFile]:
    """Those of the files that are for weights."""
    return (file for file in files if file.kind == "weights")


def format_of(entry: str) -> str:
    """Format of the weights that a load's first file is of or leads to."""
    return "safetensors" if "safetensors" in entry else "pickle"


def _entry(files: list[FolderFile], order: Sequence[str]) -> str | None:
    names = {file.path for file in files}
    # Without its configuration an adapter names no base model, and is not looked for.
    adapters = ADAPTERS if ADAPTER_CONFIG in names else ()
    return next((name for name in (*order, *adapters) if name in names), None)


def _chosen(
    root: Path,
    files: list[FolderFile],
    entry: str | None,
    found: list[Problem],
    order: Sequence[str],
) -> tuple[Index | None, list[str]]:
    if entry is None:
        found.append(_no_entry(files, order))
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


def asks_for_gguf(order: Sequence[str]) -> bool:
    """Whether a load takes everything, its configuration too, out of one GGUF file."""
    return order[0].endswith(".gguf")


def _no_entry(files: list[FolderFile], order: Sequence[str]) -> Problem:
    weights = list(weights_files(files))
    others = [file.path for file in files if file.path in ORDER] if order != ORDER else []
    if others or (asks_for_gguf(order) and weights):
        held = others or [file.path for file in weights]
        told = phrase("folders.asked_otherwise", files=problems.named(held), asked=asked_for(order))
        return problems.problem(
            "no_weights", told, expected=" or ".join(order[::2]), found=len(held)
        )
    adapters = [file.path for file in weights if file.path in ADAPTERS]
    if adapters and len(adapters) == len(weights):
        told = phrase("folders.adapter_alone", file=adapters[0], config=ADAPTER_CONFIG)
        return problems.problem("no_weights", told, expected=ADAPTER_CONFIG, found=0)
    ggufs = [file.path for file in weights if file.format == "gguf"]
    if ggufs:
        told = phrase("folders.weights_are_gguf", file=ggufs[0])
        return problems.problem("no_weights", told, expected=" or ".join(ORDER[::2]), found=0)
    variants = [one for file in weights if (one := VARIANT.fullmatch(file.path))]
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
