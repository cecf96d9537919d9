"""Rules on how a prompt was put together: template, markers, and where an answer is to begin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from tracer.diagnosis.finding import Found, items, rows_of
from tracer.diagnosis.generating import Generating, generations, needs_text, summary
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_SHOWN: Final = ("row", "position", "vocab", "kind", "origin")
_MARKS: Final = ("special", "image", "video")
_WRITTEN_BY_HAND: Final = re.compile(
    r"\[/?INST\]|#{2,}|<\|?/?[a-z_]+\|?>|\b(user|human|assistant|system|q|question|bot)\s*:", re.I
)
"""Signs that somebody has written a template's words into the prompt himself."""
_EMBEDDINGS: Final = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight",
                      "embed_in.weight", "shared.weight")  # fmt: skip
_TAIL: Final = 24  # characters that tell one rendered prompt from another


@rule("template_missing", "warning", "trace")
@needs_text
def template_missing(trace: Trace) -> Iterator[Found]:
    """A tokenizer that has a chat template, and a prompt without any of a chat's markers."""
    for call in generations(trace):
        encoding = call.encoding
        if encoding is None or not summary(encoding).get("has_template"):
            continue
        own = call.prompt[~call.prompt["origin"].isin(["pad", "tokenizer"])]
        is_bare = own["origin"].eq("unknown").all() and not own["kind"].isin(_MARKS).any()
        text = _text(own)
        if len(own) and is_bare and text and not _is_rendered(text, summary(encoding)):
            yield Found(
                {"tokens": len(own), "tokenizer": str(encoding["name"])},
                rows_of("calls", encoding.to_frame().T, "name", "summary")
                + rows_of("tokens", own.head(5), "row", "position", "text", "origin"),
            )


def _is_rendered(text: str, told: dict[str, Any]) -> bool:
    """Whether somebody wrote the turns himself; another family's marks are none to this model."""
    marks = {one.group().lower() for one in _WRITTEN_BY_HAND.finditer(text)}
    own = told.get("template_marks")
    if own is None:
        return bool(marks)
    return any(one in own or one.endswith(":") for one in marks)


def _text(tokens: pd.DataFrame) -> str:
    return "".join(tokens["text"].dropna())


@rule("begin_doubled", "warning", "trace")
@needs_text
def begin_doubled(trace: Trace) -> Iterator[Found]:
    """A prompt that begins with the same special id twice: template and tokenizer both wrote it."""
    for call in generations(trace):
        doubled = [
            first
            for _, part in call.prompt.groupby("row")
            for first in [_seen(part).head(2)]
            if _is_doubled(call, first)
        ]
        if doubled:
            found = pd.concat(doubled)
            yield Found(
                {
                    "token": _name(found),
                    "rows": found["row"].unique().tolist(),
                    "origins": found["origin"].unique().tolist(),
                },
                rows_of("tokens", found, *_SHOWN, "token_id"),
            )


def _seen(part: pd.DataFrame) -> pd.DataFrame:
    return part[part["attended"].fillna(True).astype(bool)]


def _is_doubled(call: Generating, first: pd.DataFrame) -> bool:
    if len(first) < 2 or first["token_id"].isna().any() or first["token_id"].nunique() != 1:
        return False
    token = first["token_id"].iloc[0]
    is_begin = token == call.effective("bos_token_id")
    # Whoever wrote it: without a mask, or with one of ones alone, it may be padding.
    may_be_pad = token == call.effective("pad_token_id")
    is_written = first["origin"].isin(["tokenizer", "template"]).any()
    is_special = (first["kind"] == "special").all() and is_written
    return (is_begin or is_special) and not (may_be_pad and not is_written)


def _name(tokens: pd.DataFrame) -> str:
    known = tokens["vocab"].dropna()
    return str(known.iloc[0]) if len(known) else str(tokens["token_id"].iloc[0])


@rule("end_before_answer", "warning", "trace")
@needs_text
def end_before_answer(trace: Trace) -> Iterator[Found]:
    """A tokenizer put its end marker behind the prompt, where the answer should go on."""
    for call in generations(trace):
        if call.is_encoder_decoder:
            continue
        last = call.prompt.groupby("row").tail(1)
        ends = last[last["token_id"].isin(call.stop_ids) & (last["origin"] == "tokenizer")]
        if len(ends):
            yield Found(
                {"token": _name(ends), "rows": ends["row"].tolist()},
                rows_of("tokens", ends, *_SHOWN, "token_id"),
            )


