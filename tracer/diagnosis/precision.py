"""Rules on dtypes: doubled against the file, chosen by the configuration, cast out of range."""

from __future__ import annotations

import math
from typing import Final

import pandas as pd

from tracer.diagnosis.finding import Found, Severity, Untold, items, rows_of
from tracer.diagnosis.placed import model_title, placed_by_model
from tracer.diagnosis.rules import Answers, rule
from tracer.trace import Trace

_BITS: Final = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16}
_TOP: Final = {"float64": 308, "float32": 38, "bfloat16": 38, "float16": 4}
"""Powers of ten that the largest value has."""
_L13: Final = "huggingface/transformers#34743, huggingface/transformers#21681"


@rule("dtype_doubled", "warning", "trace", _L13)
def dtype_doubled(trace: Trace) -> Answers:
    """A model whose floats take more bytes than in the file."""
    for model, placed in placed_by_model(trace):
        floats = _floats(placed)
        wider = floats[floats["dtype"].map(_BITS) > floats["stored_dtype"].map(_BITS)]
        stored, live = _bytes(floats, "stored_dtype"), _bytes(floats, "dtype")
        # Some parts stay in float32 on purpose: what counts is the model as a whole.
        if len(wider) and live > 1.5 * stored:
            first = wider.iloc[0]
            is_asked = first["dtype_why"] == "argument"
            severity: Severity = "note" if is_asked else "warning"
            values = {
                "model": model_title(trace, model),
                "stored": first["stored_dtype"],
                "dtype": first["dtype"],
                "why": first["dtype_why"],
                "stored_bytes": stored,
                "live_bytes": live,
            }
            shown = rows_of("placements", wider, "stored_dtype", "dtype", "dtype_why", "shape")
            yield Found(values, shown, severity)


@rule("dtype_by_config", "warning", "trace", _L13)
def dtype_by_config(trace: Trace) -> Answers:
    """Values cast to a narrower dtype because the configuration names it, not the user."""
    for model, placed in placed_by_model(trace):
        floats = _floats(placed)
        narrower = floats[
            (floats["dtype"].map(_TOP) < floats["stored_dtype"].map(_TOP))
            | (floats["dtype"].map(_BITS) < floats["stored_dtype"].map(_BITS))
        ]
        narrower = narrower[narrower["dtype_why"] == "config.json"]
        if len(narrower):
            first = narrower.iloc[0]
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(narrower),
                    "stored": first["stored_dtype"],
                    "dtype": first["dtype"],
                },
                rows_of("placements", narrower, "stored_dtype", "dtype", "dtype_why"),
            )


@rule("cast_lost_values", "fatal", "trace")
def cast_lost_values(trace: Trace) -> Answers:
    """Infinities and zeros that a cast made out of finite and non-zero values."""
    for model, placed in placed_by_model(trace):
        infinities = int(placed["new_infinities"].fillna(0).sum())
        zeros = int(placed["new_zeros"].fillna(0).sum())
        if infinities or zeros:
            lost = placed[(placed["new_infinities"].fillna(0) + placed["new_zeros"].fillna(0)) > 0]
            first = lost.iloc[0]
            severity: Severity = "fatal" if infinities else "warning"
            values = {
                "model": model_title(trace, model),
                "infinities": infinities,
                "zeros": zeros,
                "stored": first["stored_dtype"],
                "dtype": first["dtype"],
                "first": first["param"],
            }
            columns = ("stored_dtype", "dtype", "new_infinities", "new_zeros")
            yield Found(values, rows_of("placements", lost, *columns), severity)
        elif not placed["new_infinities"].notna().any() and _may_overflow(placed):
            yield Untold("verify_weights")


def _may_overflow(placed: pd.DataFrame) -> bool:
    floats = _floats(placed)
    return bool((floats["dtype"].map(_TOP) < floats["stored_dtype"].map(_TOP)).any())


def _floats(placed: pd.DataFrame) -> pd.DataFrame:
    """Parameters out of a file that are floats there and alive."""
    is_float = placed["stored_dtype"].isin(_BITS) & placed["dtype"].isin(_BITS)
    return placed[is_float & (placed["kind"] == "parameter") & (placed["origin"] != "tied")]


def _bytes(placed: pd.DataFrame, column: str) -> int:
    return sum(
        math.prod(items(shape)) * _BITS[dtype] // 8
        for shape, dtype in zip(placed["shape"], placed[column], strict=True)
        if isinstance(shape, str)
    )
