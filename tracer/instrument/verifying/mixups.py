"""What is wrong with parameters that are not what their file holds: whose values they hold instead.

Runs only where something differs. Each value that a file holds or a conversion gives is looked at
once more, one at a time, by its digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracer.explain import text
from tracer.instrument.verifying import differences
from tracer.instrument.verifying.conversion import Group, Read
from tracer.instrument.verifying.sources import Sources, with_bar
from tracer.instrument.verifying.verdicts import Verdicts

Forms = dict[tuple[int, ...], set[Any]]
"""Shapes that are looked for, with the dtypes of each."""


def explain(
    model: Any, verdicts: Verdicts, groups: list[Group], sources: Sources, read: Read
) -> None:
    """Say of each parameter that is not what its file holds what it is instead."""
    wrong = {
        name
        for name, verdict in verdicts.of.items()
        if verdict.against == "file" and verdicts.is_wrong(name) and not verdict.because
    }
    if not wrong:
        return
    instead = _held_instead(model, verdicts, groups, sources, read, wrong)
    for group in groups:
        names = {target: verdicts.persistent.get(target) for target in group.targets()}
        if wrong.isdisjoint(names.values()):
            continue
        dtype = verdicts.named[verdicts.persistent[group.param]].tensor.dtype
        for target, expected in group.values(model, read, dtype).items():
            name = verdicts.persistent.get(target)
            if name in wrong:
                stored = sources.read(group.keys[0]) if group.converter is None else None
                live, _ = verdicts.values(name)
                part, which = verdicts.parts(name, expected)[0]
                what = instead.get(name) or differences.told(live, part, stored=stored)
                verdicts.of[name].because = what + which


def _held_instead(
    model: Any,
    verdicts: Verdicts,
    groups: list[Group],
    sources: Sources,
    read: Read,
    wrong: set[str],
) -> dict[str, str]:
    """Parameters that hold what is meant for another one, in words."""
    wanted: dict[Any, list[str]] = {}
    forms: Forms = {}
    for name in wrong:
        live, _ = verdicts.values(name)
        if not differences.is_constant(live):  # many tensors hold nothing but ones, or zeros
            wanted.setdefault(differences.digest(live), []).append(name)
            forms.setdefault(tuple(live.shape), set()).add(live.dtype)
    found: dict[str, str] = {}
    candidates = [
        *_whole(verdicts, groups, sources),
        *(_converted(model, verdicts, group, read) for group in groups if group.converter),
    ]
    for look in with_bar(candidates if wanted else [], text("bars.mixed_up")):
        for words, value in look(forms):
            for name in wanted.pop(differences.digest(value), ()):
                found[name] = f"holds {words} instead"
    return found


def _whole(verdicts: Verdicts, groups: list[Group], sources: Sources) -> Iterator[Any]:
    """For each source a look at it as it is."""
    param_of = {group.keys[0]: group.param for group in groups if not group.converter}

    def look(key: str, forms: Forms) -> Iterator[tuple[str, Any]]:
        param = verdicts.persistent.get(param_of.get(key, ""))
        words = f"{key} of the file" if param is None else param
        words += f" ({key} of the file)" if param not in (None, key) else ""
        for dtype in forms.get(sources.shape(key), ()):
            yield words, sources.read(key).to(dtype)

    for key in sources.names:
        yield lambda forms, key=key: look(key, forms)


def _converted(model: Any, verdicts: Verdicts, group: Group, read: Read) -> Any:
    """A look at what a conversion gives, where one of its parameters has a form looked for."""
    known = [name for name in group.targets() if name in verdicts.persistent]

    def look(forms: Forms) -> Iterator[tuple[str, Any]]:
        tensors = [verdicts.named[verdicts.persistent[name]].tensor for name in known]
        if any(tensor.dtype in forms.get(tuple(tensor.shape), ()) for tensor in tensors):
            for target, value in group.values(model, read, tensors[0].dtype).items():
                yield verdicts.persistent.get(target, target), value

    return look
