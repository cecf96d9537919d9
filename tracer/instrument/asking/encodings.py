"""What an encoding call made, kept as plain numbers until a model call takes it up.

A tokenizer says more of a row than its ids: which piece of the text each of them covers, which of
them it added itself, and what truncation cut off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tracer.instrument.asking.images import Image
from tracer.instrument.asking.prompts import Prompt
from tracer.instrument.asking.tokens import Placeholders
from tracer.recorder import Recorder

Place = tuple[int, int]
"""First character of a text that an id covers, and the one after the last."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """An id that truncation removed."""

    token_id: int
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Pieces:
    """What the tokenizer said of one row, an entry an id that it kept."""

    text: str | None
    places: list[Place]
    added: list[bool]
    before: list[Cut]
    after: list[Cut]

    @property
    def cut(self) -> int:
        """How many ids truncation removed."""
        return len(self.before) + len(self.after)


@dataclasses.dataclass(slots=True)
class Encoding:
    """What an encoding call produced, as plain numbers.

    Attributes:
        times: Rows that stand for each row of the text: more than 1 where generate() repeats them.
        source: The encoding that this one repeats.
    """

    event: int
    rows: list[list[int]]
    mask: list[list[int]] | None
    tokenizer: Any
    prompts: list[Prompt | None]
    pieces: list[Pieces | None]
    placeholders: Placeholders
    images: list[Image]
    consumed: bool = False
    times: int = 1
    source: Encoding | None = None

    def prompt(self, row: int) -> Prompt | None:
        """The rendered prompt behind a row; None where none is known."""
        place = row // self.times
        return self.prompts[place] if place < len(self.prompts) else None

    def said(self, row: int) -> Pieces | None:
        """What the tokenizer said of a row."""
        place = row // self.times
        return self.pieces[place] if place < len(self.pieces) else None

    def repeated(self, times: int) -> Encoding:
        """The same with each row several times in succession, as generate() repeats them."""
        whole = self.source or self
        rows, mask = repeat(whole.rows, times), whole.mask and repeat(whole.mask, times)
        return dataclasses.replace(whole, rows=rows, mask=mask, times=times, source=whole)

    def of(self, places: list[int]) -> Encoding | None:
        """The same with the rows at these places; None where its pictures would change places."""
        whole = self.source or self
        rows = [place // self.times for place in places]
        times = len(rows) // (len(whole.rows) or 1)
        if rows == repeat(list(range(len(whole.rows))), times):
            return whole.repeated(times)
        if whole.images:
            return None

        def at(every: list[Any]) -> list[Any]:
            return [every[row] if row < len(every) else None for row in rows]

        return dataclasses.replace(
            whole,
            rows=at(whole.rows),
            mask=whole.mask and at(whole.mask),
            prompts=at(whole.prompts),
            pieces=at(whole.pieces),
            source=whole,
        )

    def consume(self) -> None:
        """A model call has taken it: that call tells its tokens and images."""
        (self.source or self).consumed = True


def repeat(rows: list[Any], times: int) -> list[Any]:
    """Each row several times in succession, as generate() repeats what it is given."""
    return [row for row in rows for _ in range(times)]


def known(recorder: Recorder) -> list[Encoding]:
    """Encodings of the recording so far, oldest first."""
    encodings: list[Encoding] = recorder.notes.setdefault("encodings", [])
    return encodings


def find(recorder: Recorder, rows: list[list[int]]) -> Encoding | None:
    """The newest encoding whose ids are exactly these, each row once or several times."""
    for one in reversed(known(recorder)):
        times, rest = divmod(len(rows), len(one.rows) or 1)
        if one.rows and not rest and rows == repeat(one.rows, times):
            return one if times == 1 else one.repeated(times)
    return None


def find_by_images(recorder: Recorder, grids: list[tuple[int, ...]]) -> Encoding | None:
    """The newest encoding whose images have these grids; its ids were changed since."""
    for one in reversed(known(recorder)):
        if grids and [image.grid for image in one.images] == grids:
            return one
    return None


def pieces_of(result: Any, texts: Sequence[Any], stride: int, side: str) -> list[Pieces | None]:
    """What a tokenizer's result tells of each row; None where it tells nothing.

    Args:
        result: A `BatchEncoding`; only one of a fast tokenizer knows more than ids.
        texts: The texts that the tokenizer was given, a row each.
        stride: Ids that each part which was cut off repeats of its neighbour.
        side: The side on which truncation cuts.
    """
    encodings = getattr(result, "encodings", None)
    if not encodings:
        return []
    samples = result.get("overflow_to_sample_mapping")  # asked for: each part is a row of its own
    rows = range(len(encodings)) if samples is None else [int(one) for one in samples]
    return [
        _pieces(one, texts[row] if row < len(texts) else None, stride, side, samples is None)
        for one, row in zip(encodings, rows, strict=False)
    ]


def _pieces(encoding: Any, text: Any, stride: int, side: str, keeps_cut: bool) -> Pieces:
    sequences, seen = encoding.sequence_ids, encoding.attention_mask
    is_plain = isinstance(text, str) and not any(sequences)  # neither words nor a pair of texts
    cut = _cut(encoding.overflowing, stride, side) if keeps_cut else []
    return Pieces(
        text if is_plain else None,
        encoding.offsets,
        [one is None and bool(mask) for one, mask in zip(sequences, seen, strict=True)],
        cut if side == "left" else [],
        cut if side != "left" else [],
    )


def _cut(parts: Sequence[Any], stride: int, side: str) -> list[Cut]:
    """Ids of the parts that were cut off, in the order of the text."""
    found: list[Cut] = []
    for part in parts:
        own = [
            Cut(token_id, place)
            for token_id, place, sequence in zip(
                part.ids, part.offsets, part.sequence_ids, strict=True
            )
            if sequence is not None
        ]
        if side == "left":  # parts go from the kept one towards the beginning
            found = own[: len(own) - stride] + found
        else:
            found += own[stride:]
    return found
