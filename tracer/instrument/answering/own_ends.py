"""How the sequences that a loop of another making returned have ended, as far as its ids tell.

A stopping test says of a row that it ends; what the loop does then is its own affair: it fills the
row, takes it out, puts it away, or goes on. Knows no run, no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tracer.instrument.answering.choice_tree import Ids, Node, Way

UNKNOWN: Final = "unknown"


class End(NamedTuple):
    """Why a returned sequence ended, its ids without filler, and whether all are choices."""

    finish: str
    chosen: Ids
    is_told: bool


def of(way: Way, fillers: Sequence[int], stop_ids: Sequence[int], *, is_asked: bool) -> End:
    """How a returned sequence ended.

    Args:
        way: The choices that it was made of, and what stands behind them.
        fillers: Ids that a loop may put behind the end of a row.
        stop_ids: Ids that end a row.
        is_asked: Whether a stopping test was asked at all; else an end id alone shows by itself.
    """
    chosen = [node.columns["token_id"] for node in way.path]
    rest = way.rest
    if all(one in fillers for one in rest) and (way.end.reason is not None or not rest):
        reason = _reason(way.end)
        return End(reason if is_asked or reason == "eos" else UNKNOWN, chosen, True)
    if rest[0] in stop_ids and all(one in fillers for one in rest[1:]):
        # Searches with beams put an end id behind a sequence that they set aside with it.
        return End("eos", [*chosen, rest[0]], False)
    if all(one in fillers for one in rest):
        return End(UNKNOWN, chosen, True)
    stop = next((n for n, one in enumerate(rest) if one in stop_ids), len(rest) - 1)
    return End(UNKNOWN, [*chosen, *rest[: stop + 1]], False)


def _reason(node: Node) -> str:
    """Why a row ended that was returned up to this choice; its end may have been cut off."""
    last = node if node.reason is not None else node.last()
    return UNKNOWN if last is None else last.reason or "unfinished"
