"""Where a forward spends its time: layer by layer, and module inside module.

A module's time is that of its call, the recorder's hooks round inner modules in it. On an
accelerator it ends when the work is queued, not when it is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracer.analysis.generation import call_or_last
from tracer.frames import to_frame
from tracer.storage import arrow_schema
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
    layers = _layers(trace, call)
    _add_parts(trace, layers)
    layers = layers[layers["inner"] > 0].sort_values("seq")
    layers["phase"] = _phases(trace, call, layers["step"])
    layers["rest_ns"] = layers["total_ns"] - layers["attention_ns"] - layers["mlp_ns"]
    grouped = layers.groupby(["phase", "path"], sort=False, observed=True)
    found = grouped[_TIMES].mean().round().astype("Int64")
    found.insert(0, "forwards", grouped.size())
    found = found.reset_index()
    named = found["path"].astype("str").str.extract(f"^{_LAYER.pattern}$")
    found["stack"], found["layer"] = named["stack"], named["layer"].astype("Int64")
    return found[["stack", "layer", "phase", "forwards", *_TIMES]]


def _layers(trace: Trace, call: int) -> pd.DataFrame:
    """Calls of modules with a layer's path that ended, by seq: seq, path, step, total_ns.

    Ten million rows are gone through batch by batch, and only what is asked for is kept.
    """
    kept = []
    columns = ["call", "seq", "path", "step", "duration_ns"]
    for batch in trace.store.batches("modules", columns, encoded=True):
        is_layer = _told(batch["path"], lambda path: _LAYER.fullmatch(path) is not None)
        wanted = pc.and_(pc.equal(batch["call"], call), pc.is_valid(batch["duration_ns"]))
        rows = batch.filter(pc.and_(wanted, pa.array(is_layer)))
        if rows.num_rows:
            kept.append(rows.set_column(2, "path", rows["path"].cast(pa.string())))
    schema = arrow_schema("modules")
    empty = pa.table([pa.array([], schema.field(name).type) for name in columns], columns)
    found = pa.Table.from_batches(kept) if kept else empty
    frame = to_frame(found.sort_by("seq").select(columns[1:]))
    frame["path"] = frame["path"].astype("category")
    return frame.rename(columns={"duration_ns": "total_ns"})


def _add_parts(trace: Trace, layers: pd.DataFrame) -> None:
    """Give each layer the number of modules called in it, and the time of attention and MLP."""
    seqs = layers["seq"].to_numpy("int64")
    inner = np.zeros(len(seqs), np.int64)
    spent = {"attention": inner.copy(), "MLP": inner.copy()}
    columns = ["parent", "path", "class_name", "duration_ns"]
    for batch in trace.store.batches("modules", columns, encoded=True) if len(seqs) else ():
        wanted = pc.and_(pc.is_valid(batch["duration_ns"]), pc.is_valid(batch["path"]))
        rows = batch.filter(wanted)
        parents = rows["parent"].fill_null(-1).to_numpy()
        places = np.minimum(seqs.searchsorted(parents), len(seqs) - 1)
        is_inner = seqs[places] == parents
        places, rows = places[is_inner], rows.filter(pa.array(is_inner))
        np.add.at(inner, places, 1)
        parts = _parts(rows["path"], rows["class_name"])
        for part, times in spent.items():
            mine = parts == part
            np.add.at(times, places[mine], rows["duration_ns"].to_numpy()[mine])
    layers["inner"] = inner
    layers["attention_ns"], layers["mlp_ns"] = spent["attention"], spent["MLP"]


def _parts(paths: pa.DictionaryArray, classes: pa.DictionaryArray) -> Any:
    """What each module is; asked once for each path and class that there is."""
    names = [_values(column) for column in (paths, classes)]
    keys = _codes(paths) * len(names[1]) + _codes(classes)
    known, which = np.unique(keys, return_inverse=True)
    pairs = (divmod(int(key), len(names[1])) for key in known)
    found = [part_of(names[0][path], names[1][kind]) for path, kind in pairs]
    return np.array(found, dtype=object)[which] if found else np.array([], dtype=object)


def _told(column: pa.DictionaryArray, tells: Callable[[str], bool]) -> Any:
    """What is told of each cell, asked once for each distinct text; a missing one is empty text."""
    return np.array([tells(value) for value in _values(column)])[_codes(column)]


def _values(column: pa.DictionaryArray) -> list[str]:
    """The distinct texts; the last one, empty, stands for what is missing."""
    return [*column.dictionary.to_pylist(), ""]


def _codes(column: pa.DictionaryArray) -> Any:
    return column.indices.fill_null(len(column.dictionary)).to_numpy().astype(np.int64)


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


def arguments(trace: Trace, path: str | None = None) -> pd.DataFrame:
    """What modules were given and made, argument by argument.

    Args:
        trace: A trace with modules.
        path: Dotted path of one module, "" for the model itself; all modules without.

    Returns:
        For the first call of a module from each place, a row an argument or part: seq, path, step,
        side (given or made), name (of a part its argument and its place), how (by position or by
        keyword), class_name, shape (JSON), dtype, value (of a plain number).
    """
    where = pc.field("arguments").is_valid()
    if path is not None:
        where &= pc.field("path") == path
    columns = ["seq", "path", "step", "arguments", "returned"]
    modules = trace.read("modules", columns, where).sort_values("seq")
    rows = []
    for seq, own, step, given, made in modules.itertuples(index=False):
        place = {"seq": seq, "path": own, "step": step}
        for side, told in (("given", json.loads(given)), ("made", {"": json.loads(made)})):
            for name, one in told.items():
                rows += [place | {"side": side} | part for part in _parts_told(name, one)]
    names = ["seq", "path", "step", "side", "name", "how", "class_name", "shape", "dtype", "value"]
    return pd.DataFrame(rows, columns=names).astype({"step": "Int64"})


def _parts_told(name: str, told: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {
        "name": name,
        "how": told.get("given"),
        "class_name": told.get("class"),
        "shape": json.dumps(told["shape"]) if "shape" in told else None,
        "dtype": told.get("dtype"),
        "value": told.get("value"),
    }
    parts = told.get("parts") or {}
    pairs = parts.items() if isinstance(parts, dict) else enumerate(parts)
    for key, part in pairs:
        yield from _parts_told(f"{name}.{key}".lstrip("."), part)
