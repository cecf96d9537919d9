"""Tokens in their sequence: the strip of prompt and answer, candidates, and processors' effects.

A strip is shared by all stops of its sequence; a stop only says how far it had come.
"""

from __future__ import annotations

import bisect
import functools
import math
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracer.replaying.rows import LONGEST_CELL, Row, Rows
from tracer.views.cells import bounded

_MOST_CANDIDATES: Final = 20
_MOST_ROWS: Final = 8
"""Rows of a batch that a call shows; each token shows its own."""
_RUNS: Final = ("image", "video", "pad")
"""Kinds of which neighbours are one chip: a picture has thousands of placeholders."""

Chip = list[Any]


class Sequences:
    """The sequences of one trace, by call and row of the batch."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._strips: dict[str, dict[str, Any]] = {}
        self._ways: dict[int, dict[tuple[int, int, int], Row]] = {}
        self._made: dict[str, list[tuple[int, int]]] = {}
        # Every stop inside a call asks anew, and its prompt may have a hundred thousand tokens.
        self._crosses = functools.cache(self._find_crossing)
        self._first_rows = functools.cache(self._find_first_rows)
        self._names = functools.cache(self._find_names)
        self._special_ids = functools.cache(self._find_special_ids)
        self._prompt_rows = functools.cache(self._find_prompt_rows)

    def strip(self, key: str) -> dict[str, Any]:
        """The chips of a sequence; the contract names the fields.

        Raises:
            KeyError: The key is not one that `token` or `place` gave.
        """
        if key not in self._strips:
            self._strips[key] = self._make(*(int(part) for part in key.split(":")))
        return self._strips[key]

    def place(self, call: int, step: int) -> dict[str, Any] | None:
        """Strips of a call's first rows before a forward; all of the prompt where step is -1.

        Of beams, which change their rows, the sequences that were returned.
        """
        rows = self._first_rows(call)
        if not rows:
            return None
        if self._crosses(call) and step > 0:
            return self._until(call, step - 1, min(row for _, row, _ in self._choices(call)), 0)
        name = "sequence" if self._crosses(call) else "row"
        told = [{**self._at(f"{call}:{row}", call, row, step), name: row} for row in rows]
        return told[0] if len(told) == 1 else {**told[0], "others": told[1:]}

    def token(self, call: int, step: int, row: int, offset: int) -> dict[str, Any]:
        """A chosen token with what else might have come, and why it did not."""
        choice = self._choices(call).get((step, row, offset), {})
        at = self._until(call, step, row, offset) if self._crosses(call) else None
        at = at or self._at(f"{call}:{row}", call, row, step, offset)
        told: dict[str, Any] = {**at, **self._candidates(choice, call, step, row, offset)}
        key = (call, step, row, offset)
        effects = sorted(self._rows.lookup("effects", *_KEY).rows(*key), key=_by_index)
        told["effects"] = [
            [
                one["class_name"],
                one["removed_tokens"],
                *(_real(one[name]) for name in ("chosen_delta", "entropy_before", "entropy_after")),
            ]
            for one in effects
        ]
        names = self._names(call)
        told["stops"] = [
            [
                names.get(one["token_id"]) or _id_text(one["token_id"]),
                one["token_rank"],
                _real(one["probability"]),
            ]
            for one in self._rows.lookup("stops", *_KEY).rows(*key)
        ]
        return told

    def _candidates(
        self, choice: Row, call: int, step: int, row: int, offset: int
    ) -> dict[str, Any]:
        found = self._rows.lookup("candidates", *_KEY).rows(call, step, row, offset)
        found.sort(key=lambda one: one["token_rank"] if one["token_rank"] is not None else 1 << 40)
        chosen = choice.get("token_id")
        bars = [
            {
                "rank": one["token_rank"],
                "text": _shown(one["text"]),
                "id": one["token_id"],
                "raw": _real(one["raw_probability"]),
                "probability": _real(one["probability"]),
                "chosen": chosen is not None and one["token_id"] == chosen,
            }
            for one in found[:_MOST_CANDIDATES]
        ]
        if choice and not any(bar["chosen"] for bar in bars) and chosen is not None:
            bars.append(_unlisted(choice))
        rest = [_rest(bars, name) for name in ("raw", "probability")]
        return {"candidates": bars, "rest": rest}

    def _choices(self, call: int) -> dict[tuple[int, int, int], Row]:
        """The choices of a call by step, row and offset, in the order in which they were made."""
        if call not in self._ways:
            lookup = self._rows.lookup("choices", *_KEY)
            numbers = lookup.numbers(call).tolist()
            by_place = {
                (one["step"], one["row"], one["offset"] or 0): one | {"number": number}
                for number, one in zip(numbers, lookup.rows(call), strict=True)
                if one["step"] is not None and one["row"] is not None
            }
            self._ways[call] = dict(sorted(by_place.items(), key=_by_time))
        return self._ways[call]

    def _find_crossing(self, call: int) -> bool:
        """Whether sequences change their row, as beams do."""
        return any(
            one["parent_row"] is not None and one["parent_row"] != row
            for (_, row, _), one in self._choices(call).items()
        )

    def _find_first_rows(self, call: int) -> list[int]:
        """The first rows of a call, or what it returned of beams; none where it has no sequence."""
        choices = self._choices(call)
        if self._crosses(call):
            found = {one["sequence"] for one in choices.values()} - {None}
            return sorted(found)[:_MOST_ROWS] or [0]
        found = {row for _, row, _ in choices}
        if not found:
            found = set(self._prompt_columns(call, "row")["row"].to_pylist())
        return sorted(found)[:_MOST_ROWS]

    def _at(self, key: str, call: int, row: int, step: int, offset: int = 0) -> dict[str, Any]:
        if key not in self._made:
            self._made[key] = [(one[0], one[2]) for one in self._way(call, row)]
        before = bisect.bisect_left(self._made[key], (step, offset))
        return {"strip": key, "upto": self.strip(key)["prompt"] + before}

    def _way(self, call: int, row: int) -> list[tuple[int, int, int]]:
        """The tokens of a row that stayed; where rows cross, those of a returned sequence."""
        choices = self._choices(call)
        if self._crosses(call):
            ends = [at for at, one in choices.items() if one["sequence"] == row] or list(choices)[
                -1:
            ]
            return _backwards(choices, max(ends))
        return [at for at, one in choices.items() if at[1] == row and one["accepted"] is not False]

    def _until(self, call: int, step: int, row: int, offset: int) -> dict[str, Any]:
        """The strip of one beam's own way up to a token."""
        key = f"{call}:{row}:{step}:{offset}"
        chips = self.strip(key)["chips"]
        return {"strip": key, "upto": max(len(chips) - 1, 0)}

    def _make(self, call: int, row: int, step: int = -1, offset: int = 0) -> dict[str, Any]:
        choices = self._choices(call)
        way = self._way(call, row) if step < 0 else _backwards(choices, (step, row, offset))
        start = _first_of(choices, way[0]) if way else row
        prompt = self._prompt(call, start)
        special = self._special_ids(call)
        answer = [_chosen(choices[at], special) for at in way]
        if not choices:  # what was chosen is told by the sequence alone
            answer = self._prompt(call, start, generated=True)
        chips = [*prompt, *answer]
        made = [choices[at]["number"] for at in way]
        return {"chips": chips, "prompt": len(prompt), "made": made, **_lacking(chips)}

    def _prompt(self, call: int, row: int, *, generated: bool = False) -> list[Chip]:
        numbers = self._rows.lookup("tokens", "event", "row").numbers(
            call, self._prompt_row(call, row)
        )
        # A prompt may have a hundred thousand tokens: no dictionary for each.
        found = self._rows.table("tokens").select(list(_CHIP)).take(pa.array(numbers))
        columns = [found[name].to_pylist() for name in _CHIP]
        chips: list[Chip] = []
        for _, kind, text, origin, token in sorted(zip(*columns, strict=True), key=_by_first):
            # What was chosen comes from choices where they are, with its probability.
            if kind == "cut" or (origin == "generated") is not generated:
                continue
            if kind in _RUNS and chips and chips[-1][:2] == [_shown(text), kind]:
                chips[-1][4] += 1
            else:
                chips.append([_shown(text), kind or "text", origin, None, 1, token])
        return chips

    def _prompt_row(self, call: int, row: int) -> int:
        """The prompt of a row: with beams or several sequences many rows share one."""
        asked = self._prompt_rows(call)
        rows = 1 + max((at[1] for at in self._choices(call)), default=0)
        return row * asked // rows if rows > asked else row

    def _find_prompt_rows(self, call: int) -> int:
        row = pc.max(self._prompt_columns(call, "row")["row"]).as_py()
        return 1 + (row or 0)

    def _find_special_ids(self, call: int) -> set[int]:
        found = self._prompt_columns(call, "token_id", "kind")
        ids = found.filter(pc.equal(found["kind"], "special"))["token_id"]
        return set(pc.drop_null(pc.unique(ids)).to_pylist())

    def _find_names(self, call: int) -> dict[int, str]:
        """Texts of ids as the prompt of a call shows them."""
        found = self._prompt_columns(call, "token_id", "vocab")
        pairs = zip(found["token_id"].to_pylist(), found["vocab"].to_pylist(), strict=True)
        return {token: vocab for token, vocab in pairs if vocab}

    def _prompt_columns(self, call: int, *names: str) -> pa.Table:
        numbers = self._rows.lookup("tokens", "event", "row").numbers(call)
        return self._rows.table("tokens").select(list(names)).take(pa.array(numbers))


