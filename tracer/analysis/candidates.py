"""What the logits processors made of the likeliest tokens of one step."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.generation import call_or_last
from tracer.trace import Trace

_PLACE = ["step", "row", "offset"]
_COLUMNS = [*_PLACE, "token_rank", "token_id", "text", "raw_probability", "probability"]


def before_and_after(
    trace: Trace, call: int | None = None, step: int | None = None, row: int = 0
) -> pd.DataFrame:
    """The top tokens of a step before and after the processors, with what all others share.

    Args:
        trace: A trace with candidates.
        call: seq of the call; the last generate without.
        step: Which step; without, the one whose probabilities the processors moved most, and of
            equals the one that was least sure.
        row: Row of the batch.

    Returns:
        step, row, offset, token_rank, token_id, text, raw_probability, probability, is_chosen;
        the last row stands for all other tokens: it has no rank, id and text, and what the shown
        ones leave over. Tokens that a processor removed are among those.
    """
    where = [("call", "==", call_or_last(trace, call)), ("row", "==", row), ("offset", "==", 0)]
    if step is not None:
        where.append(("step", "==", step))
    known = trace.read("candidates", _COLUMNS, where)
    if step is None and not known.empty:
        known = known[known["step"] == _most_moved(known)]
    known = known.sort_values("token_rank").reset_index(drop=True)
    chosen = trace.read("choices", [*_PLACE, "token_id"], where)
    known = known.merge(chosen.assign(is_chosen=True), on=[*_PLACE, "token_id"], how="left")
    known["is_chosen"] = known["is_chosen"].astype("boolean").fillna(False)
    if known.empty:
        return known
    rest = known.iloc[[0]].assign(token_rank=pd.NA, token_id=pd.NA, text=pd.NA, is_chosen=False)
    for name in ("raw_probability", "probability"):
        rest[name] = max(0.0, 1 - float(known[name].sum()))
    return pd.concat([known, rest.astype(known.dtypes.to_dict())], ignore_index=True)


def overruled(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Choices of greedy decoding that are not the model's own best id, and what made them so.

    Args:
        trace: A trace with effects.
        call: seq of the call; the last generate without.

    Returns:
        step, row, offset, token_id, text, raw_rank, and index and class_name of the processor after
        which the chosen id was the best one for good; missing where none is recorded that did it.
    """
    where = [("call", "==", call_or_last(trace, call))]
    columns = [*_PLACE, "token_id", "text", "raw_rank"]
    choices = trace.read("choices", columns, where)
    moved = choices[(choices["raw_rank"] > 0).fillna(False)]
    effects = trace.read("effects", [*_PLACE, "index", "class_name", "chosen_rank"], where)
    ranked = effects[effects["chosen_rank"].notna()].sort_values("index")
    # The first of the last processors after each of which it is the best.
    is_best = ranked["chosen_rank"].eq(0).astype(int)
    stays = is_best[::-1].groupby([ranked[name] for name in _PLACE]).cummin()[::-1].astype(bool)
    by = ranked[stays].drop_duplicates(_PLACE)[[*_PLACE, "index", "class_name"]]
    found = moved.merge(by, on=_PLACE, how="inner" if ranked.empty else "left")
    return found.sort_values(_PLACE).reset_index(drop=True)


def _most_moved(known: pd.DataFrame) -> int:
    shares = known[["raw_probability", "probability"]].astype(float)
    moved = (shares["probability"] - shares["raw_probability"]).abs().groupby(known["step"]).sum()
    surest = shares["probability"].groupby(known["step"]).max()
    # Rounded, since a sum of shares that nothing moved is not exactly 0.
    order = pd.DataFrame({"moved": -moved.round(6), "surest": surest})
    return int(order.sort_values(["moved", "surest"]).index[0])
