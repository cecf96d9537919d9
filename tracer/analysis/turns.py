"""What each turn of a conversation cost: tokens, time to the first token, memory, and the trend.

A turn is a generate call. Several conversations are compared by putting their frames together,
each with a name in a column `conversation`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from tracer.analysis.generation import foreign_caches, generate_calls
from tracer.analysis.latency import token_times
from tracer.trace import Trace

FEWEST_POINTS = 4
"""A curve with three coefficients goes through any three points."""
_AXES = {"input_ids": 1, "inputs_embeds": 1}  # tensors that are a prompt: the axis of its tokens


def turns(trace: Trace) -> pd.DataFrame:
    """A row a generate call, in order.

    Returns:
        turn (from 1), call, prompt_tokens (the prompt as it was handed over, pads counted),
        fed_tokens (those that went through the model in prefill), cached_tokens (those that the
        cache had before; where it was built from other ids, these two do not add up to the prompt),
        new_tokens (generated, row 0; missing where choices were not followed), first_token_ns (from
        the call's start), later_token_ns (median gap of the others), cache_bytes (at the end).
        Times are without the recorder's own.
    """
    steps = trace.read(
        "steps",
        ["call", "step", "kind", "input_tokens", "cache_tokens_before", "cache_bytes"],
    )
    lengths, foreign = _prompt_lengths(trace), foreign_caches(trace)
    found = []
    for call in generate_calls(trace):
        turn = _turn(trace, call, steps[steps["call"] == call])
        # Without the ids' shape: what was fed, behind a cache that is the prompt's beginning.
        known = pd.NA if call in foreign else _sum(turn["fed_tokens"], turn["cached_tokens"])
        found.append(turn | {"prompt_tokens": lengths.get(call, known)})
    columns = ["call", "prompt_tokens", "fed_tokens", "cached_tokens", "new_tokens"]
    columns += ["first_token_ns", "later_token_ns", "cache_bytes"]
    frame = pd.DataFrame(found, columns=columns, dtype=object).astype("Int64")
    frame.insert(0, "turn", pd.array(range(1, len(frame) + 1), dtype="Int64"))
    return frame


def _turn(trace: Trace, call: int, steps: pd.DataFrame) -> dict[str, Any]:
    steps = steps.sort_values("step")
    first = steps[steps["kind"].isin(["prefill", "chunk"])]
    times = token_times(trace, call)
    gaps = times["gap_ns"].iloc[1:]
    return {
        "call": call,
        "fed_tokens": first["input_tokens"].sum() if len(first) else pd.NA,
        "cached_tokens": first["cache_tokens_before"].iloc[0] if len(first) else pd.NA,
        "new_tokens": times["tokens"].sum(min_count=1),
        "first_token_ns": times["at_ns"].iloc[0] if len(times) else pd.NA,
        "later_token_ns": round(gaps.median()) if len(gaps) else pd.NA,
        "cache_bytes": steps["cache_bytes"].max(),
    }


def _prompt_lengths(trace: Trace) -> dict[int, int]:
    """Tokens of the ids or embeddings that each call was handed; ids may be none beside others."""
    inputs = trace.read("inputs", ["call", "tensor", "shape"])
    lengths: dict[int, int] = {}
    for call, tensor, shape in inputs.itertuples(index=False):
        if tensor in _AXES and not pd.isna(shape):
            sizes = json.loads(shape)
            if len(sizes) > _AXES[tensor]:
                lengths[call] = max(lengths.get(call, 0), sizes[_AXES[tensor]])
    return lengths


def _sum(fed: Any, cached: Any) -> Any:
    return fed if pd.isna(cached) else fed + cached


def turn_fit(
    frame: pd.DataFrame, over: str = "prompt_tokens", of: str = "first_token_ns"
) -> pd.DataFrame:
    """How a cost grows with n: the least-squares fit of a + b n + c n^2.

    Args:
        frame: Turns as `turns` gives them; with `conversation`, each is fitted by itself.
        over: Column that is n.
        of: Column of the cost.

    Returns:
        A row a conversation: conversation, points, a, b, c (missing below four points with
        different n), r_squared (share of the variance that the fit explains; missing where the
        cost does not vary), quadratic_share (of the fitted cost at the largest n, what c n^2 is).
    """
    if "conversation" not in frame:
        frame = frame.assign(conversation="")
    fits = [
        [name, *_fit(part[over].to_numpy(dtype=float), part[of].to_numpy(dtype=float))]
        for name, part in frame.dropna(subset=[over, of]).groupby("conversation", sort=False)
    ]
    names = ["conversation", "points", "a", "b", "c", "r_squared", "quadratic_share"]
    return pd.DataFrame(fits, columns=names)


def _fit(n: np.ndarray, cost: np.ndarray) -> list[float]:
    if len(set(n)) < FEWEST_POINTS:
        return [len(n), *[np.nan] * 5]
    c, b, a = np.polyfit(n, cost, 2)
    fitted = a + b * n + c * n**2
    spread = ((cost - cost.mean()) ** 2).sum()
    r_squared = 1 - ((cost - fitted) ** 2).sum() / spread if spread else np.nan
    largest = n.max()
    return [len(n), a, b, c, r_squared, c * largest**2 / (a + b * largest + c * largest**2)]
