"""Rules on padding: its side, whether attention sees it, and where the mask came from.

The side is read off the mask, row by row, never off the ids: a prompt may well end in an id that
is also the pad token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.generating import Generating, generations, needs_text, summary, value
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_SHOWN = ("row", "position", "token_id", "kind", "attended")


@rule("padding_on_the_right", "fatal", "trace", "huggingface/transformers#34658")
def padding_on_the_right(trace: Trace) -> Iterator[Found]:
    """A row of a decoder's prompt that ends in positions that the mask hides."""
    for call in generations(trace):
        if call.is_encoder_decoder:
            continue
        rows = [row for row, part in call.prompt.groupby("row") if _ends_hidden(_seen(call, part))]
        if rows:
            ends = call.prompt[call.prompt["row"].isin(rows)].groupby("row").tail(1)
            yield Found(
                {"rows": rows, "count": len(rows), "whole": call.prompt["row"].nunique()},
                rows_of("tokens", ends, *_SHOWN) + call.call_row("mask_origin"),
            )


def _seen(call: Generating, part: pd.DataFrame) -> pd.Series:
    """What attention sees of a row; of a mask that the library makes of the ids, all but pads."""
    if call.mask_origin == "inferred from pad ids":
        return part["token_id"].dropna() != call.pad_id
    return part["attended"]


def _ends_hidden(attended: pd.Series) -> bool:
    seen = attended.dropna().astype(bool)
    return bool(len(seen)) and seen.any() and not seen.iloc[-1]


@rule("padding_attended", "fatal", "trace", "huggingface/transformers#25790")
@needs_text
def padding_attended(trace: Trace) -> Iterator[Found]:
    """Pad ids at the ends of rows that attention sees."""
    for call in generations(trace):
        pads = _attended_pads(call)
        if len(pads):
            rows = pads["row"].unique().tolist()
            yield Found(
                {"count": len(pads), "rows": rows},
                rows_of("tokens", pads, *_SHOWN) + call.call_row("mask_origin", "attended_pads"),
            )


def _attended_pads(call: Generating) -> pd.DataFrame:
    """Rows of `tokens`: pads at the ends of a prompt's rows that the mask does not hide."""
    pad = call.pad_id
    prompt = call.prompt
    if call.is_encoder_decoder:
        prompt = prompt[(prompt["part"] == "encoder") & prompt["attended"].notna()]
    # The library hides every pad id where it makes the mask of them, or for an encoder.
    is_made = call.mask_origin.startswith(("inferred", "made by"))
    if pad is None or not call.mask_origin or is_made or prompt.empty:
        return prompt.head(0)
    found = pd.concat([_ends(part, pad, call) for _, part in prompt.groupby("row")])
    starts = found["position"] == prompt["position"].min()
    if starts.sum() == prompt["row"].nunique() == found["row"].nunique() == len(found):
        return prompt.head(0)  # every row begins with it, once: so this model's prompts begin
    return found[found["attended"].fillna(True).astype(bool)]


def _ends(part: pd.DataFrame, pad: int, call: Generating) -> pd.DataFrame:
    """Pads at the two ends of a row. One in front may be its begin, one behind its end."""
    is_pad = (part["token_id"] == pad).fillna(False)
    left, right = is_pad.cumprod().astype(bool), is_pad[::-1].cumprod()[::-1].astype(bool)
    if left.all():
        return part[left]
    if left.sum() == 1 and pad == call.effective("bos_token_id"):
        left[:] = False
    if right.sum() and pad in call.stop_ids:
        right[right.idxmax()] = False
    return part[left | right]


