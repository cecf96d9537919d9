"""Check 6: tokens, choices, cache and positions of generate tell the same story.

Beam search and assisted decoding take part where a number means the same for them as for a
single sequence, and are left out elsewhere.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Final

import pandas as pd

from tracer.auditing.source import Finding, Source, counted, is_one_of, is_true, tuples

_PLAIN_MODES: Final = "greedy|sample"


def _single_calls(source: Source) -> set[int]:
    """Finished calls of generate where a row is one sequence."""
    calls = source["calls"]
    calls = calls[is_one_of(calls["kind"], "generate") & is_one_of(calls["status"], "ok")]
    modes = tuples(calls, "seq", "mode", "beams")
    return {seq for seq, mode, beams in modes if "beam" not in (mode or "") and (beams or 1) == 1}


def _plain_calls(source: Source) -> set[int]:
    """Of these, the calls in which each step chooses one token for a row."""
    calls, steps, choices = source["calls"], source["steps"], source["choices"]
    has_plain_mode = calls["mode"].isna() | is_true(calls["mode"].str.contains(_PLAIN_MODES))
    is_assisted = is_true(calls["mode"].str.contains("assist"))
    plain = set(calls.loc[has_plain_mode & ~is_assisted, "seq"])
    plain -= set(steps.loc[is_one_of(steps["kind"], "verify"), "call"])
    plain -= set(choices.loc[is_true(choices["offset"] > 0), "call"])
    return plain & _single_calls(source)


def check_tokens(source: Source) -> Iterator[Finding]:
    """6: what was chosen and accepted is what stands in the sequence."""
    tokens, choices = source["tokens"], source["choices"]
    judged = _single_calls(source) & set(tokens["call"])
    accepted = choices[is_true(choices["accepted"]) & choices["call"].isin(judged)]
    written = tokens[is_one_of(tokens["origin"], "generated") & tokens["call"].isin(judged)]
    chosen = _ids(accepted.sort_values(["step", "offset"]))
    stands = _ids(written.sort_values("index"))
    places = chosen.keys() | stands.keys()
    short = {place for place in places if len(chosen[place]) != len(stands[place])}
    found = f"{sum(map(len, chosen.values()))} choices, {sum(map(len, stands.values()))} tokens"
    expected = "a row has as many generated tokens as accepted choices"
    bad = sorted({call for call, _ in short})
    yield Finding("6 tokens = choices", expected, found, bad, len(places))

    equal = set() if source.is_redacted else places - short
    bad = sorted({place[0] for place in equal if chosen[place] != stands[place]})
    found = counted(len(equal), "rows", len(bad), "calls with other ids")
    if source.is_redacted:
        found = "the ids were redacted"
    yield Finding("6 ids = choices", "they are the same ids in order", found, bad, len(equal))


def _ids(rows: pd.DataFrame) -> collections.defaultdict[tuple[int, int], list[int]]:
    ids = collections.defaultdict(list)
    for call, row, token in tuples(rows, "call", "row", "token_id"):
        ids[call, row].append(token)
    return ids


def check_cache(source: Source) -> Iterator[Finding]:
    """6: the cache grows by the tokens fed, and positions follow its length."""
    steps = source["steps"]
    steps = steps[is_one_of(steps["status"], "ok") & steps["cache_tokens_after"].notna()]
    kept = steps[~is_true(steps["undone"])]
    fed = kept.dropna(subset=["cache_tokens_before", "input_tokens"])
    grown = fed["cache_tokens_after"] - fed["cache_tokens_before"]
    bad = set(fed.loc[grown != fed["input_tokens"], "seq"]) | _jumps(source, steps)
    found = counted(len(fed), "steps with a cache", len(bad), "where it grew otherwise")
    expected = "the cache grows by the tokens fed, from where the step before left it"
    yield Finding("6 cache growth", expected, found, sorted(bad), len(fed))

    placed = kept.dropna(subset=["last_position", "position_offset"])
    index = placed["last_position"] - placed["position_offset"]
    off = set(placed.loc[index + 1 != placed["cache_tokens_after"], "seq"])
    off |= _wandering(source, placed)
    found = counted(len(placed), "steps with positions", len(off), "elsewhere")
    expected = "last position - offset + 1 = cached tokens, with one offset throughout a call"
    yield Finding("6 positions", expected, found, sorted(off), len(placed))


def _wandering(source: Source, placed: pd.DataFrame) -> set[int]:
    """Steps whose positions run apart from the tokens: the offset differs from the prefill's."""
    plain = placed[placed["call"].isin(_plain_calls(source))].sort_values("seq")
    # Within a chunked prompt a picture still moves the offset; from its end on nothing does.
    plain = plain[~is_one_of(plain["kind"], "chunk")]
    first = plain.groupby("call")["position_offset"].transform("first")
    return set(plain.loc[plain["position_offset"] != first, "seq"])


def _jumps(source: Source, steps: pd.DataFrame) -> set[int]:
    """Steps that do not begin where the step before left the same cache: one was not seen."""
    plain = steps[steps["call"].isin(_plain_calls(source))].sort_values("seq")
    left: dict[tuple[int, str], int | None] = {}
    jumps = set()
    columns = ("call", "cache", "seq", "cache_tokens_before", "cache_tokens_after", "undone")
    for call, cache, seq, before, after, undone in tuples(plain, *columns):
        expected = left.get((call, cache))
        if None not in (expected, before) and expected != before:
            jumps.add(seq)
        left[call, cache] = None if undone else after
    return jumps


def check_last_token(source: Source) -> Iterator[Finding]:
    """6: the last of n generated tokens is chosen but never fed, so never cached."""
    choices, steps = source["choices"], source["steps"]
    counts = choices[is_true(choices["accepted"])].groupby(["call", "row"]).size()
    # A row that ended early is padded with the others: the longest row tells.
    chosen = counts.groupby("call").max().to_dict()
    numbers = ["cache_tokens_before", "cache_tokens_after", "input_tokens"]
    steps = steps[steps["call"].isin(_plain_calls(source) & chosen.keys())]
    steps = steps[~is_true(steps["undone"])].dropna(subset=numbers).sort_values("seq")
    bad, judged = [], 0
    for call, mine in steps.groupby("call"):
        judged += 1
        is_prompt = is_one_of(mine["kind"], "prefill", "chunk")
        prompt = mine["cache_tokens_before"].iloc[0] + mine.loc[is_prompt, "input_tokens"].sum()
        if mine["cache_tokens_after"].iloc[-1] != prompt + chosen[call] - 1:
            bad.append(call)
    found = counted(judged, "calls with one sequence a row", len(bad), "cached otherwise")
    expected = "of n generated tokens the last is never cached: prompt + n - 1 at the end"
    yield Finding("6 last token not cached", expected, found, bad, judged)
