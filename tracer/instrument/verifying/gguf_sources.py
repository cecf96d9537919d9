"""Tensors of a GGUF file as a load unpacks them: by the library's own functions, one at a time.

Two readers of the library are asked here. One (all releases) dequantises each tensor, hands it to a
processor of the architecture and renames it; the other (some architectures, since release 5) leaves
the file's names and has conversions for everything. Read in transformers 5.24.0, 4.57.6 and 4.51.3,
modeling_gguf_pytorch_utils.py and integrations/gguf.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from tracer.instrument.targets import GGUF_LAZY, GGUF_READER, QUANTISER

MISSING = "in a GGUF file, and the package gguf, which unpacks it, is not installed"


class Held(Protocol):
    """What a file of tensors answers, as an open safetensors file does."""

    conversions: list[Any] | None
    """The library's own for this file; None where the model's own are in force."""

    def keys(self) -> Iterator[str]:
        """Names of its tensors."""

    def get_tensor(self, name: str) -> Any:
        """One tensor."""

    def get_slice(self, name: str) -> Form:
        """Its shape, without reading it anew."""


class Form(NamedTuple):
    """The shape of a tensor that is not read."""

    shape: tuple[int, ...]

    def get_shape(self) -> tuple[int, ...]:
        """As a slice of safetensors says it."""
        return self.shape


def opened(path: str, model: Any) -> Held:
    """The tensors of a file, under the names that this model's load gives them.

    Raises:
        ImportError: the package gguf is not installed.
        Exception: whatever the library raises when it reads the file.
    """
    lazy = _LazilyRead.of(path, model)
    return lazy if lazy is not None else _Unpacked(path, model)


class _Unpacked:
    """Blocks dequantised, turned round and merged by the architecture's processor, and renamed."""

    conversions: list[Any] | None = None

    def __init__(self, path: str, model: Any) -> None:
        self._library = importlib.import_module(GGUF_READER)
        self._gguf = importlib.import_module("gguf")
        # Since release 5 they are cast as they are unpacked.
        self._dtype = getattr(getattr(model, QUANTISER, None), "dtype", None)
        told = self._library.load_gguf_checkpoint(path, return_tensors=False)
        reader = self._gguf.GGUFReader(path)
        architecture = self._library.read_field(reader, "general.architecture")[0]
        kind = self._library.TENSOR_PROCESSORS.get(architecture, self._library.TensorProcessor)
        self._processor = kind(config=told["config"])
        ask = self._library.get_gguf_hf_weights_map
        takes_processor = "processor" in inspect.signature(ask).parameters
        self._names: dict[str, str] = ask(model, self._processor) if takes_processor else ask(model)
        self._parts: dict[str, list[Any]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for tensor in reader.tensors:
            made = self._made([tensor]) or {tensor.name: self._values(tensor)}
            for name, values in made.items():
                self._parts.setdefault(name, []).append(tensor)
                self._shapes[name] = tuple(values.shape)

    def keys(self) -> Iterator[str]:
        """The library's names; one that it has no name for keeps the file's."""
        return iter(self._parts)

    def get_slice(self, name: str) -> Form:
        """The shape that unpacking gave it."""
        return Form(self._shapes[name])

    def get_tensor(self, name: str) -> Any:
        """Unpacked anew; of a merged one all parts."""
        torch, numpy = importlib.import_module("torch"), importlib.import_module("numpy")
        parts = self._parts[name]
        made = self._made(parts)
        values = made[name] if name in made else self._values(parts[0])
        # A view of the file's pages can't be written, of which torch warns.
        tensor = values if torch.is_tensor(values) else torch.from_numpy(numpy.array(values))
        return tensor if self._dtype is None else tensor.to(self._dtype)

    def _values(self, tensor: Any) -> Any:
        return self._gguf.dequantize(tensor.data, tensor.tensor_type)

    def _made(self, tensors: list[Any]) -> dict[str, Any]:
        """What the library makes of these tensors, by its names for it."""
        parsed: dict[str, Any] = {"tensors": {}}  # where processors that merge put what they merge
        for tensor in tensors:
            result = self._processor.process(
                weights=self._values(tensor),
                name=tensor.name,
                tensor_key_mapping=self._names,
                parsed_parameters=parsed,
            )
            if result.name in self._names:
                parsed["tensors"][self._names[result.name]] = result.weights
        found: dict[str, Any] = parsed["tensors"]
        return found


class _LazilyRead:
    """The file's own names and bytes; conversions unpack, turn round and rename them."""

    def __init__(self, library: Any, header: Any, model: Any) -> None:
        utils = importlib.import_module(f"{GGUF_LAZY}.utils")
        self._tensors: dict[str, Any] = library.load_gguf_state_dict(header)
        quantizer = getattr(model, QUANTISER, None)
        dtype = getattr(quantizer, "dtype", None) or model.dtype
        kept = getattr(quantizer, "packed_modules", None) or ()
        mapping = utils.get_gguf_conversion_mapping(header.architecture, model.config)
        blocks = utils.get_gguf_plan(header, mapping)[0]
        unpacked = {name: form for name, form in blocks.items() if name not in kept}
        self.conversions: list[Any] | None = utils.add_gguf_load_ops(
            mapping, unpacked, header, dtype
        )

    @classmethod
    def of(cls, path: str, model: Any) -> _LazilyRead | None:
        """A file of an architecture that the library reads so; None for any other."""
        try:
            library = importlib.import_module(f"{GGUF_LAZY}.reader")
            utils = importlib.import_module(f"{GGUF_LAZY}.utils")
        except ImportError:  # before release 5
            return None
        metadata, _ = library.read_gguf_metadata(path)
        if not utils.is_gguf_arch_supported(metadata["general.architecture"]):
            return None
        return cls(library, library.GgufHeader.from_file(path), model)

    def keys(self) -> Iterator[str]:
        """The file's names."""
        return iter(self._tensors)

    def get_slice(self, name: str) -> Form:
        """Of a quantised tensor the shape of its bytes."""
        return Form(tuple(self._tensors[name].shape))

    def get_tensor(self, name: str) -> Any:
        """Values as the file writes them, of a quantised tensor its blocks."""
        return self._tensors[name][...]
