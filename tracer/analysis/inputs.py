"""Questions about the way in: which tokens came from whom, and what the processor did.

Each function takes a trace and gives a frame; nothing here judges or draws.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from tracer.analysis.generation import call_or_last
from tracer.trace import Trace

_WHO = ["row", "origin", "kind", "image"]
_AXES = ["position_t", "position_h", "position_w"]


def token_runs(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """The sequence with neighbours of one origin and kind folded into one row each.

    Args:
        trace: A trace with tokens.
        call: seq of the call that consumed them; the last generate without.

    Returns:
        Columns row, first (index of the first token), tokens, origin, kind, image, text (put
        together, placeholders once; missing where no token has one), position_t, position_h,
        position_w (`3` or `3-9`; missing where the model was never given any).
    """
    columns = [*_WHO, "index", "text", *_AXES]
    tokens = trace.read("tokens", columns, [("call", "==", call_or_last(trace, call))])
    tokens = tokens.sort_values(["row", "index"])
    # Missing is a value here: an image's number changes from none to 0 and back.
    who = tokens[_WHO].astype("string").fillna("")
    run = (who != who.shift()).any(axis=1).to_numpy(dtype=bool).cumsum()
    folded = tokens.groupby(run)
    runs = folded[_WHO].first()
    runs.insert(1, "first", folded["index"].first())
    runs.insert(2, "tokens", folded.size())
    runs["text"] = folded["text"].agg(_joined).astype("string")
    is_placeholder = runs["kind"].isin(["image", "video", "pad"])
    runs["text"] = runs["text"].mask(is_placeholder, folded["text"].first())
    for axis in _AXES:
        runs[axis] = folded[axis].agg(_span).astype("string")
    return runs.reset_index(drop=True)


def sequence_tokens(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Every token that a call consumed and generated, as the table `tokens` has it, in order."""
    tokens = trace.read("tokens", where=[("call", "==", call_or_last(trace, call))])
    return tokens.sort_values(["row", "index"]).reset_index(drop=True)


def call_images(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """The images and videos that a call consumed, as the table `images` has them, in order."""
    images = trace.read("images", where=[("call", "==", call_or_last(trace, call))])
    return images.sort_values(["kind", "index"]).reset_index(drop=True)


def processor_work(trace: Trace) -> pd.DataFrame:
    """What ran while text and pictures became tensors, and how many modules of a network in it.

    Returns:
        Columns stage, name, duration_ns, modules (missing where it was not counted), in order.
    """
    columns = ["seq", "stage", "name", "duration_ns", "summary"]
    spans = trace.read("spans", columns)
    work = spans[spans["stage"].isin(["template", "vision", "encode"])].sort_values("seq")
    counts = [_summary(text).get("modules") for text in work["summary"]]
    work["modules"] = pd.array(counts, dtype="Int64")
    return work[["stage", "name", "duration_ns", "modules"]].reset_index(drop=True)


def _joined(texts: pd.Series[Any]) -> str | None:
    known = texts.dropna()
    return None if known.empty else "".join(known)


def _span(numbers: pd.Series[Any]) -> str | None:
    known = numbers.dropna()
    if known.empty:
        return None
    low, high = int(known.min()), int(known.max())
    return str(low) if low == high else f"{low}-{high}"


def _summary(text: object) -> dict[str, Any]:
    return dict(json.loads(text)) if isinstance(text, str) else {}
