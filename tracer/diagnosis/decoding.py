"""Rules on how answers ended, and on what was made of their ids: stops, limits, loops, text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.generating import Generating, generations, needs_text, summary, value
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_LONGEST_PERIOD: Final = 40
_FEWEST_LOOPED: Final = 24
_FEWEST_ROUNDS: Final = 3
_BY_CALLER: Final = frozenset({"call", "config object"})


@rule("end_token_no_stop", "fatal", "trace", "vllm-project/vllm#4182")
@needs_text
def end_token_no_stop(trace: Trace) -> Iterator[Found]:
    """The model said an end token that is no stop id of this call, and went on."""
    for call in generations(trace):
        is_asked = call.settings.get("eos_token_id", {}).get("origin") in _BY_CALLER
        if is_asked and not call.stop_ids:
            continue  # the caller wants no end
        ends = _known_ends(trace, call)
        missing = {token: known for token, known in ends.items() if token not in call.stop_ids}
        said = _said_and_gone_on(call, set(missing))
        if said.empty:
            continue
        token = int(said["token_id"].iloc[0])
        named = said["vocab"].dropna()
        yield Found(
            {
                "token": str(named.iloc[0]) if len(named) else str(token),
                "token_id": token,
                "count": len(said),
                "place": int(said["place"].iloc[0]),
                "known": missing[token],
                "stop_ids": [str(one) for one in call.stop_ids] or ["-"],
            },
            rows_of("tokens", said, "row", "position", "token_id", "vocab", "origin")
            + call.call_row("stop_ids", "finish")
            + call.setting_rows("eos_token_id"),
        )


def _known_ends(trace: Trace, call: Generating) -> dict[int, str]:
    """Ids that somebody takes for an end, and who does: config, template or tokenizer."""
    ends: dict[int, str] = {}
    own = call.settings.get("eos_token_id", {}).get("model_value")
    for one in own if isinstance(own, list) else [own]:
        if one is not None:
            ends[int(one)] = "generation_config"
    for one in summary(call.call).get("config_end_ids") or ():
        ends.setdefault(int(one), "config")
    for one in _written_behind_messages(call):
        ends.setdefault(one, "chat_template")
    for one in _of_tokenizer(trace, call):
        ends.setdefault(one, "tokenizer")
    return ends


def _written_behind_messages(call: Generating) -> set[int]:
    """Special ids that the template puts directly behind a message's last word."""
    prompt = call.prompt
    words = prompt["origin"].isin(["user", "system", "assistant"])
    follows = words.groupby(prompt["row"]).shift(fill_value=False) & (
        prompt["origin"] == "template"
    )
    return set(prompt[follows & (prompt["kind"] == "special")]["token_id"].dropna().astype(int))


def _of_tokenizer(trace: Trace, call: Generating) -> set[int]:
    """The end id of the tokenizer that made the prompt, else of the only one in the trace."""
    told = {} if call.encoding is None else summary(call.encoding)
    if told.get("eos_token_id") is not None:
        return {int(told["eos_token_id"])}
    settings = trace["settings"]
    rows = settings[(settings["scope"] == "tokenizer") & (settings["setting"] == "eos_token_id")]
    ids = {value(one) for one in rows["effective"].dropna()}
    return {int(one) for one in ids} if len(ids) == 1 else set()


def _said_and_gone_on(call: Generating, ids: set[int]) -> pd.DataFrame:
    answer = call.answer
    place = answer.groupby("row").cumcount() + 1
    goes_on = place < answer.groupby("row")["row"].transform("size")
    return answer.assign(place=place)[answer["token_id"].isin(ids) & goes_on]


@rule("no_stop_id", "warning", "trace")
def no_stop_id(trace: Trace) -> Iterator[Found]:
    """No id ends a row, and nobody asked for that."""
    for call in generations(trace):
        row = call.settings.get("eos_token_id", {})
        is_asked = row.get("origin") in _BY_CALLER or row.get("asked") is not None
        ran_on = call.finish.count("length")
        if not call.stop_ids and ran_on and not is_asked and not pd.isna(call.call["stop_ids"]):
            yield Found(
                {"count": ran_on, "whole": len(call.finish)}, call.call_row("stop_ids", "finish")
            )


