"""Where a forward spends its time: layer by layer, and module inside module.

A module's time is that of its call, the recorder's hooks round inner modules in it. On an
accelerator it ends when the work is queued, not when it is done.
"""

from __future__ import annotations

import re
from typing import Final

import pandas as pd
import pyarrow.compute as pc

from tracer.analysis.generation import call_or_last
from tracer.trace import Trace

# Looked for in a module's own name and class, in this order: `post_attention_layernorm` is a norm.
_PARTS: Final = {
    "norm": re.compile(r"norm|\bln_|\bln\b"),
    "attention": re.compile(r"att(entio)?n|mixer"),
    "MLP": re.compile(r"mlp|ffn|layerff|feed_?forward|moe|expert"),
    "embedding": re.compile(r"embed|rotary|\bw[tp]e\b"),
    "output head": re.compile(r"\blm_head\b|\bembed_out\b|\bscore\b"),
}
_FIRST_KINDS: Final = ["prefill", "chunk"]
_LAYER: Final = re.compile(r"(?P<stack>\D+)\.(?P<layer>\d+)")  # not one inside another one
_TIMES: Final = ["attention_ns", "mlp_ns", "rest_ns", "total_ns"]


def part_of(path: str, class_name: str) -> str:
    """What a module is, by its own name and class: attention, MLP, norm, ... or other."""
    words = f"{path.rpartition('.')[2]} {class_name}".lower()
    return next((part for part, words_of in _PARTS.items() if words_of.search(words)), "other")


def layer_times(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """What each layer takes in prefill and in a decode step, attention and MLP apart.

    Args:
        trace: A trace with modules, of detail "layers" or more.
        call: seq of the call; the last generate without.

    Returns:
        A row a layer and phase: stack (the path before the layer's number), layer, phase (prefill,
        with an encoder that ran before it; or decode), forwards, and attention_ns, mlp_ns, rest_ns,
        total_ns, each the mean of its forwards. Empty where no layer was recorded.
    """
    call = call_or_last(trace, call)
    columns = ["seq", "parent", "path", "class_name", "step", "duration_ns"]
    modules = trace.read("modules", columns, [("call", "==", call)])
    modules = modules.dropna(subset=["path", "duration_ns"]).sort_values("seq")
    named = modules["path"].astype(str).str.extract(f"^{_LAYER.pattern}$")
    # A leaf with a number, such as one part of a Sequential, is no layer.
    is_layer = named["layer"].notna() & modules["seq"].isin(modules["parent"])
    layers = modules[is_layer].assign(
        stack=named["stack"], layer=named["layer"].astype("Int64"), total_ns=modules["duration_ns"]
    )
    layers["phase"] = _phases(trace, call, layers["step"])
    inner = modules[modules["parent"].isin(layers["seq"])]
    parts = [part_of(*names) for names in inner[["path", "class_name"]].fillna("").to_numpy()]
    spent = inner["duration_ns"].groupby([inner["parent"], pd.Series(parts, inner.index)]).sum()
    for name, part in [("attention_ns", "attention"), ("mlp_ns", "MLP")]:
        # Selected, not taken: of a trace without a layer there is nothing to take.
        sums = spent[spent.index.get_level_values(1) == part].droplevel(1)
        layers[name] = layers["seq"].map(sums).astype("Int64").fillna(0)
    layers["rest_ns"] = layers["total_ns"] - layers["attention_ns"] - layers["mlp_ns"]
    grouped = layers.groupby(["phase", "stack", "layer"], sort=False)
    found = grouped[_TIMES].mean().astype(float).round().astype("Int64")
    found.insert(0, "forwards", grouped.size())
    order = ["stack", "layer", "phase", "forwards", *_TIMES]
    return found.reset_index()[order]


def _phases(trace: Trace, call: int, steps: pd.Series) -> pd.Series:
    """Prefill or decode by the kind of the step; what has no step ran before the first one."""
    known = trace.read("steps", ["step", "kind"], [("call", "==", call)])
    later = known.loc[~known["kind"].isin(_FIRST_KINDS), "step"]
    return steps.isin(later).map({True: "decode", False: "prefill"}).astype("string")


def module_calls(trace: Trace, call: int | None = None, step: int = 0) -> pd.DataFrame:
    """The modules of one forward, each inside the one that called it.

    Args:
        trace: A trace with modules.
        call: seq of the call; the last generate without.
        step: Which forward; to prefill (0) belongs what ran before it, such as an image encoder.

    Returns:
        In order of start: seq, depth (0 is called by no module), path, class_name, part (as
        `part_of` says; a projection in an attention belongs to that), start_ns (since the first),
        duration_ns, self_ns (without inner modules).
    """
    columns = ["seq", "parent", "path", "class_name", "start_ns", "duration_ns"]
    wanted = pc.field("step") == step
    if step == 0:
        wanted = wanted | pc.field("step").is_null()
    where = (pc.field("call") == call_or_last(trace, call)) & wanted
    modules = trace.read("modules", columns, where).dropna(subset=["duration_ns"])
    modules = modules.sort_values("seq").reset_index(drop=True)
    depths: dict[int, int] = {}
    parts: dict[int, str] = {}
    named = modules[["seq", "parent", "path", "class_name"]].fillna("")
    for seq, parent, path, class_name in named.itertuples(index=False):
        depths[seq] = depths.get(parent, -1) + 1
        own = part_of(path, class_name)
        parts[seq] = parts.get(parent, own) if own == "other" else own
    modules["depth"] = pd.array(list(depths.values()), dtype="Int64")
    modules["part"] = pd.array(list(parts.values()), dtype="string")
    modules["start_ns"] = modules["start_ns"] - modules["start_ns"].min()
    inner = modules.groupby("parent")["duration_ns"].sum()
    modules["self_ns"] = modules["duration_ns"] - modules["seq"].map(inner).fillna(0).astype(
        "Int64"
    )
    order = ["seq", "depth", "path", "class_name", "part", "start_ns", "duration_ns", "self_ns"]
    return modules[order]
