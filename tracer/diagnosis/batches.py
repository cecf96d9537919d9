"""Rules on batches: the same prompt asked in a batch and alone, with different answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tracer.diagnosis.caches import common_length
from tracer.diagnosis.finding import Found, Untold, rows_of
from tracer.diagnosis.generating import Generating, generations, needs_text
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_NO_MATTER: Final = frozenset(
    {"max_length", "max_new_tokens", "use_cache", "return_dict_in_generate", "pad_token_id"}
)
_TIE: Final = 0.01
"""Probabilities of the two best tokens that differ by less: the order of sums decides."""


@rule("batch_row_differs", "warning", "trace", "huggingface/transformers#34658")
@needs_text
def batch_row_differs(trace: Trace) -> Iterator[Found | Untold]:
    """A row of a batch whose answer is not the one that its prompt gets alone, both greedy."""
    greedy = [one for one in generations(trace) if one.is_greedy and not one.is_encoder_decoder]
    single = [(one, _seen(one)) for one in greedy if one.call["rows"] == 1]
    for batch in (one for one in greedy if one.call["rows"] > 1):
        compared = False
        for row, ids in _seen(batch).items():
            for alone, prompts in single:
                if ids in prompts.values() and _is_alike(batch, alone):
                    compared = True
                    yield from _differing(batch, row, alone)
                    break  # the same prompt asked alone again says the same
        if not compared and (batch.prompt["attended"] == False).any():  # noqa: E712
            yield Untold("single_run")


def _seen(call: Generating) -> dict[int, list[int]]:
    """Ids of each row of the prompt that attention sees; pads at the ends of bare rows left out."""
    pad = call.effective("pad_token_id")
    found = {}
    for row, part in call.prompt.groupby("row"):
        if part["token_id"].isna().any():
            continue
        known = part["attended"].notna().any()
        ids = part[part["attended"].fillna(True).astype(bool)]["token_id"].tolist()
        if not known:
            while ids and ids[0] == pad:
                ids = ids[1:]
        found[int(row)] = ids
    return found


def _is_alike(one: Generating, other: Generating) -> bool:
    """Whether both calls go to one model with the same settings, and pass no cache."""
    has_cache = [str(each.call["cache_why"]).startswith("passed") for each in (one, other)]
    same_model = one.call["model"] == other.call["model"]
    return same_model and not any(has_cache) and _deciding(one) == _deciding(other)


def _deciding(call: Generating) -> dict[str, Any]:
    return {
        name: row["effective"]
        for name, row in call.settings.items()
        if name not in _NO_MATTER and not name.startswith("output_")
    }


def _differing(batch: Generating, row: int, alone: Generating) -> Iterator[Found]:
    answer, right = batch.answer_rows.get(row, []), alone.answer_rows.get(0, [])
    place = common_length(answer, right)
    if place >= min(len(answer), len(right)):
        return
    at = batch.choices[(batch.choices["row"] == row) & (batch.choices["step"] == place)]
    same = alone.choices[alone.choices["step"] == place]
    margins = [float(one) for part in (at, same) for one in part["margin"].dropna()]
    is_tie = bool(margins) and min(margins) < _TIE
    yield Found(
        {
            "row": row,
            "place": place + 1,
            "margin": min(margins) if margins else None,
            "alone_seq": alone.seq,
        },
        rows_of("choices", at, "token_id", "text", "probability", "margin")
        + rows_of("choices", same, "token_id", "text", "probability", "margin"),
        "note" if is_tie else None,
    )