_KEY: Final = ("call", "step", "row", "offset")
_CHIP: Final = ("index", "kind", "text", "origin", "token_id")


def _shown(text: str | None) -> str | None:
    return None if text is None else bounded(text, LONGEST_CELL)


def _id_text(token: int | None) -> str:
    return "·" if token is None else f"#{token}"


def _chosen(choice: Row, special: set[int]) -> Chip:
    kind = "special" if choice["token_id"] in special else "text"
    share = _real(choice["probability"])
    return [_shown(choice["text"]), kind, "generated", share, 1, choice["token_id"]]


def _lacking(chips: list[Chip]) -> dict[str, bool]:
    """Whether the texts were taken out, ids with them, or whether no tokenizer told any."""
    is_silent = bool(chips) and all(chip[0] is None for chip in chips)
    has_ids = any(chip[5] is not None for chip in chips)
    return {"redacted": is_silent and not has_ids, "unnamed": is_silent and has_ids}


def _by_time(item: tuple[tuple[int, int, int], Row]) -> tuple[int, int, int]:
    step, row, offset = item[0]
    return step, offset, row


def _by_first(cells: tuple[Any, ...]) -> int:
    return cells[0] if cells[0] is not None else -1


def _by_index(row: Row) -> int:
    return row["index"] if row["index"] is not None else -1


