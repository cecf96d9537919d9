"""How a seeded fault, its clean twin and a healthy run are entered; tests and the score run them.

A case is a function of a `Bench` that gives what the doctor shall look at: a folder's path, a
Trace, or a live model with its processor. It makes the fault for real, with the library, as small
as it can be. Files of cases stand in `faults/`, one a stage; importing them enters their cases.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import transformers
from diagnosis.bench import Bench

from tracer.diagnosis.examine import doctor
from tracer.diagnosis.findings import Findings
from tracer.inspection import Inspection, inspect
from tracer.trace import Trace
from tracer.views.labels import is_missing

Kind = Literal["fault", "clean", "healthy"]
Make = Callable[[Bench], Any]

GENERATION = int(transformers.__version__.partition(".")[0])


def dtype_as(dtype: Any) -> dict[str, Any]:
    """The argument of `from_pretrained` that asks for a dtype, under this release's name."""
    return {"dtype" if GENERATION >= 5 else "torch_dtype": dtype}


@dataclasses.dataclass(frozen=True)
class Case:
    """One run that the doctor is tried on.

    Attributes:
        name: Name of its function.
        kind: `fault`: the doctor must find `rules`. `clean`: the same without the fault; the
            doctor must not. `healthy`: nothing is wrong at all.
        rules: Ids that must be found (fault), or must not (clean).
        also: Ids that are true beside it: no false alarm, and not asked for.
        generations: Of transformers, in which the case can be made.
        make: The function.
        file: Name of the file in `faults/` that it stands in.
    """

    name: str
    kind: Kind
    rules: tuple[str, ...]
    also: tuple[str, ...]
    generations: tuple[int, ...]
    make: Make
    file: str

    def findings(self, bench: Bench) -> Findings:
        """What the doctor says of it."""
        return asked(self.make(bench))

    def missed(self, findings: Findings) -> list[str]:
        """Rules that should have found something."""
        found = {one.rule for one in findings}
        return [rule for rule in self.rules if rule not in found] if self.kind == "fault" else []

    def false_alarms(self, findings: Findings) -> list[str]:
        """Rules that found what is not so."""
        allowed = {*self.also, *(self.rules if self.kind == "fault" else ())}
        return list(dict.fromkeys(one.rule for one in findings if one.rule not in allowed))


def asked(made: Any) -> Findings:
    """What the doctor says of what a case made."""
    return doctor(*made) if isinstance(made, tuple) else doctor(made)


def rows_not_there(made: Any, findings: Findings) -> list[str]:
    """Rows of evidence that a reader would look for in vain, by the rule that names them."""
    is_folder = isinstance(made, Path | Inspection)
    if is_folder:
        inspection = made if isinstance(made, Inspection) else inspect(made)
        frames = {name: inspection.frame(name) for name in ("problems", "tensors")}
    elif isinstance(made, Trace):
        frames = {name: made[name] for name in made.tables}
    else:
        return []  # a live model has no tables
    return [
        f"{one.rule}: {row.table} {dict(row.key)}"
        for one in findings
        for row in one.evidence
        if (row.table in frames or not is_folder) and row.table != "manifest"
        if row.table not in frames or not _is_there(frames[row.table], row.key)
    ]


def _is_there(frame: pd.DataFrame, key: Mapping[str, Any]) -> bool:
    found = pd.Series(True, frame.index)
    for name, value in key.items():
        column = frame[name]
        found &= column.isna() if is_missing(value) else column.eq(value).fillna(False)
    return bool(found.any())


CASES: list[Case] = []


def fault(
    *rules: str, also: tuple[str, ...] = (), generations: tuple[int, ...] = (4, 5)
) -> Callable[[Make], Make]:
    """A seeded fault of these rules."""
    return _entered("fault", rules, also, generations)


def clean(
    *rules: str, also: tuple[str, ...] = (), generations: tuple[int, ...] = (4, 5)
) -> Callable[[Make], Make]:
    """The twin of a fault: as close to it as can be, and nothing wrong."""
    return _entered("clean", rules, also, generations)


def healthy(
    *, also: tuple[str, ...] = (), generations: tuple[int, ...] = (4, 5)
) -> Callable[[Make], Make]:
    """A run of which nothing is to be found."""
    return _entered("healthy", (), also, generations)


def _entered(
    kind: Kind, rules: tuple[str, ...], also: tuple[str, ...], generations: tuple[int, ...]
) -> Callable[[Make], Make]:
    def enter(make: Make) -> Make:
        function = getattr(make, "func", make)  # of a partial one
        file = function.__module__.rpartition(".")[2]
        CASES.append(Case(make.__name__, kind, rules, also, generations, make, file))
        return make

    return enter


def all_cases() -> list[Case]:
    """Every case that can be made on this release, stage by stage."""
    for path in sorted((Path(__file__).parent / "faults").glob("*.py")):
        importlib.import_module(f"diagnosis.faults.{path.stem}")
    return [case for case in CASES if GENERATION in case.generations]
