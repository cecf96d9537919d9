"""`faults` of a load's folder: what is wrong with its files, and whether there was room in memory.

Headers and index are looked over again, so that the trace names the file and the numbers, whatever
words the library's own error has.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from tracer import checkpoint, machine
from tracer.instrument.loads import resolution
from tracer.instrument.loads.load_notes import Load
from tracer.listing import ADAPTERS, asks_for_gguf, order_of
from tracer.recorder import Recorder
from tracer.survey import Survey, survey_folder


def tell_problems(recorder: Recorder, survey: Survey, call: int | None = None) -> None:
    """A `faults` row for whatever can make a load fail or end with other values."""
    for one in survey.problems:
        if one.level != "note":
            recorder.fault(one.file or survey.folder.name, one.english, call=call)
    if survey.missing_bytes:
        recorder.fault(
            survey.folder.name,
            f"{survey.missing_bytes} bytes of weights are missing from this folder",
            call=call,
        )


def tell_broken(
    recorder: Recorder, asked: Any, arguments: Mapping[str, Any], with_weights: bool
) -> None:
    """What is wrong with a folder of which a configuration, tokenizer or processor did not load.

    The same words are said once, so a model that failed inside the call adds nothing here.
    """
    folder = None if asked is None else resolution.local_folder(recorder, os.fspath(asked))
    if folder is None:
        return
    with recorder.guard("folder that could not be loaded"):
        folder = os.path.join(folder, arguments.get("subfolder") or "")
        order = order_of(arguments)
        survey = survey_folder(folder, order=order)
        beside = {file.path for file in survey.files if file.kind not in {"weights", "index"}}
        own = [one for one in survey.problems if one.file in beside or one.kind == "no_config"]
        # In a GGUF file configuration and tokenizer lie beside the weights.
        if not with_weights and not asks_for_gguf(order):
            survey = dataclasses.replace(survey, problems=own)
        tell_problems(recorder, survey)


def tell_adapter(load: Load, folder: str) -> None:
    """What is wrong with the weights of an adapter that lies in a folder of its own."""
    for path in load.files:
        place, name = os.path.split(path)
        if name in ADAPTERS and place != folder:
            survey = survey_folder(place, order=ADAPTERS, beside=False)
            tell_problems(load.state.recorder, survey)


def tell_misfits(load: Load, headers: Mapping[str, checkpoint.Header]) -> None:
    """Tensors of the files that do not have the shape of the parameter that they are for."""
    if load.quantiser is not None:
        return  # what it packs has other shapes
    found = []
    for path, header in headers.items():
        for key, entry in header.tensors.items():
            plan = load.plans.get(key)
            built = None if plan is None or plan.operations else load.expected.get(plan.param)
            if built is not None and tuple(built.shape) != entry.shape:
                found.append((key, load.name_of(path), list(entry.shape), list(built.shape)))
    if found:
        key, file, have, want = found[0]
        load.state.recorder.fault(
            "config.json",
            f"shapes of {len(found)} tensors are not those that the configuration asks for, such "
            f"as {key} in {file}: {have} there, {want} in the model",
        )


def tell_mapping(load: Load, headers: Mapping[str, checkpoint.Header]) -> None:
    """Patterns and replacements of the user's `key_mapping` that can't be applied to the files."""
    mapping = load.arguments.get("key_mapping")
    if not isinstance(mapping, Mapping):
        return
    keys = [key for header in headers.values() for key in header.tensors]
    for pattern, replacement in mapping.items():
        wrong = _why_no_rule(pattern, replacement, keys)
        if wrong is not None:
            load.state.recorder.fault("key_mapping", wrong)
    many: dict[str, list[str]] = {}
    for key, plan in load.plans.items():
        many.setdefault(plan.param, []).append(key)
    many = {param: named for param, named in many.items() if len(named) > 1}
    for param, named in list(many.items())[:1]:
        load.state.recorder.fault(
            "key_mapping",
            f"key_mapping gives one name to several tensors, {len(many)} times: {param} to "
            f"{', '.join(named)}",
        )


def _why_no_rule(pattern: Any, replacement: Any, keys: list[str]) -> str | None:
    try:
        rule = re.compile(pattern)
    except (re.error, TypeError) as error:
        return f"{pattern!r} of key_mapping is no regular expression: {error}"
    for key in keys:
        try:
            rule.sub(replacement, key)
        except (re.error, IndexError, TypeError) as error:
            return f"{pattern!r} of key_mapping can't turn {key} into {replacement!r}: {error}"
    return None


def tell_room(load: Load, headers: Mapping[str, checkpoint.Header]) -> None:
    """Whether what was still to be placed when the load failed could have had room in memory."""
    # One tensor under two names takes its bytes once, under the first of them.
    expected = {each.identity: each for each in reversed(load.expected.values())}.values()
    needed = sum(each.size_bytes for each in expected if each.name not in load.placed)
    if load.arguments.get("device_map") not in (None, "cpu"):
        return  # what goes where is not decided by the machine's memory alone
    if not load.expected:  # the model was not even built: what the files hold
        entries = (entry for header in headers.values() for entry in header.tensors.values())
        needed = sum(entry.size_bytes for entry in entries)
    room = machine.memory_left()
    if room is not None and needed > room.left_bytes:
        load.state.recorder.fault(
            "memory",
            f"the load failed with {needed} bytes of weights still to be placed, where "
            f"{room.left_bytes} bytes of memory were left ({room.limit})",
        )