@rule("no_generation_prompt", "warning", "trace")
@needs_text
def no_generation_prompt(trace: Trace) -> Iterator[Found]:
    """A rendered prompt that ends with somebody else's words, not where the answer begins."""
    calls = trace["calls"]
    templates = calls[calls["kind"] == "template"]
    for call in generations(trace):
        template = _template_of(trace, call, templates)
        if template is None:
            continue
        told = summary(template)
        others = [role for role in told.get("last_roles", []) if role != "assistant"]
        is_left_out = told.get("offers_generation_prompt") and not told.get("generation_prompt")
        if is_left_out and others and not told.get("continues_last"):
            yield Found(
                {"role": others[0], "name": str(template["name"])},
                rows_of("calls", template.to_frame().T, "name", "summary")
                + rows_of("tokens", call.prompt.groupby("row").tail(3), *_SHOWN),
            )


def _template_of(trace: Trace, call: Generating, templates: pd.DataFrame) -> pd.Series | None:
    """The template call whose text this prompt ends with; None where the prompt is not known."""
    if call.prompt.empty:
        return None
    seen = [_text(_seen(part)) for _, part in call.prompt.groupby("row")]
    prompts = trace["prompts"]
    for _, template in templates[templates["seq"] < call.seq][::-1].iterrows():
        texts = prompts[prompts["call"] == template["seq"]]["text"].dropna()
        if any(one.endswith(text[-_TAIL:]) for text in texts for one in seen if text and one):
            return template
    return None


@rule("ids_without_row", "fatal", "trace")
@needs_text
def ids_without_row(trace: Trace) -> Iterator[Found]:
    """A prompt with ids that the model's word embedding has no row for: another tokenizer's."""
    for call in generations(trace):
        rows = _embedding_rows(trace, call.call["model"])
        failed = _failed_embedding(trace, call)
        ids = call.prompt["token_id"].dropna()
        if ids.empty or (rows is None and failed.empty):
            continue
        beyond = call.prompt[call.prompt["token_id"] >= (ids.max() if rows is None else rows)]
        if len(beyond) and call.call["status"] == "error":
            yield Found(
                {"highest_id": int(ids.max()), "rows": rows, "count": len(beyond)},
                rows_of("tokens", beyond, *_SHOWN, "token_id")
                + rows_of("modules", failed, "path", "class_name", "status")
                + call.call_row("status"),
            )


def _embedding_rows(trace: Trace, model: object) -> int | None:
    """Rows of a model's word embedding, where its load was recorded."""
    placed = trace["placements"]
    own = placed[(placed["model"] == model) & placed["param"].str.endswith(_EMBEDDINGS)]
    shapes = [items(shape) for shape in own["shape"].dropna()]
    return min((shape[0] for shape in shapes if len(shape) == 2), default=None)


def _failed_embedding(trace: Trace, call: Generating) -> pd.DataFrame:
    """The module row of a word embedding that broke off."""
    if call.call["status"] != "error":
        return pd.DataFrame()
    columns = ["seq", "call", "path", "class_name", "status"]
    failed = trace.read("modules", columns, [("call", "==", call.seq), ("status", "==", "error")])
    return failed[(failed["path"] + ".weight").str.endswith(_EMBEDDINGS)]


@rule("special_typed", "warning", "trace")
def special_typed(trace: Trace) -> Iterator[Found]:
    """Words of a message that the tokenizer took for one of its special tokens."""
    for call in generations(trace):
        who = call.prompt["origin"].isin(["user", "tool"])
        typed = call.prompt[who & call.prompt["kind"].isin(_MARKS)]
        if len(typed):
            yield Found(
                {
                    "count": len(typed),
                    "tokens": typed["vocab"].dropna().unique().tolist() or ["-"],
                    "origin": str(typed["origin"].iloc[0]),
                },
                rows_of("tokens", typed, *_SHOWN),
            )
