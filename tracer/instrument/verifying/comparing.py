"""A live model against its sources: one verdict for every parameter and buffer, by content.

One tensor is read, cast, converted and compared at a time, on the CPU; nothing of the model is
moved, changed or kept. Called when a load ends (`verification.py`) and by `tracer.audit_model`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

from tracer.explain import text
from tracer.instrument.loads.named_tensors import named_tensors, shared_names, without_adapter
from tracer.instrument.verifying import (
    conversion,
    differences,
    fresh,
    mixups,
    requantised,
    ties,
    unpacking,
)
from tracer.instrument.verifying.conversion import Group
from tracer.instrument.verifying.numbering import Numbered
from tracer.instrument.verifying.sources import Sources, with_bar
from tracer.instrument.verifying.verdicts import (
    DIFFERENT,
    EQUAL,
    IN_NO_FILE,
    NOT_COMPARED,
    Verdict,
    Verdicts,
)


def compare(
    model: Any,
    sources: Sources,
    renamings: Mapping[str, str] | None = None,
    key_mapping: Mapping[str, str] | None = None,
    conversions: list[Any] | None = None,
) -> list[Verdict]:
    """Compare every parameter and buffer of a model, by each of its names.

    Args:
        model: A transformers model, wherever its weights are.
        sources: What it was loaded from.
        renamings: Source to parameter, where a load of generation 4 told it already.
        key_mapping: What the user gave `from_pretrained` under this name.
        conversions: The library's for these sources, where they are not the model's own.
    """
    verdicts = Verdicts(model)
    names = verdicts.persistent
    if sources.conversions is not None:
        own = sources.conversions
        groups = conversion.given(model, names, sources.names, own, are_cast=False)
    elif conversions is not None:
        groups = conversion.given(model, names, sources.names, conversions)
    elif renamings is None:
        groups = conversion.planned(model, names, sources.names, key_mapping)
    else:
        groups = conversion.renamed(renamings, names)
    groups = [*groups, *unpacking.four_bits(names, sources.names)]
    reading = _Reading(sources, verdicts, model)
    for group in with_bar(groups, text("bars.verifying")):
        _compare_group(model, verdicts, group, reading)
    known, no_class = _compare_with_class(model, verdicts)
    ties.judge_shared(verdicts)
    mixups.explain(model, verdicts, groups, sources, reading.cast)
    for name in verdicts.named:
        if name not in verdicts.of:
            _, reason = verdicts.values(name)
            if verdicts.quantiser is not None and name not in known:
                reason = reason or f"made by the quantiser {verdicts.quantiser}"
            verdicts.say(
                name, NOT_COMPARED, reason or _unsourced(verdicts, name, sources, no_class)
            )
    return [verdicts.of[name] for name in verdicts.named]


class _Reading:
    """Sources as a load reads them: cast, and with a count of what the cast did to values."""

    def __init__(self, sources: Sources, verdicts: Verdicts, model: Any) -> None:
        self._sources = sources
        # GGUF's is kept as well, though what it loads are plain values by then.
        is_kept = verdicts.quantiser is not None and not sources.is_unpacked
        self.workshop = requantised.Workshop(model) if is_kept else None
        self._numbered = Numbered(())
        self.new_infinities: int | None = None
        self.new_zeros: int | None = None

    def begin(self, group: Group) -> Numbered:
        """The next reads are for this group."""
        self.new_infinities = self.new_zeros = None
        self._numbered = Numbered(group.keys if group.converter is not None else ())
        return self._numbered

    def cast(self, key: str, dtype: Any) -> Any:
        """A source in another dtype."""
        stored = self._sources.read(key)
        return stored if dtype in (None, stored.dtype) else stored.to(dtype)

    def counted(self, key: str, dtype: Any) -> Any:
        """The same, counting infinities and zeros that were none before."""
        stored = self._sources.read(key)
        cast = stored if dtype in (None, stored.dtype) else stored.to(dtype)
        if cast is not stored and cast.is_floating_point() and stored.is_floating_point():
            torch = sys.modules["torch"]
            before, after = differences.plain(stored), differences.plain(cast)
            infinite = int((torch.isinf(after) & ~torch.isinf(before)).sum())
            self.new_infinities = (self.new_infinities or 0) + infinite
            self.new_zeros = (self.new_zeros or 0) + int(((after == 0) & (before != 0)).sum())
        self._numbered.note(key, cast)
        return cast


def _compare_group(model: Any, verdicts: Verdicts, group: Group, reading: _Reading) -> None:
    """What files hold, after its renaming, cast and conversion."""
    param, keys = verdicts.persistent[group.param], tuple(group.keys)
    numbered = reading.begin(group)
    try:
        if reading.workshop is not None and reading.workshop.takes(group):
            _compare_quantised(verdicts, group, reading.workshop, reading)
            return
        values = group.values(model, reading.counted, verdicts.named[param].tensor.dtype)
    except Exception as error:  # an operation of the library may raise anything
        what = f"what it should hold could not be computed: {error!r}"
        verdicts.say(param, NOT_COMPARED, what, "file", keys)
        return
    for target, expected in values.items():
        name = verdicts.persistent.get(target)
        if name is not None:
            live, reason = verdicts.values(name)
            said = verdicts.say(name, NOT_COMPARED, reason, "file", keys)
            if live is not None:
                parts = verdicts.parts(name, expected)
                said.verdict, said.because = _compared(live, parts, numbered)
                said.new_infinities, said.new_zeros = reading.new_infinities, reading.new_zeros
            if said.verdict == DIFFERENT and verdicts.quantiser and reading.workshop:
                said.verdict = NOT_COMPARED
                said.because = f"quantised by {verdicts.quantiser} as it was loaded"


def _compare_quantised(
    verdicts: Verdicts, group: Group, workshop: requantised.Workshop, reading: _Reading
) -> None:
    """What a quantiser keeps, in its own form or, what it does not quantise, as it is."""
    is_made = workshop.makes(group.param)
    for target, made in workshop.values(group, reading.cast).items():
        name = verdicts.persistent.get(target)
        held = None if name is None else verdicts.held(name)
        if name is None or held is None:
            continue
        live, _ = verdicts.values(name)
        how = f"as {verdicts.quantiser} makes it of what the file holds"
        if live is None:
            wrong = requantised.unlike(held, made)
        else:
            how, is_same = (
                how if is_made else "as the file holds it",
                differences.is_same(live, made),
            )
            wrong = None if is_same else differences.told(live, made)
        said = (EQUAL, how) if wrong is None else (DIFFERENT, wrong)
        verdicts.say(name, *said, "file", tuple(group.keys))


def _compared(live: Any, parts: list[tuple[Any, str]], numbered: Numbered) -> tuple[str, str]:
    for expected, which in parts:
        if differences.is_same(live, expected):
            misplaced = numbered.misplaced(live)
            return (DIFFERENT, misplaced) if misplaced else (EQUAL, f"as the file holds it{which}")
    return DIFFERENT, ""  # mixups.py tells what it is instead


def _compare_with_class(model: Any, verdicts: Verdicts) -> tuple[Collection[str], str | None]:
    """Buffers that no file holds against those of the class built anew, and names that it ties.

    Returns:
        Names that the class knows, and why it could not be built, if it could not; then they are
        the model's own.
    """
    try:
        anew = fresh.built(model)
    except fresh.BusyError:
        return verdicts.named, fresh.BUSY
    except Exception as error:  # a class of the user's may raise anything
        why = f"its class could not be built from its configuration alone: {error!r}"
        return verdicts.named, why
    made = fresh.buffers(anew)
    for name, each in verdicts.named.items():
        value = made.get(without_adapter(name))
        if each.kind == "buffer" and value is not None and name not in verdicts.of:
            _compare_buffer(verdicts, name, value)
    named = named_tensors(anew)
    for group in shared_names(named):
        ties.judge_ties(verdicts, [verdicts.persistent[name] for name in group
                                   if name in verdicts.persistent])  # fmt: skip
    return {each.name for each in named}, None


def _compare_buffer(verdicts: Verdicts, name: str, made: Any) -> None:
    live, reason = verdicts.values(name)
    if live is None:
        verdicts.say(name, NOT_COMPARED, reason, "class")
        return
    expected, which = verdicts.parts(name, made.to(live.dtype))[0]
    if differences.is_same(live, expected):
        verdicts.say(name, EQUAL, f"as the class makes it anew{which}", "class")
    else:
        what = differences.told(live, expected, "what its class makes")
        verdicts.say(name, DIFFERENT, what, "class")


def _unsourced(verdicts: Verdicts, name: str, sources: Sources, no_class: str | None) -> str:
    if sources.unread:
        return "; ".join(sources.unread.values())
    if verdicts.named[name].kind == "buffer":
        return no_class or "in no file, and the class built anew has no such buffer"
    if "lora_" in name:
        return "belongs to an adapter"
    parts = (key for key in sources.names if key.startswith((f"{name}_", f"{name}.")))
    stored = [key for key in parts if key not in verdicts.persistent]
    if stored:
        return f"stored as {', '.join(stored)}, which a quantiser unpacked as it was loaded"
    module, is_part, leaf = name.partition(".parametrizations.")
    whole = f"{module}.{leaf.partition('.')[0]}"
    if is_part and without_adapter(whole) in sources.names:
        return f"{whole} is computed from it, by a parametrization that the files know nothing of"
    return IN_NO_FILE
