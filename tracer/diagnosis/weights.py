"""Rules on where a finished model's values came from: random, of another shape, misnamed.

A parameter is told under the one cause that explains it best: a shape that does not fit, another
name in the file, a head that the Auto class adds, or else that no file holds it.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.placed import (
    class_of,
    explained_parameters,
    misfit_parameters,
    misfit_tensors,
    model_title,
    other_names,
    placed_by_model,
    random_parameters,
    share,
)
from tracer.diagnosis.rules import Answers, rule
from tracer.inspecting.othernames import NameRule, numbered
from tracer.inspecting.wrappers import mapping_text
from tracer.schema import NESTED_FILE
from tracer.trace import Trace
from tracer.views import labels

_TASKS: Final = "huggingface/transformers#46881"
_NAMES: Final = "QwenLM/Qwen3-VL#1195, illuin-tech/colpali#414"


@rule("weights_initialised", "fatal", "trace", _TASKS)
def weights_initialised(trace: Trace) -> Answers:
    """Parameters that no file held, and that nothing better explains."""
    nested = set(_nested(trace)["call"])
    for model, placed in placed_by_model(trace):
        random = random_parameters(placed[~placed["call"].isin(nested)])
        other = misfit_parameters(trace, model) | explained_parameters(trace, model, placed)
        rest = random[~random["param"].isin(other)]
        rest = rest[~_in_new_head(placed, rest)] if len(rest) else rest
        if len(rest):
            parameters = placed[placed["kind"] == "parameter"]
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(rest),
                    "whole": len(parameters),
                    "share": share(rest, parameters),
                    "first": rest["param"].iloc[0],
                },
                rows_of("placements", rest, "origin", "because", "shape"),
            )


@rule("weights_nested", "fatal", "trace")
def weights_nested(trace: Trace) -> Answers:
    """A `.bin` whose tensors lie one level down, so that no load finds them."""
    faults = _nested(trace)
    if len(faults):
        placed = trace["placements"]
        random = random_parameters(placed[placed["call"].isin(faults["call"])])
        files = faults["target"].drop_duplicates().tolist()
        yield Found(
            {"files": files},
            rows_of("faults", faults, "target", "reason")
            + rows_of("placements", random, "origin", "because", "shape"),
        )


def _nested(trace: Trace) -> pd.DataFrame:
    faults = trace["faults"]
    return faults[faults["reason"].fillna("").str.contains(NESTED_FILE, regex=False)]


@rule("head_random", "fatal", "trace")
def head_random(trace: Trace) -> Answers:
    """A top-level part that the class asked for and the checkpoint was saved without."""
    for model, placed in placed_by_model(trace):
        random = random_parameters(placed)
        other = misfit_parameters(trace, model) | explained_parameters(trace, model, placed)
        random = random[~random["param"].isin(other)]
        head = random[_in_new_head(placed, random)] if len(random) else random
        if len(head):
            held = trace["checkpoint_tensors"]
            extra = held[(held["model"] == model) & (held["fate"] == "unexpected")]
            yield Found(
                {
                    "model": model_title(trace, model),
                    "class_name": class_of(trace, model),
                    "parts": sorted({name.partition(".")[0] for name in head["param"]}),
                    "count": len(head),
                    "extra": extra["key"].tolist() or None,
                },
                rows_of("placements", head, "origin", "because", "shape")
                + rows_of("checkpoint_tensors", extra, "fate", "because"),
            )


@rule("weights_mismatched", "fatal", "trace")
def weights_mismatched(trace: Trace) -> Answers:
    """Tensors that the library refused for their shape."""
    for call, own in misfit_tensors(trace).groupby("call", sort=False):
        params = own["param"]
        placed = trace["placements"]
        placed = placed[(placed["call"] == call) & placed["param"].isin(params)]
        first = own.iloc[0]
        built = trace["meta_params"]  # told before a load that fails
        expected = built.loc[(built["call"] == call) & (built["param"] == params.iloc[0]), "shape"]
        yield Found(
            {
                "count": len(own),
                "first": params.iloc[0],
                "stored": labels.shape_label(first["shape"]),
                "expected": labels.shape_label(expected.iloc[0]) if len(expected) else None,
            },
            rows_of("checkpoint_tensors", own, "shape", "fate", "because")
            + rows_of("placements", placed, "expected_shape", "origin", "because"),
        )


@rule("weights_prefixed", "fatal", "trace", _NAMES)
def weights_prefixed(trace: Trace) -> Answers:
    """Parameters that are random although the file holds them under other names."""
    for model, placed in placed_by_model(trace):
        others = other_names(trace, model, placed)
        rules = [one for one in others.rules if one.wrapper is None]
        if rules:
            stored, expected = _difference(rules[0])
            found = _misnamed(trace, model, placed, rules)
            yield Found({**found.values, "stored": stored, "expected": expected}, found.evidence)


@rule("weights_wrapped", "fatal", "trace", "pytorch/pytorch#101107, huggingface/peft#2945")
def weights_wrapped(trace: Trace) -> Answers:
    """Parameters that are random since a wrapper wrote its own words into the file's names."""
    for model, placed in placed_by_model(trace):
        others = other_names(trace, model, placed)
        rules = [one for one in others.rules if one.wrapper is not None]
        if rules:
            makers = dict.fromkeys(one.wrapper.maker for one in rules if one.wrapper)
            found = _misnamed(trace, model, placed, rules)
            words = [one.stored for one in rules]
            told: dict[str, Any] = {"makers": list(makers), "words": words}
            told |= {"mapping": mapping_text(one.wrapper for one in rules if one.wrapper)}
            yield Found({**found.values, **told}, found.evidence)


def _misnamed(trace: Trace, model: str, placed: pd.DataFrame, rules: list[NameRule]) -> Found:
    """What all findings on misnamed parameters tell, and their rows."""
    names = {param: key for one in rules for param, key in one.pairs.items()}
    lost = placed[placed["param"].isin(names)]
    lost = lost.assign(in_the_file=[names[name] for name in lost["param"]])
    param, key = next(iter(names.items()))
    values: dict[str, Any] = {
        "model": model_title(trace, model),
        "count": len(names),
        "share": share(lost, placed[placed["kind"] == "parameter"]),
        "key": key,
        "param": param,
    }
    return Found(values, rows_of("placements", lost, "in_the_file", "origin", "because"))


def _difference(one: NameRule) -> tuple[str, str]:
    """What differs between names: the words inside, or what stands before their shared end."""
    if one.is_inside:
        return one.stored, one.expected
    param, key = next(iter(one.pairs.items()))
    theirs, ours = key.split("."), param.split(".")
    while len(theirs) and len(ours) and theirs[-1] == ours[-1]:
        theirs.pop()
        ours.pop()
    before = [".".join([*parts, ""]) if parts else "" for parts in (theirs, ours)]
    (stored, first), (expected, second) = map(numbered, before)
    return (stored, expected) if first == second else (before[0], before[1])


def _in_new_head(placed: pd.DataFrame, random: pd.DataFrame) -> pd.Series[bool]:
    """Whether a parameter lies in a top-level part of which no file held anything.

    Where more than half of the model is random, it is no matter of a head.
    """
    parts = placed["param"].str.partition(".")[0]
    is_known = placed["origin"].isin(["checkpoint", "converted", "tied"])
    held = set(parts[is_known & (placed["kind"] == "parameter")])
    inside = ~random["param"].str.partition(".")[0].isin(held)
    return inside & (len(random) * 2 < int((placed["kind"] == "parameter").sum()))
