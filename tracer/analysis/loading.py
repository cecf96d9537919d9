"""Questions about a load: the files' bytes, the parts built, the reads, and where values came from.

Each function takes a trace and gives a frame; nothing here judges (the audit does) or draws.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from tracer.schema import SHAPE_MISFIT
from tracer.trace import Trace

LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, as one 64-bit number."""


def shard_accounts(trace: Trace) -> pd.DataFrame:
    """What the bytes of each weight file are: length, header, tensors, and nothing else.

    Args:
        trace: A trace with a load of safetensors files; others name no tensors in a header.

    Returns:
        Columns model, path, tensors, tensor_bytes, header_bytes, size_bytes, rest_bytes,
        metadata. `rest_bytes` is what length, header and tensors leave over: 0 in a whole file.
    """
    files = trace.read(
        "files",
        ["model", "path", "tensors", "header_bytes", "size_bytes", "metadata"],
        [("kind", "==", "weights"), ("format", "==", "safetensors")],
    )
    tensors = trace.read("checkpoint_tensors", ["model", "file", "size_bytes"])
    sums = tensors.groupby(["model", "file"])["size_bytes"].sum().rename("tensor_bytes")
    sums = sums.reset_index().rename(columns={"file": "path"})
    accounts = files.merge(sums, how="left").sort_values(["model", "path"])
    accounts["rest_bytes"] = (
        accounts["size_bytes"] - LENGTH_BYTES - accounts["header_bytes"] - accounts["tensor_bytes"]
    )
    order = ["model", "path", "tensors", "tensor_bytes", "header_bytes", "size_bytes"]
    return accounts[[*order, "rest_bytes", "metadata"]].reset_index(drop=True)


def parts_as_built(trace: Trace, depth: int = 2) -> pd.DataFrame:
    """The model as built, before any weight: its parts with their tensors, values and bytes.

    Args:
        trace: A trace with a load.
        depth: Names up to so many dots make one part: 2 for `model.visual`.

    Returns:
        Columns part, device, tensors, values, size_bytes (bytes that they will need), in the
        order of the model.
    """
    built = trace.read("meta_params", ["param", "shape", "device", "size_bytes"])
    built["part"] = [".".join(name.split(".")[:depth]) for name in built["param"]]
    built["values"] = [_count(shape) for shape in built["shape"]]
    grouped = built.groupby(["part", "device"], sort=False, dropna=False)
    return grouped.agg(
        tensors=("param", "size"), values=("values", "sum"), size_bytes=("size_bytes", "sum")
    ).reset_index()


def shape_checks(trace: Trace) -> pd.DataFrame:
    """Each parameter's shape three times: in the file, in the model as built, and alive.

    The file's shape read twice can't disagree with itself; the model's shape comes from the
    configuration, so a file that doesn't belong to it shows here.

    Returns:
        Columns param, key, stored_shape, model_shape, live_shape, fits (stored equals model's;
        missing where several tensors make one parameter or an operation changes it), matches
        (live equals model's), origin. A tensor that the library refused for its shape stands
        beside the parameter that it was meant for. Parameters that no file holds have no key.
    """
    placed = trace.read(
        "placements",
        ["model", "param", "sources", "operations", "expected_shape", "shape", "matches", "origin"],
    )
    # A parameter merged out of many has a key for none of them: no one shape to compare with.
    sources = [_items(text) for text in placed["sources"]]
    placed["key"] = pd.array(
        [names[0] if len(names) == 1 else None for names in sources], dtype="string"
    )
    stored = trace.read("checkpoint_tensors", ["model", "key", "shape"])
    stored = stored.drop_duplicates(["model", "key"]).rename(columns={"shape": "stored_shape"})
    checks = placed.rename(columns={"expected_shape": "model_shape", "shape": "live_shape"})
    checks["key"] = checks["key"].fillna(_refused_keys(trace, checks))
    checks = checks.merge(stored, on=["model", "key"], how="left")
    is_plain = pd.Series([not _items(text) for text in checks["operations"]], checks.index)
    fits = checks["stored_shape"] == checks["model_shape"]
    checks["fits"] = fits.astype("boolean").where(checks["stored_shape"].notna() & is_plain)
    order = ["param", "key", "stored_shape", "model_shape", "live_shape", "fits", "matches"]
    return checks[[*order, "origin"]]


