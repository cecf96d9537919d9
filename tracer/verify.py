"""`audit_model()`: is a live model what its files say it is?

Every parameter and buffer is compared with its source by content, after the library's own renaming
and conversion, one at a time and on the CPU. The model, its answers and the random generators stay
as they are. The same comparison runs at the end of a load with `record(verify_weights=True)`.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from tracer.audit import COLUMNS
from tracer.auditing.source import Finding, counted, told
from tracer.errors import MissingPackageError
from tracer.explain import text
from tracer.explain.sentences import Recorded, phrase, recorded, then

if TYPE_CHECKING:
    from tracer.instrument.verifying.verdicts import Verdict


def audit_model(
    model: Any,
    folder: str | os.PathLike[str] | Mapping[str, Any],
    *,
    key_mapping: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Compare a live model with the checkpoint that it was loaded from.

    Args:
        model: A transformers model, on any device, offloaded or not. It is not moved or changed.
        folder: The folder, one weight file or an index of shards; or a state dict. The library's
            own choice is made among the files of a folder: safetensors before `.bin`. A GGUF file
            is unpacked by the library's own reader, which needs the package gguf.
        key_mapping: The argument of that name that `from_pretrained` was given, if it was.

    Raises:
        CheckpointError: `folder` holds no weights that can be read.
        MissingPackageError: torch or transformers is not installed.
        TypeError: `model` is no transformers model.

    Returns:
        Rows like those of `Trace.audit()`: `check`, `verdict` (holds, broken, not applicable),
        `expected`, `found`, and `evidence`, a JSON list that names each parameter and what is
        wrong with it, of which the first 100 are given.
    """
    for package in ("torch", "transformers", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(phrase("errors.audit_needs", package=package))
    from tracer.instrument.loads.renames import passed_over
    from tracer.instrument.verifying import unpacking
    from tracer.instrument.verifying.comparing import compare
    from tracer.instrument.verifying.sources import Sources, weight_files

    bare = _uncompiled(_bare(model))
    given = folder if isinstance(folder, Mapping) else None
    files = [] if isinstance(folder, Mapping) else weight_files(folder)
    with Sources(files, given, model=bare) as sources:
        own = unpacking.conversions(bare, unpacking.stored_as(files), key_mapping)
        verdicts = compare(bare, sources, key_mapping=key_mapping, conversions=own)
        taken = {key for each in verdicts for key in each.keys}
        unused = [name for name in sources.names if name not in taken]
    unasked, _ = passed_over(bare)
    findings = _findings(verdicts, unused, unasked)
    return pd.DataFrame([finding.row() for finding in findings], columns=COLUMNS)


def _uncompiled(module: Any) -> Any:
    """The module without a compiler's wrapper anywhere below it, whose names no file knows.

    Where there is one, a copy that shares every tensor and every other child with the module.
    """
    module = getattr(module, "_orig_mod", module)
    held = module._modules
    bare = {name: child if child is None else _uncompiled(child) for name, child in held.items()}
    if all(bare[name] is child for name, child in held.items()):
        return module
    twin = copy.copy(module)
    vars(twin)["_modules"] = bare
    return twin


def _bare(model: Any) -> Any:
    """The transformers model inside what a compiler or an adapter wrapped round it."""
    from transformers import PreTrainedModel

    inner = getattr(model, "_orig_mod", model)
    get_base = getattr(inner, "get_base_model", None)
    inner = get_base() if callable(get_base) else inner
    if not isinstance(inner, PreTrainedModel):
        raise TypeError(text("errors.audit_subject", kind=type(model).__name__))
    return inner


def _findings(
    verdicts: list[Verdict], unused: list[str], unasked: re.Pattern[str] | None
) -> Iterator[Finding]:
    """The checks; names that the class itself expects in no file are none that is lacking."""
    from tracer.instrument.verifying.verdicts import IN_NO_FILE, ON_META

    lost = [each for each in verdicts if each.because == ON_META]
    random = [
        each
        for each in verdicts
        if each.because == IN_NO_FILE and not (unasked and unasked.search(each.param))
    ]
    parameters = [each for each in verdicts if each.kind == "parameter"]
    found = counted("live", len(verdicts), len(lost))
    yield Finding("2 none left on meta", found, _named(lost), len(verdicts), "live_on_meta")
    found = counted("in_files", len(parameters), len(random))
    if unused:
        found = then(found, told("unused", number=len(unused)))
    yield Finding("2 every parameter is in a file", found, _named(random), len(parameters))
    tied = [each for each in parameters if each.against == "memory"]
    alone = [each for each in parameters if each.against != "memory"]
    yield _judged("4 parameters = sources", alone)
    yield _judged("4 buffers = sources", [each for each in verdicts if each.kind == "buffer"])
    yield _judged("4 ties", tied)


def _judged(check: str, verdicts: list[Verdict]) -> Finding:
    bad = [each for each in verdicts if each.verdict == "different"]
    left = Counter(each.because for each in verdicts if each.verdict == "not compared")
    judged = len(verdicts) - left.total()
    found = then(
        counted("compared", judged, len(bad)),
        *(told("not_compared", number=times, why=recorded(why)) for why, times in left.items()),
    )
    return Finding(check, found, _named(bad), judged)


def _named(verdicts: list[Verdict]) -> list[Recorded]:
    return [recorded(each.because, each.param) for each in verdicts]