def _backwards(
    choices: dict[tuple[int, int, int], Row], at: tuple[int, int, int]
) -> list[tuple[int, int, int]]:
    """The tokens that led to one, along the rows that each continued."""
    way = []
    step, row, offset = at
    while (step, row, offset) in choices:
        way.append((step, row, offset))
        step, row, offset = step - 1, _first_of(choices, (step, row, offset)), 0
    return way[::-1]


def _first_of(choices: dict[tuple[int, int, int], Row], at: tuple[int, int, int]) -> int:
    """The row that a token continued."""
    parent = choices[at]["parent_row"]
    return at[1] if parent is None else int(parent)


def _unlisted(choice: Row) -> dict[str, Any]:
    """The chosen token where it is among no recorded candidates."""
    raw, log = choice["raw_logprob"], choice["logprob"]
    return {
        "rank": None,
        "text": choice["text"],
        "id": choice["token_id"],
        "raw": None if raw is None else _real(math.exp(min(raw, 0.0))),
        "probability": None if log is None else _real(math.exp(min(log, 0.0))),
        "chosen": True,
    }


def _rest(bars: list[dict[str, Any]], name: str) -> float | None:
    known = [bar[name] for bar in bars if bar[name] is not None]
    return _real(max(1 - sum(known), 0.0)) if known else None


def _real(value: float | None) -> float | None:
    """A number that JSON can hold, of as many digits as anyone reads."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
