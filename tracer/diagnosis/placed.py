"""A loaded model's parameters as the rules ask them: whose they are, what the file has instead.

Only finds rows and names; judges nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from tracer.diagnosis.finding import items
from tracer.diagnosis.held import HeldTrace
from tracer.inspecting.othernames import NameRule, name_rules
from tracer.schema import CLASS_EXPECTS, SHAPE_MISFIT
from tracer.trace import Trace

_FLOATS: Final = ("float64", "float32", "bfloat16", "float16")


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
    name = class_of(trace, model)
    return f"{name} ({model})" if name else str(model)


def class_of(trace: Trace, model: object) -> str | None:
    """Name of a model's class; None where no row tells it."""
    models = trace["models"]
    names = models.loc[models["model"] == model, "class_name"].dropna()
    return str(names.iloc[0]) if len(names) else None


def random_parameters(placed: pd.DataFrame) -> pd.DataFrame:
    """Parameters with fresh values, but for those that the class computes and looks for nowhere."""
    is_fresh = placed["origin"].eq("initialised") & placed["kind"].eq("parameter")
    own = placed["because"].fillna("").str.endswith(CLASS_EXPECTS)
    return placed[(is_fresh & ~own).fillna(False)]


def misfit_parameters(trace: Trace, model: str) -> set[str]:
    """Parameters for which the file holds a tensor of another shape."""
    held = trace["checkpoint_tensors"]
    because = held.loc[held["model"] == model, "because"].dropna()
    misfit = because[because.str.startswith(SHAPE_MISFIT)].str.removeprefix(SHAPE_MISFIT)
    return {name for text in misfit for name in text.split(", ")}


@dataclasses.dataclass(frozen=True, slots=True)
class OtherNames:
    """Parameters of one model that are lost although the file may hold them under other names.

    Attributes:
        rules: Between names of the file and of the model, what explains most first.
        rest: Names of the file that no parameter goes by and no rule explains.
    """

    rules: list[NameRule]
    rest: set[str]

    @property
    def pairs(self) -> dict[str, str]:
        """For each lost parameter that a rule finds, its name in the file."""
        return {param: key for one in self.rules for param, key in one.pairs.items()}


def other_names(trace: Trace, model: str, placed: pd.DataFrame) -> OtherNames:
    """What rules between names explain of a model; looked for once a trace."""
    if not isinstance(trace, HeldTrace):
        return _other_names(trace, model, placed)
    known: dict[str, OtherNames] = trace.shared.setdefault("other_names", {})
    if model not in known:
        known[model] = _other_names(trace, model, placed)
    trace.asked |= {"checkpoint_tensors", "placements"}
    return known[model]


def _other_names(trace: Trace, model: str, placed: pd.DataFrame) -> OtherNames:
    held = trace["checkpoint_tensors"]
    extra = held[(held["model"] == model) & (held["fate"] == "unexpected")]
    is_lost = placed["origin"].isin(["initialised", "unwritten"]) & (placed["kind"] == "parameter")
    if extra.empty:
        return OtherNames([], set())
    lost = placed[is_lost]
    shapes = [
        {name: shape for name, shape in zip(names, shapes, strict=True) if isinstance(shape, str)}
        for names, shapes in ((lost["param"], lost["shape"]), (extra["key"], extra["shape"]))
    ]
    rules = name_rules(lost["param"], extra["key"], (shapes[0], shapes[1]))
    return OtherNames(
        rules, set(extra["key"]) - {key for one in rules for key in one.pairs.values()}
    )


def explained_parameters(trace: Trace, model: str, placed: pd.DataFrame) -> set[str]:
    """Random parameters that a rule finds in the file, or that lie beside such.

    Experts that the library would merge go by no name of the file under any prefix: where the file
    has more names under a rule's prefix, the other parameters of that part are meant by them.
    """
    others = other_names(trace, model, placed)
    found = set(others.pairs)
    prefixes = [one.stored for one in others.rules if not one.is_inside]
    found |= {key.removeprefix(one) for one in prefixes for key in others.rest if one}
    if any(key.startswith(one) for one in prefixes for key in others.rest if "*" not in one):
        parts = {name.partition(".")[0] for name in found}
        random = random_parameters(placed)["param"]
        found |= {name for name in random if name.partition(".")[0] in parts}
    return found


def share(part: pd.DataFrame, whole: pd.DataFrame) -> str:
    """The share of the model's values, in per cent."""
    values = sum(map(_values, whole["shape"])) or 1
    return f"{100 * sum(map(_values, part['shape'])) / values:.1f} %"


def _values(shape: Any) -> int:
    return math.prod(items(shape)) if isinstance(shape, str) else 0
