"""Names and shapes of a built model against those of the files: what is held, lacking, different.

Given a model on meta and what headers and index name; nothing is read here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tracer import problems
from tracer.explain.sentences import phrase
from tracer.formats.entries import TensorEntry, dtype_name
from tracer.inspecting.othernames import NameRule, name_rules
from tracer.problems import Problem, named
from tracer.views.labels import share_label

if TYPE_CHECKING:
    from tracer.instrument.loads.renames import Renamed


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


def compared(
    model: Any, entries: Mapping[str, TensorEntry], files: Mapping[str, str]
) -> tuple[list[Param], list[Key], list[NameRule], list[Problem]]:
    """Parameters, tensors of the files, prefix rules between them, and what does not fit.

    Args:
        model: A `PreTrainedModel` on meta.
        entries: What headers say, by tensor name.
        files: File of every name that a load would find.
    """
    from tracer.instrument.loads import renames
    from tracer.instrument.loads.named_tensors import named_tensors

    tensors = named_tensors(model)
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
    stored = {key: one.shape for key, one in entries.items()}
    rules = name_rules(missing, unexpected, (shapes, stored))
    return params, keys, rules, list(_differences(params, keys, rules))


def dtype_of(tensor: Any) -> str:
    """`bfloat16` of a tensor."""
    return str(tensor.dtype).removeprefix("torch.")


def _tied(tensors: list[Any], sources: Mapping[str, Any]) -> dict[str, str]:
    """Each name that stands for another's tensor, to the name that the files hold, or the first."""
    from tracer.instrument.loads.named_tensors import shared_names

    found: dict[str, str] = {}
    for names in shared_names(tensors):
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


def _differences(params: list[Param], keys: list[Key], rules: list[NameRule]) -> Iterator[Problem]:
    whole = sum(math.prod(one.shape) for one in params if one.kind == "parameter") or 1
    sizes = {one.param: math.prod(one.shape) for one in params}
    explained: set[str] = set()
    for rule in rules:
        explained |= rule.pairs.keys() | set(rule.pairs.values())
        values = sum(sizes[name] for name in rule.pairs)
        yield problems.problem(
            "other_prefix",
            phrase(
                "folders.other_prefix",
                parameters=len(rule.pairs),
                rule=rule.told,
                share=share_label(values, whole),
            ),
            key=next(iter(rule.pairs)),
            expected=rule.expected,
            found=rule.stored,
        )
    missing = [one for one in params if one.status == "missing" and one.param not in explained]
    if missing:
        values = sum(sizes[one.param] for one in missing)
        yield problems.problem(
            "missing",
            phrase(
                "folders.missing",
                parameters=len(missing),
                share=share_label(values, whole),
                names=named(one.param for one in missing),
            ),
            key=missing[0].param,
            expected=len(missing),
            found=0,
            missing_bytes=sum(one.size_bytes for one in missing),
        )
    unexpected = [one for one in keys if one.status == "unexpected" and one.key not in explained]
    if unexpected:
        yield problems.problem(
            "unexpected",
            phrase(
                "folders.unexpected",
                tensors=len(unexpected),
                names=named(one.key for one in unexpected),
            ),
            key=unexpected[0].key,
            expected=0,
            found=len(unexpected),
        )
    for key in keys:
        if key.status == "mismatched":
            shapes: dict[str, Any] = {
                "expected": str(list(key.expected_shape or ())),
                "found": str(list(key.stored_shape or ())),
            }
            told = phrase("folders.mismatched", key=key.key, params=named(key.params), **shapes)
            yield problems.problem("mismatched", told, file=key.file, key=key.key, **shapes)
