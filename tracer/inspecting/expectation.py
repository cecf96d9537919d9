"""The model as it would be built, against the files: the second part of an inspection, with torch.

The class that the configuration names is built on the meta device, so it has names and shapes and
takes no memory; then the library's own renames are asked which parameter each tensor is for. No
weight is read, no code of the folder is run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tracer import problems
from tracer.environment import require
from tracer.errors import TracerError, UnknownNameError
from tracer.formats.entries import TensorEntry, dtype_name
from tracer.inspecting import words
from tracer.inspecting.fit import chosen_entries, stored_dtype
from tracer.inspecting.placing import Placed, placed_on, room_problems
from tracer.inspecting.prefixes import PrefixRule, prefix_rules
from tracer.problems import Problem, named

if TYPE_CHECKING:
    import pandas

    from tracer.inspection import Inspection
    from tracer.instrument.renames import Renamed

FRAMES: Final = ("params", "keys", "placement", "problems")


@dataclasses.dataclass(frozen=True, slots=True)
class Param:
    """A parameter or buffer of the model as built.

    Attributes:
        status: `held`, `converted`, `mismatched`, `tied`, `missing`, `promised` (an index names it
            for a file that can't be read), `not in a file` (a buffer that the class computes), or
            `unknown` where no name of a file is known.
        sources: Tensors of the file that it is for.
        tied_to: The name that it shares its values with.
    """

    param: str
    kind: str
    status: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    sources: tuple[str, ...]
    operations: tuple[str, ...]
    tied_to: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A tensor of the file or the index, and where it goes.

    Attributes:
        status: `same name`, `renamed`, `converted`, `mismatched`, `unexpected`, or `passed over`
            where the class itself expects to find it and leave it.
    """

    key: str
    file: str | None
    status: str
    params: tuple[str, ...]
    operations: tuple[str, ...]
    stored_dtype: str | None
    stored_shape: tuple[int, ...] | None
    expected_shape: tuple[int, ...] | None


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
        rules: list[PrefixRule],
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
            raise UnknownNameError(f"an expectation has no {name!r}; it has {', '.join(FRAMES)}")
        if name == "problems":
            return words.frame(words.problem_rows(self.problems), words.PROBLEM_COLUMNS)
        form = {"params": Param, "keys": Key, "placement": Placed}[name]
        columns = [field.name for field in dataclasses.fields(form)]
        rows = [words.plain_row(dataclasses.asdict(one)) for one in getattr(self, name)]
        return words.frame(rows, columns)

    def __str__(self) -> str:
        return words.expectation_text(self)

    def __repr__(self) -> str:
        return words.expectation_text(self)

    def _repr_html_(self) -> str:
        return words.expectation_page(self)


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
    require("torch", "transformers", extra="live", purpose="inspection.model()")
    wanted = dtype or stored_dtype(inspection.config) or "float32"
    try:
        model = _built(inspection, model_class, wanted)
    except _NotBuilt as error:
        reason = problems.problem("no_model", str(error), file="config.json")
        return Expectation(None, None, [], [], [], [], [reason])
    entries, stored = _stored(inspection)
    placement = placed_on(model, device_map, max_memory)
    params, keys, rules, found = _compared(model, entries, stored)
    ranks = {"error": 0, "warning": 1, "note": 2}
    found = sorted([*found, *room_problems(placement)], key=lambda one: ranks[one.level])
    return Expectation(type(model).__name__, wanted, params, keys, rules, placement, found)


class _NotBuilt(TracerError):
    """The class can't be found or built; the message says why."""


def _built(inspection: Inspection, model_class: Any, dtype: str) -> Any:
    import torch
    import transformers

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise _NotBuilt(f"{dtype!r} is no dtype of torch")
    named_class = model_class or next(iter(inspection.config.get("architectures") or ()), None)
    if named_class is None:
        raise _NotBuilt("config.json names no architecture; give model_class=")
    is_name = isinstance(named_class, str)
    found: Any = getattr(transformers, named_class, None) if is_name else named_class
    if not hasattr(found, "config_class"):
        raise _NotBuilt(
            f"transformers {transformers.__version__} has no class {named_class}: a newer release "
            "may, or the class is code of the folder, which the lab does not run"
        )
    try:
        config = found.config_class.from_pretrained(inspection.folder)
        with _default_dtype(kind), torch.device("meta"):
            model = found(config)
        model.tie_weights()
    # Whatever a stranger's configuration makes the library raise is an answer, not a crash.
    except Exception as error:
        raise _NotBuilt(f"{named_class} can't be built: {type(error).__name__}: {error}") from error
    return model


@contextlib.contextmanager
def _default_dtype(kind: Any) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _stored(inspection: Inspection) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    """Entries of the headers by name, and the file of every name that a load would find.

    An index is believed only of files whose headers could not be read.
    """
    from tracer.instrument import renames

    survey = inspection.survey
    named = survey.index.weight_map if survey.index else {}
    files = {key: file for key, file in named.items() if file not in survey.headers}
    entries = {}
    for path, entry in chosen_entries(survey):
        if entry.key in named or survey.index is None or not renames.reads_only_the_index():
            entries[entry.key] = entry
            files[entry.key] = path
    return entries, files


def _compared(
    model: Any, entries: Mapping[str, TensorEntry], files: Mapping[str, str]
) -> tuple[list[Param], list[Key], list[PrefixRule], list[Problem]]:
    from tracer.instrument import placements, renames

    tensors = placements.named_tensors(model)
    shapes = {one.name: tuple(one.tensor.shape) for one in tensors}
    goals = renames.renamed(model, files) if files else {}
    sources: dict[str, list[str]] = {}
    for key, goal in goals.items():
        for param in goal.params:
            sources.setdefault(param, []).append(key)
    tied = _tied(tensors, sources)
    absent, extra = renames.passed_over(model)
    persistent = {one.name for one in tensors if one.persistent}
    odd = _mismatched(goals, entries, shapes)
    params = []
    for one in tensors:
        given = tuple(sources.get(one.name, ()))
        status = _status(one.name, given, goals, one.name in persistent, tied, odd)
        if not files and status == "missing":
            status = "unknown"
        if given and not any(key in entries for key in given) and one.name not in tied:
            status = "promised"
        if status == "missing" and absent is not None and absent.search(one.name):
            status = "not in a file"
        params.append(
            Param(
                one.name, one.kind, status, shapes[one.name], dtype_of(one.tensor),
                one.tensor.numel() * one.tensor.element_size(), given,
                goals[given[0]].operations if given else (), tied.get(one.name),
            )
        )  # fmt: skip
    keys = [
        _key(key, goal, files[key], entries.get(key), shapes, persistent, odd, extra)
        for key, goal in goals.items()
    ]
    missing = [one.param for one in params if one.status == "missing"]
    unexpected = [one.key for one in keys if one.status == "unexpected"]
    rules = prefix_rules(missing, unexpected)
    return params, keys, rules, list(_differences(params, keys, rules))


def dtype_of(tensor: Any) -> str:
    """`bfloat16` of a tensor."""
    return str(tensor.dtype).removeprefix("torch.")


def _tied(tensors: list[Any], sources: Mapping[str, Any]) -> dict[str, str]:
    """Each name that stands for another's tensor, to the name that the files hold, or the first."""
    groups: dict[int, list[str]] = {}
    for one in tensors:
        groups.setdefault(id(one.tensor), []).append(one.name)
    found: dict[str, str] = {}
    for names in groups.values():
        source = next((name for name in names if name in sources), names[0])
        found |= {name: source for name in names if name != source}
    return found


def _status(
    name: str,
    given: tuple[str, ...],
    goals: Mapping[str, Renamed],
    is_persistent: bool,
    tied: Mapping[str, str],
    odd: Mapping[str, Any],
) -> str:
    if name in tied:
        return "tied"
    if not is_persistent:
        return "not in a file"
    if not given:
        return "missing"
    if name in odd:
        return "mismatched"
    return "converted" if goals[given[0]].operations else "held"


def _mismatched(
    goals: Mapping[str, Renamed],
    entries: Mapping[str, TensorEntry],
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[str, int]]:
    """Parameters whose tensors have another shape; after a conversion, another number of values.

    Blocks of a quantised format are compared by neither.
    """

    def shape_of(key: str) -> tuple[int, ...]:
        return entries[key].shape

    found: dict[str, tuple[str, int]] = {}
    groups: dict[tuple[str, ...], list[str]] = {}
    for key, goal in goals.items():
        if goal.operations:
            groups.setdefault(goal.params, []).append(key)
        elif key in entries and shapes.get(goal.params[0], shape_of(key)) != shape_of(key):
            found[goal.params[0]] = key, math.prod(shape_of(key))
    for params, keys in groups.items():
        if all(key in entries for key in keys) and all(name in shapes for name in params):
            values = sum(math.prod(entries[key].shape) for key in keys)
            if values != sum(math.prod(shapes[name]) for name in params):
                found |= {name: (keys[0], values) for name in params}
    return found


def _key(
    key: str,
    goal: Renamed,
    file: str,
    entry: TensorEntry | None,
    shapes: Mapping[str, tuple[int, ...]],
    persistent: set[str],
    odd: Mapping[str, Any],
    extra: Any,
) -> Key:
    known = [name for name in goal.params if name in shapes]
    if not any(name in persistent for name in known):
        # A buffer that the class computes itself may lie in old files: read, and not reported.
        is_passed = bool(known) or (extra is not None and extra.search(goal.params[0]) is not None)
        status = "passed over" if is_passed else "unexpected"
    elif any(name in odd for name in known):
        status = "mismatched"
    elif goal.operations:
        status = "converted"
    else:
        status = "same name" if goal.params == (key,) else "renamed"
    return Key(
        key,
        file,
        status,
        goal.params,
        goal.operations,
        dtype_name(entry.dtype) if entry else None,
        entry.shape if entry else None,
        shapes[known[0]] if len(known) == 1 else None,
    )


def _differences(
    params: list[Param], keys: list[Key], rules: list[PrefixRule]
) -> Iterator[Problem]:
    whole = sum(math.prod(one.shape) for one in params if one.kind == "parameter") or 1
    sizes = {one.param: math.prod(one.shape) for one in params}
    explained: set[str] = set()
    for rule in rules:
        explained |= rule.pairs.keys() | set(rule.pairs.values())
        values = sum(sizes[name] for name in rule.pairs)
        yield problems.problem(
            "other_prefix",
            f"{len(rule.pairs)} parameters, {100 * values / whole:.1f} % of the model's values, "
            f"are in the file under another prefix: {rule.sentence}; loaded as it is, these "
            "weights are random",
            key=next(iter(rule.pairs)),
            expected=rule.expected,
            found=rule.stored,
        )
    missing = [one for one in params if one.status == "missing" and one.param not in explained]
    if missing:
        values = sum(sizes[one.param] for one in missing)
        yield problems.problem(
            "missing",
            f"{len(missing)} parameters, {100 * values / whole:.1f} % of the model's values, are "
            f"in no file and would be random: {named(one.param for one in missing)}",
            key=missing[0].param,
            expected=len(missing),
            found=0,
            missing_bytes=sum(one.size_bytes for one in missing),
        )
    unexpected = [one for one in keys if one.status == "unexpected" and one.key not in explained]
    if unexpected:
        yield problems.problem(
            "unexpected",
            f"{len(unexpected)} tensors are for no parameter of the model and are left out: "
            f"{named(one.key for one in unexpected)}",
            key=unexpected[0].key,
            expected=0,
            found=len(unexpected),
        )
    for key in keys:
        if key.status == "mismatched":
            yield problems.problem(
                "mismatched",
                f"{key.key} has the shape {list(key.stored_shape or ())} in the file, "
                f"{named(key.params)} {list(key.expected_shape or ())} in the model: the load "
                "fails, or with ignore_mismatched_sizes=True fills it with random values",
                file=key.file,
                key=key.key,
                expected=str(list(key.expected_shape or ())),
                found=str(list(key.stored_shape or ())),
            )
