"""Where the parameters and buffers of a model lie when its load has ended, and how much they take.

Tied parameters share one storage: it is counted under the name that was filled, so sums are those
of the model.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final

import pandas as pd

from tracer.trace import Trace

_PLACES: Final = {
    "offloaded_cpu": "cpu, offloaded",
    "offloaded_disk": "disk, offloaded",
    "meta": "meta, no values",
}


def placed_tensors(trace: Trace, model: str | None = None) -> pd.DataFrame:
    """Every parameter and buffer in the order of the model, with its place and bytes.

    Args:
        trace: A trace with a load.
        model: Short id of a model; None for the last one.

    Returns:
        Columns param, kind, place (a device, or where it is offloaded to), dtype, size_bytes
        (derived from shape and dtype; 0 for a tied name; missing for a dtype without a known
        width).
    """
    columns = ["model", "param", "kind", "origin", "residence", "device", "dtype", "shape"]
    placed = trace.read("placements", columns)
    wanted = model if model is not None or placed.empty else placed["model"].iloc[-1]
    placed = placed[placed["model"] == wanted]
    tied = _tied(trace, str(wanted))
    elsewhere = placed["residence"].map(_PLACES).astype("string")
    placed["place"] = elsewhere.fillna(placed["device"].astype("string"))
    sizes = [
        0 if origin == "tied" or param in tied else _size(dtype, shape)
        for param, origin, dtype, shape in zip(
            placed["param"], placed["origin"], placed["dtype"], placed["shape"], strict=True
        )
    ]
    placed["size_bytes"] = pd.array(sizes, "Int64")
    order = ["param", "kind", "place", "dtype", "size_bytes"]
    return placed[order].reset_index(drop=True)


def placed_bytes(trace: Trace, model: str | None = None) -> pd.DataFrame:
    """Tensors and bytes by place and dtype.

    Returns:
        Columns place, dtype, tensors, size_bytes, in the order in which they first occur.
    """
    placed = placed_tensors(trace, model)
    grouped = placed.groupby(["place", "dtype"], sort=False, dropna=False)
    found = grouped.agg(tensors=("param", "size"), size_bytes=("size_bytes", "sum"))
    return found.reset_index()


def _tied(trace: Trace, model: str) -> frozenset[str]:
    """Names that share another's storage; a file may have held values for them all the same."""
    told = trace.read("models", ["tied"], [("model", "==", model)])["tied"].dropna()
    return frozenset(name for text in told for name in json.loads(text))


def _size(dtype: object, shape: object) -> int | None:
    if not isinstance(dtype, str) or not isinstance(shape, str):
        return None
    bits = re.search(r"\d+", dtype)  # of bfloat16, float8_e4m3fn, complex64
    width = int(bits[0]) if bits else 8 if dtype == "bool" else None
    return None if width is None else math.prod(json.loads(shape)) * width // 8
