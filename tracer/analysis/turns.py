"""What each turn of a conversation cost: tokens, time to the first token, memory, and the trend.

A turn is a generate call. Several conversations are compared by putting their frames together,
each with a name in a column `conversation`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracer.analysis.generation import generate_calls
from tracer.analysis.latency import token_times
from tracer.trace import Trace

FEWEST_POINTS = 4
"""A curve with three coefficients goes through any three points."""


def turns(trace: Trace) -> pd.DataFrame:
    """A row a generate call, in order.

    Returns:
        turn (from 1), call, prompt_tokens (the whole prompt of row 0, pads counted), fed_tokens
        (those that went through the model in prefill), cached_tokens (those that the cache had
        before), new_tokens (generated, row 0; missing where choices
        were not followed), first_token_ns (from the call's start),
        later_token_ns (median gap of the others), cache_bytes (at the end). Times are without the
        recorder's own.
    """
    steps = trace.read(
        "steps",
        ["call", "step", "kind", "input_tokens", "cache_tokens_before", "cache_bytes"],
    )
    found = [_turn(trace, call, steps[steps["call"] == call]) for call in generate_calls(trace)]
    columns = ["call", "prompt_tokens", "fed_tokens", "cached_tokens", "new_tokens"]
    columns += ["first_token_ns", "later_token_ns", "cache_bytes"]
    frame = pd.DataFrame(found, columns=columns, dtype=object).astype("Int64")
    frame.insert(0, "turn", pd.array(range(1, len(frame) + 1), dtype="Int64"))
    return frame


def _turn(trace: Trace, call: int, steps: pd.DataFrame) -> list[object]:
    steps = steps.sort_values("step")
    first = steps[steps["kind"].isin(["prefill", "chunk"])]
    fed = first["input_tokens"].sum() if len(first) else pd.NA
    cached = first["cache_tokens_before"].iloc[0] if len(first) else pd.NA
    times = token_times(trace, call)
    gaps = times["gap_ns"].iloc[1:]
    return [
        call,
        fed if pd.isna(cached) else fed + cached,
        fed,
        cached,
        times["tokens"].sum(min_count=1),
        times["at_ns"].iloc[0] if len(times) else pd.NA,
        round(gaps.median()) if len(gaps) else pd.NA,
        steps["cache_bytes"].max(),
    ]


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
