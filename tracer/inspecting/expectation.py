"""The model as it would be built, against the files: the second part of an inspection, with torch.

The class that the configuration names is built on the meta device, so it has names and shapes and
takes no memory; then the library's own renames are asked which parameter each tensor is for. No
weight is read, no code of the folder is run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tracer import problems
from tracer.environment import require
from tracer.errors import TracerError, UnknownNameError
from tracer.explain.sentences import phrase
from tracer.formats.entries import TensorEntry
from tracer.inspecting import expectation_words, words
from tracer.inspecting.comparing import Key, Param, compared
from tracer.inspecting.fit import chosen_entries, stored_dtype
from tracer.inspecting.othernames import NameRule
from tracer.inspecting.placing import Placed, placed_on, room_problems
from tracer.problems import Problem

if TYPE_CHECKING:
    import pandas

    from tracer.inspection import Inspection

FRAMES: Final = ("params", "keys", "placement", "problems")


class Expectation:
    """What a load would find: names against names, and bytes against memory.

    Attributes:
        class_name: Class that was built; None where none could be.
        dtype: dtype that the model was built in.
        params: Parameters, then buffers.
        keys: Tensors of files or index; empty where the folder names none.
        rules: Rules under which missing and unexpected names are the same.
        placement: Bytes by device, predicted for the device map that was asked; estimated.
        problems: All that does not fit, errors first.
    """

    def __init__(
        self,
        class_name: str | None,
        dtype: str | None,
        params: list[Param],
        keys: list[Key],
        rules: list[NameRule],
        placement: list[Placed],
        found: list[Problem],
    ) -> None:
        self.class_name = class_name
        self.dtype = dtype
        self.params = params
        self.keys = keys
        self.rules = rules
        self.placement = placement
        self.problems = found

    @property
    def parameters(self) -> int:
        """Values of all parameters, tied ones once."""
        return sum(math.prod(one.shape) for one in self._own() if one.kind == "parameter")

    @property
    def size_bytes(self) -> int:
        """Bytes of all parameters, tied ones once."""
        return sum(one.size_bytes for one in self._own() if one.kind == "parameter")

    def _own(self) -> Iterator[Param]:
        return (one for one in self.params if one.tied_to is None)

    def names(self, status: str) -> list[str]:
        """Names of the parameters, else of the file's tensors, that have a status."""
        return [one.param for one in self.params if one.status == status] or [
            one.key for one in self.keys if one.status == status
        ]

    def frame(self, name: str) -> pandas.DataFrame:
        """`params`, `keys`, `placement` or `problems` as a table.

        Raises:
            UnknownNameError: there is no such part.
        """
        if name not in FRAMES:
            raise UnknownNameError(
                phrase("errors.no_part_of_expectation", name=name, known=", ".join(FRAMES))
            )
        if name == "problems":
            return words.frame(words.problem_rows(self.problems), words.PROBLEM_COLUMNS)
        form = {"params": Param, "keys": Key, "placement": Placed}[name]
        columns = [field.name for field in dataclasses.fields(form)]
        rows = [words.plain_row(dataclasses.asdict(one)) for one in getattr(self, name)]
        return words.frame(rows, columns)

    def __str__(self) -> str:
        return expectation_words.expectation_text(self)

    def __repr__(self) -> str:
        return expectation_words.expectation_text(self)

    def _repr_html_(self) -> str:
        return expectation_words.expectation_page(self)


def expect(
    inspection: Inspection,
    *,
    model_class: Any = None,
    dtype: str | None = None,
    device_map: Any = "auto",
    max_memory: Mapping[Any, Any] | None = None,
) -> Expectation:
    """Build the model on meta and compare; what can't be built is a problem of its own.

    Args:
        inspection: What the folder holds.
        model_class: A class of transformers, or its name; by default what the configuration names.
        dtype: Name of the dtype; by default the configuration's, else float32.
        device_map: As `from_pretrained` takes it.
        max_memory: As `from_pretrained` takes it; by default what the devices have.

    Raises:
        MissingPackageError: torch or transformers is not installed.
    """
    require("torch", "transformers", extra="live", purpose="expectation")
    wanted = dtype or stored_dtype(inspection.config) or "float32"
    try:
        model = _built(inspection, model_class, wanted)
    except _NotBuilt as error:
        reason = problems.problem("no_model", error.told, file="config.json")
        return Expectation(None, None, [], [], [], [], [reason])
    entries, stored = _stored(inspection)
    placement = placed_on(model, device_map, max_memory)
    params, keys, rules, found = compared(model, entries, stored)
    ranks = {"error": 0, "warning": 1, "note": 2}
    found = sorted([*found, *room_problems(placement)], key=lambda one: ranks[one.level])
    return Expectation(type(model).__name__, wanted, params, keys, rules, placement, found)


class _NotBuilt(TracerError):
    """The class can't be found or built; the message says why."""

    def __init__(self, words: str, **values: Any) -> None:
        self.told = phrase(f"folders.{words}", **values)
        super().__init__(str(self.told))


def _built(inspection: Inspection, model_class: Any, dtype: str) -> Any:
    import torch
    import transformers

    from tracer.instrument.building import default_dtype

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise _NotBuilt("no_dtype", dtype=dtype)
    named_class = model_class or next(iter(inspection.config.get("architectures") or ()), None)
    if named_class is None:
        raise _NotBuilt("no_architecture")
    is_name = isinstance(named_class, str)
    found: Any = getattr(transformers, named_class, None) if is_name else named_class
    if not hasattr(found, "config_class"):
        raise _NotBuilt("no_class", release=transformers.__version__, name=named_class)
    try:
        config = found.config_class.from_pretrained(inspection.folder)
        with default_dtype(kind), torch.device("meta"):
            model = found(config)
        model.tie_weights()
    # Whatever a stranger's configuration makes the library raise is an answer, not a crash.
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise _NotBuilt("not_built", name=named_class, error=why) from error
    return model


def _stored(inspection: Inspection) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    """Entries of the headers by name, and the file of every name that a load would find.

    An index is believed only of files whose headers could not be read.
    """
    from tracer.instrument.loads import renames

    survey = inspection.survey
    named = survey.index.weight_map if survey.index else {}
    files = {key: file for key, file in named.items() if file not in survey.headers}
    entries = {}
    for path, entry in chosen_entries(survey):
        if entry.key in named or survey.index is None or not renames.reads_only_the_index():
            entries[entry.key] = entry
            files[entry.key] = path
    return entries, files
