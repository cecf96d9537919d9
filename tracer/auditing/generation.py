"""Check 6: tokens, choices, cache and positions of generate tell the same story.

Beam search is followed back from the end of each returned sequence; of assisted decoding the drafts
count that stand. Both are left out where a number means something else for them.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Final

import pandas as pd

from tracer.auditing.source import Finding, Source, counted, is_one_of, is_true, told, tuples
from tracer.explain.sentences import Counted

_PLAIN_MODES: Final = "greedy|sampl"  # what a mode begins with
_BEAMS: Final = "beam search"
_UNTOLD: Final = "not followed to the end"
"""Said of a loop that the library does not know: its choices are not all that it returned."""
_CROSSED: Final = "rows change places"
"""Said of such a loop where a row of the forward is not one sequence throughout."""


def _followed(source: Source) -> pd.DataFrame:
    """Finished calls of generate whose choices are all that was returned."""
    calls = source["calls"]
    calls = calls[is_one_of(calls["kind"], "generate") & is_one_of(calls["status"], "ok")]
    return calls[~is_true(calls["mode"].str.contains(_UNTOLD))]


def _single_calls(source: Source) -> set[int]:
    """Of these, the calls where a row is one sequence."""
    calls = _followed(source)
    calls = calls[~is_true(calls["mode"].str.contains(_CROSSED))]
    modes = tuples(calls, "seq", "mode", "beams")
    return {seq for seq, mode, beams in modes if "beam" not in (mode or "") and (beams or 1) == 1}


def _plain_calls(source: Source) -> set[int]:
    """Of these, the calls in which each step chooses one token for a row."""
    calls, steps, choices = source["calls"], source["steps"], source["choices"]
    has_plain_mode = calls["mode"].isna() | is_true(calls["mode"].str.match(_PLAIN_MODES))
    is_assisted = is_true(calls["mode"].str.contains("assist"))
    plain = set(calls.loc[has_plain_mode & ~is_assisted, "seq"])
    plain -= set(steps.loc[is_one_of(steps["kind"], "verify"), "call"])
    plain -= set(choices.loc[is_true(choices["offset"] > 0), "call"])
    return plain & _single_calls(source)


def _crossed_calls(source: Source) -> set[int]:
    """Of these, the calls of a loop whose rows change places."""
    calls = _followed(source)
    return set(calls.loc[is_true(calls["mode"].str.contains(_CROSSED)), "seq"])


def _beam_calls(source: Source) -> set[int]:
    """Finished calls of generate where a row of the forward is one of several beams."""
    calls = source["calls"]
    calls = calls[is_one_of(calls["kind"], "generate") & is_one_of(calls["status"], "ok")]
    modes = tuples(calls, "seq", "mode", "beams")
    followed = {
        seq for seq, mode, beams in modes if (mode or "").startswith(_BEAMS) and (beams or 1) > 1
    }
    return followed & set(source["choices"]["call"])


def check_tokens(source: Source) -> Iterator[Finding]:
    """6: what was chosen and accepted is what stands in the sequence."""
    tokens, choices = source["tokens"], source["choices"]
    kinds = _single_calls(source), _beam_calls(source), _crossed_calls(source)
    single, beams, crossed = (calls & set(tokens["call"]) for calls in kinds)
    accepted = choices[is_true(choices["accepted"])]
    written = tokens[is_one_of(tokens["origin"], "generated")]
    written = written[written["call"].isin(single | beams | crossed)]
    chosen = _ids(accepted[accepted["call"].isin(single)].sort_values(["step", "offset"]))
    strays = set()
    for call, mine in accepted[accepted["call"].isin(beams)].groupby("call"):
        ways, is_whole = _ways(mine)
        chosen |= {(call, sequence): ids for sequence, ids in ways.items()}
        strays |= set() if is_whole else {call}
    stands = _ids(written.sort_values("index"))
    mine = accepted[accepted["call"].isin(crossed)].sort_values(["step", "offset"])
    own = _ids(mine.drop(columns="row").rename(columns={"sequence": "row"}))
    for place in (place for place in stands if place[0] in crossed):
        # What a sequence shares with one before it is told there; the rest is its end.
        shared = max(0, len(stands[place]) - len(own[place]))
        chosen[place] = [*(stands[place][:shared] if place[1] else []), *own[place]]
    places = chosen.keys() | stands.keys()
    short = {place for place in places if len(chosen[place]) != len(stands[place])}
    made, there = (sum(map(len, ids.values())) for ids in (chosen, stands))
    found = told("choices", choices=Counted("choice", made), tokens=Counted("token", there))
    bad = sorted({call for call, _ in short} | strays)
    yield Finding("6 tokens = choices", found, bad, len(places))

    equal = set() if source.is_redacted else places - short
    bad = sorted({place[0] for place in equal if chosen[place] != stands[place]})
    found = counted("rows", len(equal), len(bad))
    if source.is_redacted:
        found = told("ids_redacted")
    yield Finding("6 ids = choices", found, bad, len(equal))


def _ways(accepted: pd.DataFrame) -> tuple[dict[int, list[int]], bool]:
    """Ids of each sequence that beam search returned, followed back from its end.

    Also whether every accepted choice lies on one of these ways.
    """
    columns = ("step", "row", "offset", "token_id", "parent_row", "sequence")
    rows = list(tuples(accepted, *columns))
    before = {
        (step, row): (step, row, token, parent)
        for step, row, offset, token, parent, _ in rows
        if offset == 0
    }
    order = sorted({row[0] for row in rows})
    earlier = dict(zip(order[1:], order, strict=False))
    met, ways = set(), {}
    for step, row, offset, token, parent, sequence in rows:
        if offset == 0:
            continue
        ids, at = [token], (earlier.get(step), parent)
        met.add((step, row, offset))
        while at in before:
            step, row, token, parent = before[at]
            met.add((step, row, 0))
            ids.append(token)
            at = (earlier.get(step), parent)
        ways[sequence] = ids[::-1]
    return ways, met == {row[:3] for row in rows}


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
    bad = set(fed.loc[grown != fed["input_tokens"] - _cut(source, fed), "seq"])
    bad |= _jumps(source, steps)
    found = counted("cached_steps", len(fed), len(bad))
    yield Finding("6 cache growth", found, sorted(bad), len(fed))

    placed = kept.dropna(subset=["last_position", "position_offset"])
    index = placed["last_position"] - placed["position_offset"]
    left = placed["cache_tokens_after"] + _cut(source, placed)
    off = set(placed.loc[index + 1 != left, "seq"])
    off |= _wandering(source, placed)
    found = counted("placed_steps", len(placed), len(off))
    yield Finding("6 positions", found, sorted(off), len(placed))


def _cut(source: Source, steps: pd.DataFrame) -> pd.Series:
    """Drafts that each step cut off the cache again: all but those that stand.

    One token of a step is the model's own; the others that stand were drafted.
    """
    choices = source["choices"]
    # Of a call that failed nobody knows whether its last choice stood; it is the model's own.
    stands = is_true(choices["accepted"]) | choices["accepted"].isna()
    stand = choices[stands].groupby(["call", "step"]).size().to_dict()
    cut = [
        0 if not drafted else drafted + 1 - stand.get((call, step), drafted + 1)
        for call, step, drafted in tuples(steps, "call", "step", "drafted_tokens")
    ]
    return pd.Series(cut, steps.index, dtype="int64")


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
    calls = source["calls"]
    assisted = set(calls.loc[is_true(calls["mode"].str.contains("assist")), "seq"])
    one_row = _plain_calls(source) | (_single_calls(source) & assisted)
    steps = steps[steps["call"].isin(one_row & chosen.keys())]
    steps = steps[~is_true(steps["undone"])].dropna(subset=numbers).sort_values("seq")
    bad, judged = [], 0
    for call, mine in steps.groupby("call"):
        judged += 1
        is_prompt = is_one_of(mine["kind"], "prefill", "chunk")
        prompt = mine["cache_tokens_before"].iloc[0] + mine.loc[is_prompt, "input_tokens"].sum()
        prompt -= mine.loc[is_prompt, "drafted_tokens"].fillna(0).sum()
        if mine["cache_tokens_after"].iloc[-1] != prompt + chosen[call] - 1:
            bad.append(call)
    found = counted("one_sequence", judged, len(bad))
    yield Finding("6 last token not cached", found, bad, judged)