@rule("cut_at_hidden_limit", "warning", "trace", "huggingface/transformers#40751")
def cut_at_hidden_limit(trace: Trace) -> Iterator[Found]:
    """Rows that ended at a limit which the caller did not give."""
    for call in generations(trace):
        names = [one for one in ("max_new_tokens", "max_length") if one in call.settings]
        if not names or any(call.is_asked(name) for name in ("max_new_tokens", "max_length")):
            continue
        cut = call.finish.count("length")
        if cut:
            new = call.answer.groupby("row").size().max() if len(call.answer) else pd.NA
            origins = [call.settings[name]["origin"] for name in names]
            known = [one for one in origins if one != "derived"]
            yield Found(
                {"count": cut, "whole": len(call.finish), "new": new}
                | {"origin": str((known or ["library"])[0])},
                call.setting_rows(*names) + call.call_row("finish"),
            )


@rule("repetition_loop", "warning", "trace")
@needs_text
def repetition_loop(trace: Trace) -> Iterator[Found]:
    """A row that says the same again and again until something else stops it."""
    for call in generations(trace):
        ends = call.finish
        for row, ids in call.answer_rows.items():
            period = loop_period(ids)
            if period and (row >= len(ends) or ends[row] != "eos"):
                span = _looped(ids, period)
                rows = call.answer[call.answer["row"] == row].tail(span)
                text = rows["text"].head(period).dropna()
                yield Found(
                    {
                        "row": row,
                        "period": period,
                        "rounds": span // period,
                        "count": span,
                        "whole": len(ids),
                        "text": repr("".join(text)[:60]) if len(text) else str(ids[-period:][:8]),
                    },
                    rows_of("tokens", rows, "row", "position", "token_id", "text"),
                )
                break


def loop_period(ids: Sequence[int]) -> int:
    """The shortest period with which a sequence's end repeats; 0 where it does not."""
    for period in range(1, min(_LONGEST_PERIOD, len(ids) // _FEWEST_ROUNDS) + 1):
        if _looped(ids, period) >= max(_FEWEST_LOOPED, _FEWEST_ROUNDS * period):
            return period
    return 0


def _looped(ids: Sequence[int], period: int) -> int:
    """How many ids at the end repeat the one a period before them, the first round included."""
    count = 0
    while count < len(ids) - period and ids[-1 - count] == ids[-1 - count - period]:
        count += 1
    return count + period if count else 0


@rule("prompt_decoded", "warning", "trace")
def prompt_decoded(trace: Trace) -> Iterator[Found]:
    """Text made of all that generate() returned: the prompt stands in front of the answer."""
    calls, spans = trace["calls"], trace["spans"]
    pipelines = calls[calls["kind"] == "pipeline"]["seq"]  # which cut the prompt off the text
    decoded = calls[(calls["kind"] == "output") & ~calls["parent"].isin(pipelines)]
    made = list(generations(trace))
    for _, output in decoded.sort_values("seq").iterrows():
        call = next((one for one in reversed(made) if one.seq < output["seq"]), None)
        told = spans[(spans["parent"] == output["seq"]) & spans["summary"].notna()]
        if call is None or told.empty or call.is_encoder_decoder or call.prompt.empty:
            continue
        if _holds_prompt(call, summary(told.iloc[0])):
            is_chat = call.prompt["origin"].isin(["template", "user"]).any()
            yield Found(
                {"count": int(call.prompt.groupby("row").size().max())},
                rows_of("calls", output.to_frame().T, "name") + rows_of("spans", told, "summary"),
                # A text that is continued may well be wanted whole.
                None if is_chat or _has_template(call) else "note",
            )
            return


def _has_template(call: Generating) -> bool:
    return call.encoding is not None and bool(summary(call.encoding).get("has_template"))


def _holds_prompt(call: Generating, told: dict[str, Any]) -> bool:
    """Whether so many ids were decoded as prompt and answer have, and the text begins alike."""
    length = call.prompt["position"].max() + 1
    new = call.answer.groupby("row").size().max() if len(call.answer) else 0
    rows = told.get("rows") or 0
    if not rows or told.get("ids") != rows * (length + new):
        return False
    texts = [one for one in told.get("texts") or [] if isinstance(one, str)]
    rows_told = [part for _, part in call.prompt.groupby("row")]
    beginnings = [begin for part in rows_told for begin in (_plain(part), _whole(part))]
    if not texts or not any(beginnings):
        return True  # redacted: the number of ids is all there is
    return any(_squeezed(text).startswith(begin) for text in texts for begin in beginnings if begin)


def _plain(part: pd.DataFrame) -> str:
    """The first words of a prompt, without special tokens."""
    words = part[part["kind"] == "text"]["text"].dropna()
    return _squeezed("".join(words))[:20]


def _whole(part: pd.DataFrame) -> str:
    """The same with special tokens, as they are written."""
    return _squeezed("".join(part["text"].fillna(part["vocab"]).dropna()))[:20]


def _squeezed(text: str) -> str:
    return "".join(text.split())
