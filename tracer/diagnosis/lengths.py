"""Rules on lengths: what the model can take, what was cut to fit, and how it was counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.generating import Generating, generations, needs_text, summary, value
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_REACH: Final = ("step", "input_tokens", "last_position")
_PLACES: Final = ["seq", "call", "path", "class_name", "input_shape", "status"]


@rule("beyond_positions", "warning", "trace")
def beyond_positions(trace: Trace) -> Iterator[Found]:
    """A sequence longer than the model's positions, which it took without a word."""
    for call, reached, steps in _reaching(trace):
        limit = call["position_limit"]
        if call["status"] != "error" and reached > limit:
            yield Found(
                {"reached": reached, "limit": int(limit), "name": str(call["name"])},
                rows_of("calls", call.to_frame().T, "name", "position_limit")
                + rows_of("steps", steps[steps["last_position"] >= limit].head(3), *_REACH),
            )


@rule("positions_exhausted", "fatal", "trace")
def positions_exhausted(trace: Trace) -> Iterator[Found]:
    """A sequence longer than the model's positions, on which the call failed."""
    for call, reached, steps in _reaching(trace):
        limit = call["position_limit"]
        if call["status"] == "error" and reached > limit and _ended_in(trace, steps):
            yield Found(
                {"reached": reached, "limit": int(limit), "name": str(call["name"])},
                rows_of("calls", call.to_frame().T, "name", "status", "position_limit")
                + rows_of("steps", steps.tail(2), *_REACH, "status"),
            )
    yield from _readers_beyond(trace)


def _readers_beyond(trace: Trace) -> Iterator[Found]:
    """Forwards of a user's own that broke off where ids and their places become vectors."""
    calls = trace["calls"]
    is_failed = calls["status"].eq("error") & calls["position_limit"].notna()
    known = set(trace["inputs"]["call"]) | set(trace["steps"]["call"])
    for _, call in calls[is_failed & calls["kind"].eq("forward")].iterrows():
        if call["seq"] in known:
            continue
        modules = trace.read("modules", _PLACES, [("call", "==", int(call["seq"]))])
        failed = modules[modules["status"] == "error"].sort_values("seq")
        shapes = [json.loads(shape) for shape in failed["input_shape"].dropna()]
        reached = max((shape[1] for shape in shapes if len(shape) == 2), default=0)
        inner = failed.tail(1)
        in_embedding = inner["class_name"].str.contains("Embedding", regex=False).any()
        if in_embedding and reached > call["position_limit"]:
            limit = int(call["position_limit"])
            yield Found(
                {"reached": reached, "limit": limit, "name": str(call["name"])},
                rows_of("calls", call.to_frame().T, "name", "status", "position_limit")
                + rows_of("modules", failed, "path", "class_name", "input_shape", "status"),
            )


def _ended_in(trace: Trace, steps: pd.DataFrame) -> bool:
    """Whether the last step gave no token: what failed is its forward."""
    if steps.empty:
        return True
    last, choices = steps.iloc[-1], trace["choices"]
    chosen = choices[(choices["call"] == last["call"]) & (choices["step"] == last["step"])]
    return len(chosen) == 0


def _reaching(trace: Trace) -> Iterator[tuple[pd.Series, int, pd.DataFrame]]:
    """Calls of models with a limit of positions, how many each came to use, and their steps."""
    calls, steps, inputs = trace["calls"], trace["steps"], trace["inputs"]
    limited = calls[calls["kind"].isin(["generate", "forward"]) & calls["position_limit"].notna()]
    for _, call in limited.iterrows():
        own = steps[steps["call"] == call["seq"]].sort_values("step")
        given = inputs[(inputs["call"] == call["seq"]) & (inputs["tensor"] == "input_ids")]
        lengths = [json.loads(shape)[-1] for shape in given["shape"].dropna()]
        # Axes of a picture share positions, so ids say less than positions where both are known.
        known = own["last_position"].dropna()
        reached = int(known.max()) + 1 if len(known) else max([0, *lengths])
        if call["status"] == "error":
            reached = max([reached, *lengths])
        yield call, reached, own


@rule("budget_over_limit", "note", "trace")
def budget_over_limit(trace: Trace) -> Iterator[Found]:
    """Prompt and new tokens together may go beyond the model's positions, and did not yet."""
    for call in generations(trace):
        limit, whole = call.call["position_limit"], call.effective("max_length")
        reached = call.steps["last_position"].max() + 1
        if pd.isna(limit) or not isinstance(whole, int) or pd.isna(reached):
            continue
        # Pictures take fewer positions than ids.
        offset = call.steps["position_offset"].dropna()
        allowed = whole + min(0, int(offset.iloc[0]) if len(offset) else 0)
        if reached <= limit < allowed and call.call["status"] == "ok":
            yield Found(
                {"limit": int(limit), "allowed": allowed, "prompt": _prompt_length(call)},
                call.setting_rows("max_length", "max_new_tokens") + call.call_row("position_limit"),
            )


def _prompt_length(call: Generating) -> int:
    return int(call.prompt.groupby("row").size().max()) if len(call.prompt) else 0


