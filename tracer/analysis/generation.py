"""Questions about a generate(): settings, time, cache and processors, each for one call.

Every function takes the seq of a call, or None for the last generate of the trace; without such a
call its frame is empty.
"""

from __future__ import annotations

import math

import pandas as pd

from tracer.trace import Trace

TIME_PARTS = ["prepare_ns", "forward_ns", "processors_ns", "select_ns", "stop_ns"]
"""What a step's time is made of, in order."""


def generate_calls(trace: Trace) -> list[int]:
    """The seqs of all generate calls in order, without those that ran inside another one.

    An assistant that drafts tokens generates inside the generate that it helps.
    """
    columns = ["seq", "start_ns", "duration_ns", "thread", "rank"]
    calls = trace.read("calls", columns, [("kind", "==", "generate")]).sort_values("seq")
    ends: dict[object, float] = {}
    outer = []
    for seq, start, duration, *place in calls.itertuples(index=False):
        where = tuple(place)
        if start < ends.get(where, -math.inf):
            continue
        # One that never ended encloses all that came after it on its thread.
        ends[where] = math.inf if pd.isna(duration) else start + duration
        outer.append(int(seq))
    return outer


def call_or_last(trace: Trace, call: int | None = None) -> int:
    """The call asked for, else the last generate; -1, which no call has, where there is none."""
    return call if call is not None else max(generate_calls(trace), default=-1)


def foreign_caches(trace: Trace) -> set[int]:
    """Calls whose passed cache was built from other ids than their prompt begins with."""
    calls = trace.read("calls", ["seq", "cache_first_difference"])
    return {int(seq) for seq in calls.loc[calls["cache_first_difference"].notna(), "seq"]}


def settings_in_force(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Settings that someone chose, or that follow from such; the library's defaults left out.

    Returns:
        Columns setting, asked, effective, origin, used, why.
    """
    columns = ["setting", "asked", "effective", "origin", "used", "why"]
    where = [("call", "==", call_or_last(trace, call)), ("scope", "==", "generate")]
    settings = trace.read("settings", columns, where)
    return settings[settings["origin"] != "library"].reset_index(drop=True)


def time_split(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Where the time of prefill and of decoding went, added up over the steps.

    Returns:
        One row a kind of step: kind, steps, input_tokens, the five parts of `TIME_PARTS`,
        duration_ns, and step_ns (a step on average).
    """
    columns = ["kind", "step", "input_tokens", *TIME_PARTS, "duration_ns"]
    steps = trace.read("steps", columns, [("call", "==", call_or_last(trace, call))])
    grouped = steps.sort_values("step").groupby("kind", sort=False)
    sums = grouped[["input_tokens", *TIME_PARTS, "duration_ns"]].sum(min_count=1)
    sums.insert(0, "steps", grouped.size())
    sums["step_ns"] = (sums["duration_ns"] / sums["steps"]).round().astype("Int64")
    return sums.reset_index()


def cache_account(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Tokens, forwards and cache at the end: of n tokens generated the last is never cached.

    Returns:
        One row a sequence of the batch: row, prompt_tokens, generated_tokens, forwards,
        cached_tokens, sequence_tokens, uncached_tokens (sequence less cached; missing where the
        passed cache was built from other ids, which are no part of the sequence).
    """
    call = call_or_last(trace, call)
    tokens = trace.read("tokens", ["row", "position", "origin"], [("call", "==", call)])
    tokens = tokens[tokens["position"].notna()]
    is_new = tokens["origin"] == "generated"
    account = pd.DataFrame(
        {
            "prompt_tokens": (~is_new).groupby(tokens["row"]).sum(),
            "generated_tokens": is_new.groupby(tokens["row"]).sum(),
        }
    ).astype("Int64")
    steps = trace.read("steps", ["cache_tokens_after"], [("call", "==", call)])
    account["forwards"] = len(steps)
    account["cached_tokens"] = steps["cache_tokens_after"].max()
    account["sequence_tokens"] = account["prompt_tokens"] + account["generated_tokens"]
    account["uncached_tokens"] = account["sequence_tokens"] - account["cached_tokens"]
    if call in foreign_caches(trace):
        account["uncached_tokens"] = pd.array([pd.NA] * len(account), dtype="Int64")
    return account.reset_index()


def processor_effects(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """What each logits processor did, on average over the steps, in the order that they run.

    Returns:
        Columns index, class_name, steps, and the means removed_tokens, chosen_delta,
        entropy_before, entropy_after (nats).
    """
    means = ["removed_tokens", "chosen_delta", "entropy_before", "entropy_after"]
    columns = ["index", "class_name", *means]
    effects = trace.read("effects", columns, [("call", "==", call_or_last(trace, call))])
    grouped = effects.groupby(["index", "class_name"])
    found = grouped[means].mean()
    found.insert(0, "steps", grouped.size())
    return found.reset_index()