@rule("mask_inferred", "note", "trace", "huggingface/transformers#25790")
@needs_text
def mask_inferred(trace: Trace) -> Iterator[Found]:
    """No mask was given: the library hid every pad id, wherever it stood."""
    for call in generations(trace):
        pad = call.pad_id
        if pad is None or call.mask_origin != "inferred from pad ids" or not call.prompt_rows:
            continue
        hidden = call.prompt[call.prompt["token_id"] == pad]
        at_ends = pd.concat([_ends(part, pad, call) for _, part in call.prompt.groupby("row")])
        inside = hidden[~hidden.index.isin(at_ends.index)]
        yield Found(
            {"count": len(hidden), "inside": len(inside), "pad_id": pad},
            rows_of("tokens", inside if len(inside) else hidden, *_SHOWN)
            + call.call_row("mask_origin"),
            "fatal" if len(inside) else None,
        )


@rule("pad_equals_end", "warning", "trace", "huggingface/transformers#25790")
@needs_text
def pad_equals_end(trace: Trace) -> Iterator[Found]:
    """Padding, no mask, and a pad id that ends answers too: no mask can be inferred."""
    for call in generations(trace):
        pad = call.pad_id
        if call.mask_origin == "all ones" and pad in call.stop_ids:
            pads = _attended_pads(call)
            if len(pads):
                yield Found(
                    {"pad_id": pad, "count": len(pads)},
                    call.setting_rows("pad_token_id", "eos_token_id")
                    + call.call_row("mask_origin", "stop_ids"),
                )


@rule("mask_of_another_length", "fatal", "trace")
def mask_of_another_length(trace: Trace) -> Iterator[Found]:
    """A mask and ids of different lengths in one call, with no cache between them."""
    inputs = trace["inputs"]
    for call in generations(trace):
        given = inputs[inputs["call"] == call.seq].set_index("tensor", drop=False)
        if not {"input_ids", "attention_mask"} <= set(given.index) or _rests_on_cache(call):
            continue
        ids, mask = (value(given.loc[name, "shape"]) for name in ("input_ids", "attention_mask"))
        if ids and len(mask) == len(ids) and ids != mask:
            both = given.loc[["input_ids", "attention_mask"]]
            yield Found(
                {"ids": ids[-1], "mask": mask[-1], "rows": [ids[0], mask[0]]},
                rows_of("inputs", both, "tensor", "shape") + call.call_row("status"),
            )


def _rests_on_cache(call: Generating) -> bool:
    """Whether positions before the ids stand in a cache that was passed."""
    why = call.call["cache_why"]
    return isinstance(why, str) and why.startswith("passed")


@rule("mask_hides_words", "warning", "trace")
@needs_text
def mask_hides_words(trace: Trace) -> Iterator[Found]:
    """Positions that a given mask hides although different words stand there, and no padding."""
    for call in generations(trace):
        if not call.mask_origin.startswith("given") or call.pad_id is None:
            continue
        hidden = call.prompt[call.prompt["attended"].eq(False).fillna(False)]
        words = hidden[hidden["token_id"] != call.pad_id]
        # One id alone may be what another tokenizer pads with.
        kinds = words.groupby("row")["token_id"].transform("nunique")
        words = words[kinds > 1]
        if len(words):
            yield Found(
                {"count": len(words), "rows": words["row"].unique().tolist()},
                rows_of("tokens", words, *_SHOWN, "text") + call.call_row("mask_origin"),
            )


@rule("pad_unset", "fatal", "trace")
def pad_unset(trace: Trace) -> Iterator[Found]:
    """A tokenizer was asked to pad, has no pad token, and refused."""
    calls, settings = trace["calls"], trace["settings"]
    for _, call in calls[(calls["kind"] == "encode") & (calls["status"] == "error")].iterrows():
        asked = settings[(settings["event"] == call["seq"]) & (settings["setting"] == "padding")]
        wants = any(_pads(value(one)) for one in asked["asked"])
        if wants and summary(call).get("has_pad_token") is False:
            yield Found(
                {"name": str(call["name"])},
                rows_of("calls", call.to_frame().T, "name", "status")
                + rows_of("settings", asked, "asked"),
            )


def _pads(asked: Any) -> bool:
    return asked not in (None, False, "do_not_pad")