@rule("prompt_cut", "warning", "trace", "QwenLM/Qwen3-VL#1534")
def prompt_cut(trace: Trace) -> Iterator[Found]:
    """Tokens of a prompt that truncation took away before the model saw it."""
    for call in generations(trace):
        cut = call.tokens[call.tokens["kind"] == "cut"]
        if cut.empty or cut["image"].notna().any():
            continue
        kept = call.prompt["position"].notna().sum()
        last = call.prompt["index"].max()
        at_end = cut[cut["index"] > last]
        lost = [name for name in ("template", "user") if (at_end["origin"] == name).any()]
        yield Found(
            {"count": len(cut), "kept": int(kept), "side": "right" if len(at_end) else "left"},
            rows_of("tokens", cut, "row", "index", "text", "origin") + _limit_rows(trace, call),
            # What goes first from the end is the place where the answer should begin.
            "fatal" if "template" in lost else None,
        )


def _limit_rows(trace: Trace, call: Generating) -> Any:
    settings = trace["settings"]
    if call.encoding is None:
        return ()
    own = settings[settings["event"] == call.encoding["seq"]]
    named = own[own["setting"].isin(["truncation", "max_length", "truncation_side"])]
    return rows_of("settings", named, "asked", "effective", "origin", "why")


@rule("image_cut", "fatal", "trace", "huggingface/transformers#37222")
def image_cut(trace: Trace) -> Iterator[Found]:
    """Truncation that went through a picture: its pixels are all there, its places are not."""
    tokens, images = trace["tokens"], trace["images"]
    cut = tokens[(tokens["kind"] == "cut") & tokens["image"].notna()]
    for (call, number), part in cut.groupby(["call", "image"]):
        own = images[(images["call"] == call) & (images["index"] == number)]
        whole = own["expected_tokens"].max()
        needs = tokens[tokens["call"] == call].groupby("row").size().max()
        kept = tokens[(tokens["call"] == call) & tokens["position"].notna()]
        yield Found(
            {
                "image": int(number),
                "lost": len(part),
                "whole": None if pd.isna(whole) else int(whole),
                "limit": int(kept.groupby("row").size().max()) if len(kept) else 0,
                "needs": int(needs),
            },
            rows_of("tokens", part, "row", "index", "vocab", "image")
            + rows_of("images", own, "expected_tokens", "found_tokens"),
        )


@rule("limit_not_applied", "warning", "trace")
def limit_not_applied(trace: Trace) -> Iterator[Found]:
    """A length that a tokenizer was given, while truncation is off."""
    settings = trace["settings"]
    rows = settings[(settings["setting"] == "max_length") & settings["asked"].notna()]
    rows = rows[rows["scope"].isin(["tokenizer", "processor"]) & rows["used"].eq(False)]
    calls = trace["calls"].set_index("seq")
    for row in rows[rows["event"].isin(calls.index)].to_dict("records"):
        call = calls.loc[row["event"]]
        shape = summary(call).get("input_ids") or [0, 0]
        limit = value(row["asked"])
        if call["kind"] == "encode" and isinstance(limit, int) and shape[-1] > limit:
            yield Found(
                {"limit": limit, "tokens": shape[-1]},
                rows_of("settings", pd.DataFrame([row]), "asked", "effective", "used", "why"),
            )


@rule("counted_without_template", "note", "trace")
@needs_text
def counted_without_template(trace: Trace) -> Iterator[Found]:
    """A message that was encoded alone, to count it, and then stood in a longer prompt."""
    tokens = trace["tokens"]
    encoded = trace["calls"].query("kind == 'encode'")["seq"]
    lone = tokens[tokens["call"].isin(encoded) & tokens["position"].notna()]
    counted = {
        (call, row): part["token_id"].tolist()
        for (call, row), part in lone.groupby(["call", "row"])
    }
    for call in generations(trace):
        earlier = {key: ids for key, ids in counted.items() if key[0] < call.seq}
        for key, ids, whole in _counted_in(call, earlier):
            limit = call.call["position_limit"]
            is_over = not pd.isna(limit) and len(ids) <= limit < whole
            rows = lone[(lone["call"] == key[0]) & (lone["row"] == key[1])]
            yield Found(
                {"counted": len(ids), "whole": whole},
                rows_of("tokens", rows.head(3), "row", "position", "text")
                + call.call_row("position_limit"),
                "warning" if is_over else None,
            )
            break


def _counted_in(
    call: Generating, earlier: dict[tuple[int, int], list[int]]
) -> Iterator[tuple[tuple[int, int], list[int], int]]:
    """Encodings that are a message of this prompt, and how long the prompt is."""
    for _, part in call.prompt.groupby("row"):
        own = part[part["origin"].isin(["user", "assistant", "system", "tool"])]
        words = own["token_id"].tolist()
        for key, ids in earlier.items():
            is_there = any(words[n : n + len(ids)] == ids for n in range(len(words)))
            if ids and not pd.isna(ids).any() and is_there:
                yield key, ids, len(part)