def _refused_keys(trace: Trace, checks: pd.DataFrame) -> pd.Series[Any]:
    """For each parameter the tensor that was refused since its shape is another."""
    lost = trace.read("checkpoint_tensors", ["model", "key", "because"])
    lost = lost[lost["because"].fillna("").str.startswith(SHAPE_MISFIT)]
    keys = {
        (row.model, param): row.key
        for row in lost.itertuples()
        for param in row.because.removeprefix(SHAPE_MISFIT).split(", ")
    }
    found = [keys.get(place) for place in zip(checks["model"], checks["param"], strict=True)]
    return pd.Series(pd.array(found, dtype="string"), checks.index)


def name_changes(trace: Trace) -> pd.DataFrame:
    """How names in the files became names in the model, alike changes folded into one row.

    Returns:
        Columns file_prefix and model_prefix (equal where nothing changed), operations, tensors,
        example (the first tensor's key); in the order of the model. A parameter made of several
        tensors counts by its first one.
    """
    placed = trace.read("placements", ["param", "sources", "operations"])
    rows = []
    for row in placed.itertuples():
        keys = _items(row.sources)
        if keys:
            prefixes = _changed_prefixes(str(keys[0]), row.param)
            rows.append([*prefixes, row.operations, keys[0]])
    columns = ["file_prefix", "model_prefix", "operations", "example"]
    found = pd.DataFrame(rows, columns=columns, dtype="string")
    grouped = found.groupby(columns[:3], sort=False, dropna=False)
    folded = grouped.agg(tensors=("example", "size"), example=("example", "first")).reset_index()
    return folded[[*columns[:3], "tensors", "example"]]


def _changed_prefixes(key: str, param: str) -> tuple[str, str]:
    """Two names without the end that they share, but with the first part of the file's name."""
    old, new = key.split("."), param.split(".")
    while len(old) > 1 and len(new) > 1 and old[-1] == new[-1]:
        old.pop()
        new.pop()
    return ".".join(old), ".".join(new)


def slowest_tensors(trace: Trace, count: int = 10) -> pd.DataFrame:
    """The tensors whose read and cast took longest.

    Args:
        trace: A trace with a load.
        count: At most so many rows, the slowest first.

    Returns:
        Columns key, file, shape, stored_dtype, loaded_dtype, size_bytes, mapped, read_ns,
        cast_ns, duration_ns, worker. A `mapped` tensor is still a view of the file: its bytes
        will be read by whoever touches them first.
    """
    columns = [
        "key",
        "file",
        "shape",
        "stored_dtype",
        "loaded_dtype",
        "size_bytes",
        "mapped",
        "read_ns",
        "cast_ns",
        "duration_ns",
        "worker",
    ]
    loads = trace.read("tensor_loads", columns=columns)
    return loads.sort_values("duration_ns", ascending=False).head(count).reset_index(drop=True)


def origins(trace: Trace) -> pd.DataFrame:
    """Where the values of the finished model came from, parameters and buffers apart.

    Returns:
        Columns kind, origin, tensors, values, because, example (the first one's name), in the
        order of the model.
    """
    placed = trace.read("placements", ["param", "kind", "origin", "because", "shape"])
    placed["values"] = [_count(shape) for shape in placed["shape"]]
    grouped = placed.groupby(["kind", "origin", "because"], sort=False, dropna=False)
    found = grouped.agg(
        tensors=("param", "size"), values=("values", "sum"), example=("param", "first")
    ).reset_index()
    return found[["kind", "origin", "tensors", "values", "because", "example"]]


def _count(shape: object) -> int:
    """Values in a tensor; 1 for a scalar, 0 where no shape is known."""
    return math.prod(json.loads(shape)) if isinstance(shape, str) else 0


def _items(text: object) -> list[str]:
    return list(json.loads(text)) if isinstance(text, str) else []
