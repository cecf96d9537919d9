"""The answer of a generate(): its tokens with probability, rank, entropy and time."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.generation import call_or_last
from tracer.trace import Trace


def answer_tokens(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Each chosen token of a call with its step's times.

    Args:
        trace: A trace with a generate call.
        call: seq of the call; the last one without.

    Returns:
        Columns step, row, token_id, text, probability, raw_rank, entropy, margin, accepted,
        finish, cache_tokens, forward_ns, step_ns. Empty without a generate call.
    """
    call = call_or_last(trace, call)
    choices = trace.read(
        "choices",
        columns=[
            "step",
            "row",
            "token_id",
            "text",
            "probability",
            "raw_rank",
            "entropy",
            "margin",
            "accepted",
            "finish",
        ],
        where=[("call", "==", call)],
    )
    steps = trace.read(
        "steps",
        columns=["step", "cache_tokens_after", "forward_ns", "duration_ns"],
        where=[("call", "==", call)],
    ).rename(columns={"cache_tokens_after": "cache_tokens", "duration_ns": "step_ns"})
    merged = choices.merge(steps, on="step", how="left", validate="many_to_one")
    return merged.sort_values(["row", "step"]).reset_index(drop=True)


def answer_text(trace: Trace, call: int | None = None) -> dict[int, str]:
    """The accepted tokens' texts of each row, put together; rows without a tokenizer are left out.

    Specials stand in the text as the tokenizer writes them.
    """
    tokens = answer_tokens(trace, call)
    known = tokens[tokens["text"].notna() & tokens["accepted"].fillna(False)]
    return {int(row): "".join(part["text"]) for row, part in known.groupby("row")}
