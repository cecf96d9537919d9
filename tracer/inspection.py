"""`inspect(folder)`: what can be known of a model folder before any weight is loaded.

Headers, index, configuration, tokenizer and template are read without torch and without running
anything of theirs. `Inspection.model()` is the second part: it builds the model without weights
and sets its names against the files' by the library's own renames; that part needs torch.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracer.errors import UnknownNameError
from tracer.explain.sentences import phrase
from tracer.formats.entries import dtype_name
from tracer.inspecting import words
from tracer.inspecting.fit import DtypeSum, Fit, dtypes_of, fit_problems, fits_of, limit
from tracer.inspecting.tokenizer import TokenizerFacts, read_tokenizer, tokenizer_problems
from tracer.problems import Problem
from tracer.survey import Survey, survey_folder

if TYPE_CHECKING:
    import pandas

    from tracer.inspecting.expectation import Expectation

FRAMES: Final = ("files", "tensors", "dtypes", "problems", "facts", "fit")


def inspect(folder: str | os.PathLike[str]) -> Inspection:
    """Look at a local model folder; no weight is read, no torch imported, nothing run.

    Args:
        folder: Folder as `from_pretrained` takes it.

    Returns:
        An Inspection: print it, show it in a notebook, or take its `.frame(...)`.

    Raises:
        CheckpointError: there is no such folder. All else that is wrong is a row of
            `.frame("problems")`.
    """
    survey = survey_folder(Path(folder).expanduser())
    return Inspection(survey, read_tokenizer(survey), fits_of(survey))


class Inspection:
    """What a model folder says of itself.

    Attributes:
        folder: The folder.
        survey: Files, headers and index as they were read.
        tokenizer: What the tokenizer's files say.
        fits: Weights against memory by dtype, as stored first; estimated.
        problems: All that is wrong, errors first.
    """

    def __init__(self, survey: Survey, tokenizer: TokenizerFacts, fits: list[Fit]) -> None:
        self.folder = survey.folder
        self.survey = survey
        self.tokenizer = tokenizer
        self.fits = fits
        found = [*survey.problems, *tokenizer_problems(survey, tokenizer), *fit_problems(fits)]
        ranks = {"error": 0, "warning": 1, "note": 2}
        self.problems: list[Problem] = sorted(found, key=lambda one: ranks[one.level])

    @property
    def config(self) -> Mapping[str, Any]:
        """`config.json` as it is; empty where it is absent or damaged."""
        return self.survey.settings.get("config.json", {})

    @property
    def missing_bytes(self) -> int:
        """Bytes of weights that index, headers or pointers promise and that are not there."""
        return self.survey.missing_bytes

    @functools.cached_property
    def dtypes(self) -> list[DtypeSum]:
        """Tensors, values and bytes by stored dtype."""
        return dtypes_of(self.survey)

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors that a load would read, as the headers name them."""
        return sum(one.size_bytes for one in self.dtypes)

    @property
    def parameters(self) -> int:
        """Values of all tensors that a load would read, as the headers name them."""
        return sum(one.parameters for one in self.dtypes)

    def model(self, **asked: Any) -> Expectation:
        """Build the model without weights and set its names against those of the files.

        Args:
            **asked: `model_class` (a class of transformers or its name; the first of
                `architectures` where none is given), `dtype` (name), `device_map` and
                `max_memory`, as `from_pretrained` takes them.

        Raises:
            MissingPackageError: torch or transformers is not installed.
        """
        from tracer.inspecting.expectation import expect

        return expect(self, **asked)

    def frame(self, name: str) -> pandas.DataFrame:
        """One part as a table.

        Args:
            name: `files` (every file, whether a load reads it and why not), `tensors` (every
                tensor of every header that a load reads), `dtypes`, `problems`, `facts`
                (configuration, tokenizer and template), `fit` (weights against memory; estimated).

        Raises:
            UnknownNameError: there is no such part.
        """
        if name not in FRAMES:
            raise UnknownNameError(
                phrase("errors.no_part_of_inspection", name=name, known=", ".join(FRAMES))
            )
        return words.frame(getattr(self, f"_{name}")(), _COLUMNS[name])

    def _files(self) -> list[dict[str, Any]]:
        return words.file_rows(self.survey)

    def _tensors(self) -> list[dict[str, Any]]:
        weight_map = self.survey.index.weight_map if self.survey.index else None
        return [
            {
                "file": path,
                "key": entry.key,
                "dtype": dtype_name(entry.dtype),
                "shape": json.dumps(entry.shape),
                "offset_bytes": entry.offset_bytes,
                "size_bytes": entry.size_bytes,
                "in_index": None if weight_map is None else weight_map.get(entry.key) == path,
            }
            for path in self.survey.chosen
            if path in self.survey.headers
            for entry in self.survey.headers[path].tensors.values()
        ]

    def _dtypes(self) -> list[dict[str, Any]]:
        return [dataclasses.asdict(one) for one in self.dtypes]

    def _problems(self) -> list[dict[str, Any]]:
        return words.problem_rows(self.problems)

    def _facts(self) -> list[dict[str, Any]]:
        return words.fact_rows(self.config, self.tokenizer)

    def _fit(self) -> list[dict[str, Any]]:
        return [
            dataclasses.asdict(one)
            | {"limit": one.limit and str(limit(one.limit))}
            | {"basis": str(limit(one.basis))}
            for one in self.fits
        ]

    def __str__(self) -> str:
        return words.text(self)

    def __repr__(self) -> str:
        return words.text(self)

    def _repr_html_(self) -> str:
        return words.page(self)


_COLUMNS: Final = {
    "files": [
        "path", "kind", "format", "size_bytes", "expected_bytes", "tensors", "read", "why_not",
    ],
    "tensors": ["file", "key", "dtype", "shape", "offset_bytes", "size_bytes", "in_index"],
    "dtypes": [field.name for field in dataclasses.fields(DtypeSum)],
    "problems": words.PROBLEM_COLUMNS,
    "facts": ["subject", "fact", "value", "source"],
    "fit": [field.name for field in dataclasses.fields(Fit)],
}  # fmt: skip
