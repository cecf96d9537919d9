"""Rules on where a finished model's values came from: random, mismatched, tied, left on meta.

A parameter is told under the one cause that explains it best: a shape that does not fit, a prefix,
a head that the Auto class adds, or else that no file holds it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from tracer.diagnosis.finding import Found, Untold, items, rows_of
from tracer.diagnosis.rules import Answers, rule
from tracer.inspecting.prefixes import PrefixRule, numbered, prefix_rules
from tracer.schema import SHAPE_MISFIT
from tracer.trace import Trace
from tracer.views import labels

_TASKS: Final = "huggingface/transformers#46881"
_TIES: Final = "huggingface/transformers#3799, huggingface/transformers#26173"
_FLOATS: Final = ("float64", "float32", "bfloat16", "float16")
_OWN_STORAGE: Final = "yet it has its own storage"
_THEN_TIED: Final = re.compile(r"then tied to (\S+)")


@rule("weights_initialised", "fatal", "trace", _TASKS)
def weights_initialised(trace: Trace) -> Answers:
    """Parameters that no file held, and that nothing better explains."""
    for model, placed in placed_by_model(trace):
        random = _random(placed)
        other = _misfit_params(trace, model) | _explained(trace, model, placed)
        rest = random[~random["param"].isin(other)]
        rest = rest[~_in_new_head(placed, rest)] if len(rest) else rest
        if len(rest):
            parameters = placed[placed["kind"] == "parameter"]
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(rest),
                    "whole": len(parameters),
                    "share": _share(rest, parameters),
                    "first": rest["param"].iloc[0],
                },
                rows_of("placements", rest, "origin", "because", "shape"),
            )


@rule("head_random", "fatal", "trace")
def head_random(trace: Trace) -> Answers:
    """A top-level part that the class asked for and the checkpoint was saved without."""
    for model, placed in placed_by_model(trace):
        random = _random(placed)
        other = _misfit_params(trace, model) | _explained(trace, model, placed)
        random = random[~random["param"].isin(other)]
        head = random[_in_new_head(placed, random)] if len(random) else random
        if len(head):
            held = trace["checkpoint_tensors"]
            extra = held[(held["model"] == model) & (held["fate"] == "unexpected")]
            yield Found(
                {
                    "model": model_title(trace, model),
                    "class_name": _class_of(trace, model),
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


@rule("weights_prefixed", "fatal", "trace", "QwenLM/Qwen3-VL#1195, illuin-tech/colpali#414")
def weights_prefixed(trace: Trace) -> Answers:
    """Parameters that are random although the file holds them under another prefix."""
    for model, placed in placed_by_model(trace):
        found = _prefixed(trace, model, placed)
        if found:
            lost = placed[placed["param"].isin(found)]
            lost = lost.assign(in_the_file=[found[name] for name in lost["param"]])
            (param, key), *_ = found.items()
            theirs, ours = _prefixes(key, param)
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(found),
                    "share": _share(lost, placed[placed["kind"] == "parameter"]),
                    "stored": theirs,
                    "expected": ours,
                    "key": key,
                    "param": param,
                },
                rows_of("placements", lost, "in_the_file", "origin", "because"),
            )


@rule("weights_differ", "fatal", "trace")
def weights_differ(trace: Trace) -> Answers:
    """Live values that are not those of the file, as the recording compared them."""
    for model, placed in placed_by_model(trace):
        different = placed[placed["verified"] == "different"]
        if len(different):
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(different),
                    "compared": int(placed["verified"].isin(["equal", "different"]).sum()),
                    "first": different["param"].iloc[0],
                },
                rows_of("placements", different, "verified", "verified_because", "sources"),
            )
        elif not placed["verified"].isin(["equal"]).any():
            yield Untold("verify_weights")


@rule("ties_undone", "warning", "trace", _TIES)
def ties_undone(trace: Trace) -> Answers:
    """Parameters that the class ties, and that have a storage each."""
    for model, placed in placed_by_model(trace):
        apart = placed[placed["because"].fillna("").str.contains(_OWN_STORAGE, regex=False)]
        if len(apart):
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(apart),
                    "first": apart["param"].iloc[0],
                },
                rows_of("placements", apart, "origin", "because", "sources"),
            )


@rule("tie_overwrote", "warning", "trace", _TIES)
def tie_overwrote(trace: Trace) -> Answers:
    """A tensor of the file that was set and then lost, since its parameter was tied to another."""
    held = trace["checkpoint_tensors"]
    held = held[held["because"].fillna("").str.contains("then tied to ", regex=False)]
    for model, own in held.groupby("model", sort=False):
        targets = own["because"].str.extract(_THEN_TIED)[0]
        placed = trace["placements"]
        placed = placed[(placed["model"] == model) & placed["param"].isin(own["key"])]
        if (placed["verified"] == "equal").all() and len(placed) == len(own):
            continue  # both names held the same values: nothing was lost
        if not placed["verified"].isin(["equal", "different"]).any():
            yield Untold("verify_weights")
            continue
        yield Found(
            {
                "model": model_title(trace, model),
                "count": len(own),
                "first": own["key"].iloc[0],
                "target": targets.iloc[0],
            },
            rows_of("checkpoint_tensors", own, "fate", "because")
            + rows_of("placements", placed, "origin", "verified", "verified_because"),
        )


@rule("left_on_meta", "fatal", "trace", "huggingface/transformers#38870")
def left_on_meta(trace: Trace) -> Answers:
    """Parameters and buffers without data that are not offloaded either."""
    for model, placed in placed_by_model(trace):
        empty = placed[placed["residence"] == "meta"]
        if len(empty):
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(empty),
                    "whole": len(placed),
                    "first": empty["param"].iloc[0],
                },
                rows_of("placements", empty, "kind", "origin", "because", "residence"),
            )


@rule("buffers_unwritten", "fatal", "trace", "huggingface/transformers#48892")
def buffers_unwritten(trace: Trace) -> Answers:
    """Tensors with memory that nobody wrote: finite, wrong, and different in each run."""
    for model, placed in placed_by_model(trace):
        garbage = placed[(placed["origin"] == "unwritten") & (placed["residence"] != "meta")]
        # Release 4.51 leaves some that are missing so: a prefix explains them better.
        garbage = garbage[~garbage["param"].isin(_prefixed(trace, model, placed))]
        if len(garbage):
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(garbage),
                    "first": garbage["param"].iloc[0],
                },
                rows_of("placements", garbage, "kind", "origin", "because", "shape"),
            )


def placed_by_model(trace: Trace) -> Iterator[tuple[str, pd.DataFrame]]:
    """Placements of each model, under its short id."""
    for model, own in trace["placements"].groupby("model", sort=False):
        yield str(model), own


def misfit_tensors(trace: Trace) -> pd.DataFrame:
    """Rows of `checkpoint_tensors` that have another shape than their parameter, as `param`.

    A load that failed may not have come so far as to refuse one: then names and shapes of the
    model as built tell it, for tensors that the file holds as floats under the model's own names.
    """
    held = trace["checkpoint_tensors"]
    refused = held[held["because"].fillna("").str.startswith(SHAPE_MISFIT)]
    refused = refused.assign(param=refused["because"].str.removeprefix(SHAPE_MISFIT))
    calls = trace["calls"]
    failed = calls.loc[calls["status"] == "error", "seq"]
    open_ends = held[held["call"].isin(failed) & held["dtype"].isin(_FLOATS)]
    built = trace["meta_params"].set_index(["call", "param"])["shape"]
    places = pd.MultiIndex.from_frame(open_ends[["call", "key"]])
    pairs = zip(built.reindex(places), open_ends["shape"], strict=True)
    differ = [isinstance(live, str) and live != stored for live, stored in pairs]
    is_other = pd.Series(differ, open_ends.index, dtype=bool)
    other = open_ends[is_other & ~open_ends.index.isin(refused.index)]
    return pd.concat([refused, other.assign(param=other["key"])])


def model_title(trace: Trace, model: object) -> str:
    """`LlamaForCausalLM (model-1)`."""
    name = _class_of(trace, model)
    return f"{name} ({model})" if name else str(model)


def _class_of(trace: Trace, model: object) -> str | None:
    models = trace["models"]
    names = models.loc[models["model"] == model, "class_name"].dropna()
    return str(names.iloc[0]) if len(names) else None


def _random(placed: pd.DataFrame) -> pd.DataFrame:
    """Parameters with fresh values; generation 4 may leave some as memory came."""
    is_fresh = placed["origin"].isin(["initialised"])
    return placed[is_fresh & (placed["kind"] == "parameter")]


def _misfit_params(trace: Trace, model: str) -> set[str]:
    held = trace["checkpoint_tensors"]
    because = held.loc[held["model"] == model, "because"].dropna()
    misfit = because[because.str.startswith(SHAPE_MISFIT)].str.removeprefix(SHAPE_MISFIT)
    return {name for text in misfit for name in text.split(", ")}


def _prefixed(trace: Trace, model: str, placed: pd.DataFrame) -> dict[str, str]:
    """For each random parameter that the file holds under another prefix, its name there."""
    pairs: dict[str, str] = {}
    for one in _prefix_rules(trace, model, placed)[0]:
        pairs |= one.pairs
    return pairs


def _prefix_rules(
    trace: Trace, model: str, placed: pd.DataFrame
) -> tuple[list[PrefixRule], set[str]]:
    """Rules between the file's names and the model's, and names of the file that none explains."""
    held = trace["checkpoint_tensors"]
    extra = held[(held["model"] == model) & (held["fate"] == "unexpected")]
    is_lost = placed["origin"].isin(["initialised", "unwritten"]) & (placed["kind"] == "parameter")
    if extra.empty:
        return [], set()
    lost = placed[is_lost]
    shapes = [
        {name: shape for name, shape in zip(names, shapes, strict=True) if isinstance(shape, str)}
        for names, shapes in ((lost["param"], lost["shape"]), (extra["key"], extra["shape"]))
    ]
    rules = prefix_rules(lost["param"], extra["key"], (shapes[0], shapes[1]))
    return rules, set(extra["key"]) - {key for one in rules for key in one.pairs.values()}


def _explained(trace: Trace, model: str, placed: pd.DataFrame) -> set[str]:
    """Random parameters that a rule finds in the file, or that lie beside such.

    Experts that the library would merge go by no name of the file under any prefix: where the file
    has more names under a rule's prefix, the other parameters of that part are meant by them.
    """
    rules, rest = _prefix_rules(trace, model, placed)
    found = {name for one in rules for name in one.pairs}
    found |= {key.removeprefix(one.stored) for one in rules for key in rest if one.stored}
    if any(key.startswith(one.stored) for one in rules for key in rest if "*" not in one.stored):
        parts = {name.partition(".")[0] for name in found}
        random = _random(placed)["param"]
        found |= {name for name in random if name.partition(".")[0] in parts}
    return found


def _prefixes(key: str, param: str) -> tuple[str, str]:
    """What stands before the end that both names share."""
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


def _share(part: pd.DataFrame, whole: pd.DataFrame) -> str:
    """The share of the model's values, in per cent."""
    values = sum(map(_values, whole["shape"])) or 1
    return f"{100 * sum(map(_values, part['shape'])) / values:.1f} %"


def _values(shape: Any) -> int:
    return math.prod(items(shape)) if isinstance(shape, str) else 0
