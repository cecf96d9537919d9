"""The tensors of checkpoint files, or of a state dict, by name, each read when it is asked for.

Nothing is converted or cast here (that is `conversion.py`). Used to verify a model that is loaded;
a load's own reads are observed in `reads.py` and `shard_reads.py`.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tracer import checkpoint
from tracer.errors import CheckpointError, in_english
from tracer.explain.sentences import phrase
from tracer.instrument.verifying import gguf_sources

_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")
"""What the library looks for in a folder, in this order; each may be an index of shards instead."""


class Sources:
    """Tensors by name, out of files or a state dict. A context manager: it holds files open.

    Attributes:
        names: Every tensor, to the file that holds it; None for one of a state dict. A name that
            two files hold belongs to the later one, as in the library.
        unread: Files whose tensors can't be told, to the reason.
        conversions: Those of the library for this file, in force in place of the model's own;
            what they are given is not cast. None for all but some GGUF files.
        is_unpacked: Whether they come out of a GGUF file, as a load unpacks them.
    """

    def __init__(
        self,
        files: Iterable[str],
        state_dict: Mapping[str, Any] | None = None,
        *,
        model: Any = None,
        is_lenient: bool = False,
    ) -> None:
        """Open the files.

        Args:
            files: Their paths.
            state_dict: Tensors that are in no file.
            model: The model that they are for; a GGUF file is unpacked by what its class is.
            is_lenient: A file that can't be read goes to `unread`.

        Raises:
            CheckpointError: a file can't be read, and that was not to be put up with.
        """
        self.names: dict[str, str | None] = {}
        self.unread: dict[str, str] = {}
        self.conversions: list[Any] | None = None
        self.is_unpacked = False
        self._model = model
        self._given = _tensors(state_dict or {})
        self._open: dict[str, Any] = {}
        self._stack = ExitStack()
        try:
            for path in files:
                try:
                    self._open_file(path)
                except CheckpointError as error:
                    if not is_lenient:
                        raise
                    self.unread[path] = in_english(error)
        except BaseException:
            self._stack.close()
            raise
        self.names.update(dict.fromkeys(self._given))
        if not self.names and not self.unread and not self._open:
            self.unread[""] = "no file with weights was seen to be read"

    def __enter__(self) -> Sources:
        """Nothing more to do: the files are open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._open.clear()
        self._stack.close()

    def read(self, name: str) -> Any:
        """One tensor on the CPU, as it is stored."""
        path = self.names[name]
        if path is None:
            return self._given[name].detach().to("cpu")
        held = self._open[path]
        return held[name] if isinstance(held, dict) else held.get_tensor(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, without reading it."""
        path = self.names[name]
        held = self._given if path is None else self._open[path]
        return tuple(
            held[name].shape if isinstance(held, dict) else held.get_slice(name).get_shape()
        )

    def _open_file(self, path: str) -> None:
        if path.endswith(".safetensors"):
            from safetensors import safe_open

            checkpoint.read_header(path)  # a damaged file is named in the lab's own words
            held = self._stack.enter_context(safe_open(path, framework="pt"))
            names = list(held.keys())
        elif path.endswith(".gguf"):
            unpacked = self._unpacked(path)
            if unpacked is None:
                return
            held, names = unpacked, list(unpacked.keys())
            self.conversions, self.is_unpacked = unpacked.conversions, True
        else:
            held = _unpickled(path)
            names = list(held)
        self._open[path] = held
        self.names.update(dict.fromkeys(names, path))

    def _unpacked(self, path: str) -> gguf_sources.Held | None:
        """A GGUF file as the library unpacks it; where it can't be, the reason is noted."""
        if self._model is None:
            self.unread[path] = "in a GGUF file, which is unpacked by the model that it is for"
            return None
        try:
            return gguf_sources.opened(path, self._model)
        except ImportError:
            self.unread[path] = gguf_sources.MISSING
        except Exception as error:  # the library may raise anything
            self.unread[path] = f"in a GGUF file that could not be unpacked again: {error!r}"
        return None


def _unpickled(path: str) -> dict[str, Any]:
    """A pickled state dict, mapped into memory where its format allows it; plain tensors only."""
    import torch

    for is_mapped in (True, False):
        try:
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=is_mapped)
            break
        except (RuntimeError, ValueError) as error:
            if is_mapped:
                continue  # the format before torch 1.6 can't be mapped
            raise CheckpointError(
                phrase("errors.weights_unreadable", file=Path(path).name, why=error)
            ) from error
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise CheckpointError(
                phrase("errors.weights_unreadable", file=Path(path).name, why=error)
            ) from error
    if not isinstance(held, dict):
        raise CheckpointError(
            phrase("errors.no_state_dict", file=Path(path).name, kind=type(held).__name__)
        )
    return _tensors(held)


def _tensors(held: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if hasattr(value, "element_size")}


def with_bar(steps: list[Any], what: str) -> Iterator[Any]:
    """The steps one by one, with a bar where they take longer than a second."""
    from tqdm.auto import tqdm

    yield from tqdm(steps, desc=what, delay=1, leave=False)


def weight_files(folder: str | os.PathLike[str]) -> list[str]:
    """The weight files that the library would load from a folder, or the one file given.

    Raises:
        CheckpointError: there is no such place, or no weights in it.
    """
    root = Path(folder)
    if root.is_file():
        return _shards(root) if root.name.endswith(".index.json") else [str(root)]
    if not root.is_dir():
        raise CheckpointError(phrase("errors.no_weights_place", path=root))
    for name in _WEIGHTS:
        for path in (root / name, root / f"{name}.index.json"):
            if path.exists():
                return weight_files(path)
    found = [*root.glob("*.safetensors.index.json")] or [*root.glob("*.safetensors")]
    found = found or [*root.glob("*.gguf")]
    if len(found) != 1:
        named = ", ".join(sorted(path.name for path in found)) or phrase("errors.none")
        raise CheckpointError(
            phrase("errors.no_weights_name", path=root, known=", ".join(_WEIGHTS), others=named)
        )
    return weight_files(found[0])


def _shards(index: Path) -> list[str]:
    try:
        shards = dict.fromkeys(json.loads(index.read_text("utf-8"))["weight_map"].values())
        paths = [index.parent / name for name in sorted(shards)]
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CheckpointError(
            phrase("errors.no_usable_index", file=index.name, why=repr(error))
        ) from error
    absent = [path.name for path in paths if not path.exists()]
    if absent:
        raise CheckpointError(
            phrase(
                "errors.shards_absent",
                file=index.name,
                number=len(absent),
                folder=index.parent,
                names=", ".join(absent[:5]),
            )
        )
    return [str(path) for path in paths]
