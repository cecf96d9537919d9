"""Rules on the KV cache: off, never filled, not carried on, not the prompt's beginning, grown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.generating import Generating, generations, needs_text, summary
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_STEPS: Final = ("step", "kind", "input_tokens", "cache_tokens_before", "cache_tokens_after")
_REUSE: Final = ("cache", "cache_why", "cache_prefix_tokens", "cache_first_difference")
_FEWEST_AGAIN: Final = 8
_UNFILLED: Final = "never filled"
"""Said of a cache that was handed over, and that the model put nothing into."""


@rule("cache_off", "warning", "trace")
def cache_off(trace: Trace) -> Iterator[Found]:
    """Every step fed the whole sequence again, since nothing was cached."""
    for call in generations(trace):
        steps = call.steps[call.steps["drafted_tokens"].isna()]
        again = steps[(steps["kind"] == "decode") & (steps["input_tokens"] > 1)]
        if again.empty or again["cache"].notna().any():
            continue
        fed, prompt = int(steps["input_tokens"].sum()), int(steps["input_tokens"].iloc[0])
        yield Found(
            {
                "fed": fed,
                "needed": prompt + len(steps) - 1,
                "steps": len(steps),
                "setting": str(call.effective("use_cache")),
            },
            rows_of("steps", again, *_STEPS) + call.setting_rows("use_cache"),
        )


@rule("cache_unfilled", "fatal", "trace")
def cache_unfilled(trace: Trace) -> Iterator[Found]:
    """Steps that fed the newest token alone, to layers that were given no cache."""
    for call in generations(trace):
        if _UNFILLED not in str(call.call["cache_why"]):
            continue
        # A model with a state of its own needs no cache; checkpointed layers have nothing else.
        if not summary(call.call).get("gradient_checkpointing"):
            continue
        steps = call.steps
        before = steps["input_tokens"].iloc[0] + steps["step"] - steps["step"].iloc[0]
        blind = steps[(steps["kind"] == "decode") & (steps["input_tokens"] < before)]
        if not blind.empty:
            yield Found(
                {"steps": len(blind), "unseen": int((before - steps["input_tokens"]).max())},
                rows_of("steps", blind, *_STEPS)
                + call.call_row("cache_class", "cache_why", "training", "summary"),
            )


@rule("cache_not_reused", "warning", "trace")
@needs_text
def cache_not_reused(trace: Trace) -> Iterator[Found]:
    """Turns of one conversation that computed what the turn before had computed already."""
    earlier: list[Generating] = []
    again: list[tuple[Generating, int]] = []
    for call in generations(trace):
        shared = max((_continued(call, one) for one in earlier), default=0)
        if shared >= _FEWEST_AGAIN and _is_unused(call):
            again.append((call, shared))
        earlier.append(call)
    if again:
        calls = pd.concat([call.call.to_frame().T for call, _ in again])
        prompts = sum(len(call.prompt) for call, _ in again)
        yield Found(
            {
                "turns": len(again),
                "tokens": sum(shared for _, shared in again),
                "whole": prompts,
                "time_ns": calls["recomputed_ns"].dropna().sum(),
            },
            rows_of("calls", calls, "name", "recomputed_tokens", "recomputed_ns", "cache_why"),
        )


def _is_unused(call: Generating) -> bool:
    return not str(call.call["cache_why"]).startswith("passed")


def _continued(call: Generating, before: Generating) -> int:
    """Leading ids of a prompt that an earlier call had: its prompt whole, and of its answer."""
    if call.call["model"] != before.call["model"] or call.is_encoder_decoder:
        return 0
    found = 0
    for row, ids in before.prompt_rows.items():
        whole = [*ids, *before.answer_rows.get(row, [])]
        for own, prompt in call.prompt_rows.items():
            shared = common_length(whole, prompt)
            # An answer that is encoded anew may begin with other ids; it is still the answer.
            later = call.prompt[(call.prompt["row"] == own) & (call.prompt["position"] >= len(ids))]
            is_answered = shared > len(ids) or (later["origin"] == "assistant").any()
            if shared >= len(ids) and len(prompt) > len(ids) and is_answered:
                found = max(found, shared)
    return found


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading ids two sequences share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


@rule("cache_not_prefix", "fatal", "trace", "huggingface/transformers#37078")
def cache_not_prefix(trace: Trace) -> Iterator[Found]:
    """A cache that was passed and that holds other ids than the prompt begins with."""
    for call, grown in _passed_wrongly(trace):
        if grown is None:
            yield Found(_told(call), call.call_row(*_REUSE) + _first_steps(call))


@rule("cache_grown", "fatal", "trace", "huggingface/transformers#24841")
def cache_grown(trace: Trace) -> Iterator[Found]:
    """A cache that was passed again, after another call had written its own tokens into it."""
    for call, grown in _passed_wrongly(trace):
        if grown is not None:
            steps = grown.steps
            yield Found(
                _told(call)
                | {
                    "earlier_seq": grown.seq,
                    "before": int(steps["cache_tokens_before"].iloc[0]),
                    "after": int(steps["cache_tokens_after"].max()),
                },
                call.call_row(*_REUSE) + grown.call_row(*_REUSE) + _first_steps(call),
            )


def _told(call: Generating) -> dict[str, int]:
    """Numbers of a call whose passed cache and prompt part ways."""
    cached = call.steps["cache_tokens_before"].dropna()
    prefix = int(call.call["cache_prefix_tokens"])
    # A call that failed before its first forward: what others had left in the cache.
    steps = call.trace["steps"]
    left = steps[(steps["cache"] == call.call["cache"]) & (steps["seq"] < call.seq)]
    held = left["cache_tokens_after"].max()
    holds = int(cached.iloc[0]) if len(cached) else prefix if pd.isna(held) else int(held)
    return {
        "cached": holds,
        "prefix": prefix,
        "back": holds - prefix,
        "place": int(call.call["cache_first_difference"]),
        "prompt": int(call.prompt.groupby("row").size().max()) if len(call.prompt) else prefix,
    }


def _first_steps(call: Generating) -> tuple:  # type: ignore[type-arg]
    return rows_of("steps", call.steps.head(2), *_STEPS)


def _passed_wrongly(trace: Trace) -> Iterator[tuple[Generating, Generating | None]]:
    """Calls with a cache that is not their prompt's beginning, and the call that had grown it."""
    earlier: list[Generating] = []
    for call in generations(trace):
        if not pd.isna(call.call["cache_first_difference"]):
            same = [one for one in earlier if one.call["cache"] == call.call["cache"]]
            yield call, next((one for one in reversed(same) if _has_grown(call, one)), None)
        earlier.append(call)


def _has_grown(call: Generating, before: Generating) -> bool:
    """Whether the earlier call made the cache longer than this one takes it to be.

    Both begin with what the cache held at first. A turn that goes on behind the earlier call's
    prompt does know of it: there it is the answer that was encoded otherwise.
    """
    lengths = before.steps["cache_tokens_before"].dropna()
    held, place = int(lengths.iloc[0]) if len(lengths) else 0, call.call["cache_first_difference"]
    prompt = max(map(len, call.prompt_rows.values()), default=0)
    asked = max(map(len, before.prompt_rows.values()), default=0)
    goes_on = prompt > asked and place >= asked
    return held > 0 and place >= held and not goes_on
