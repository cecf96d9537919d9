"""Who wrote each id of a prompt: template, a message's author, or the tokenizer itself.

A tokenizer that says which characters an id covers is believed. Of the others, the ids' bytes are
followed through the rendered text; where the two part ways the rest is unknown rather than wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.instrument.encodings import Pieces, Place
    from tracer.instrument.prompts import Prompt
    from tracer.instrument.tokens import Placeholders
    from tracer.instrument.vocabulary import Vocabulary


def of(
    prompt: Prompt | None,
    said: Pieces | None,
    ids: Sequence[int],
    vocabulary: Vocabulary | None,
    marks: Placeholders,
    seen: Sequence[int] | None,
) -> list[str]:
    """Origin of each id of a row, those included that truncation cut at either end.

    `seen` is 1 where attention sees an id, 0 at padding; None without a mask.
    """
    added = _added(said, len(ids))
    if prompt is None or vocabulary is None:
        return ["tokenizer" if is_added else "unknown" for is_added in added]
    owners = _owners_in(said.text, prompt, vocabulary, marks) if said and said.text else None
    if owners is not None and said is not None:
        places = [*(one.place for one in said.before), *said.places]
        places += [one.place for one in said.after]
        return [
            "tokenizer" if is_added else _owner(owners, place)
            for place, is_added in zip(places, added, strict=True)
        ]
    return list(_followed(prompt, ids, vocabulary, marks, seen, added))


def _added(said: Pieces | None, count: int) -> list[bool]:
    if said is None:
        return [False] * count
    return [*[False] * len(said.before), *said.added, *[False] * len(said.after)]


def _owner(owners: Sequence[str], place: Place) -> str:
    start, end = place
    if start == end:  # nothing of the text, such as padding
        return "unknown"
    # A space in front belongs to the piece and may be the template's: the last character decides.
    return owners[end - 1] if end <= len(owners) else "unknown"


def _owners_in(
    text: str, prompt: Prompt, vocabulary: Vocabulary, marks: Placeholders
) -> list[str] | None:
    """Origin of each character of the text that the tokenizer was given.

    A processor has written each placeholder of the prompt many times over; None where it has
    changed more than that.
    """
    owners = [
        segment.origin for segment in prompt.segments for _ in range(segment.start, segment.end)
    ]
    if text == prompt.text:
        return owners
    words = [vocabulary.piece(one)[0] for one in (marks.image, marks.video) if one is not None]
    pattern = "|".join(f"(?:{re.escape(word)})+" for word in words if word)
    if not pattern:
        return None
    original, given = re.split(f"({pattern})", prompt.text), re.split(f"({pattern})", text)
    if original[::2] != given[::2] or any(
        not now.startswith(before) for before, now in zip(original[1::2], given[1::2], strict=True)
    ):
        return None
    found: list[str] = []
    cursor = 0
    for before, now in zip(original, given, strict=True):
        own = owners[cursor : cursor + len(before)]
        found += own if before == now else [own[0]] * len(now)
        cursor += len(before)
    return found


def _followed(
    prompt: Prompt,
    ids: Sequence[int],
    vocabulary: Vocabulary,
    marks: Placeholders,
    seen: Sequence[int] | None,
    added: Sequence[bool],
) -> Iterator[str]:
    """Origins by bytes. One placeholder of the text became many ids: repeats do not advance."""
    raw = prompt.text.encode("utf-8", "surrogatepass")
    owners = [
        segment.origin
        for segment in prompt.segments
        for _ in prompt.text[segment.start : segment.end].encode("utf-8", "surrogatepass")
    ]
    cursor, before, lost = 0, None, False
    for place, token_id in enumerate(ids):
        if seen is not None and not seen[place]:
            yield "pad"
            continue
        if added[place]:
            yield "tokenizer"
            continue
        piece = vocabulary.piece(token_id)[1]
        if marks.kind(token_id) and token_id == before and not _at(raw, cursor, piece):
            yield "template"
            continue
        before = token_id
        lost = lost or piece is None or not _at(raw, cursor, piece)
        if lost or piece is None:
            yield "unknown"
            continue
        yield owners[cursor] if cursor < len(owners) else "unknown"
        cursor += len(piece)


def _at(raw: bytes, cursor: int, piece: bytes | None) -> bool:
    return piece is not None and raw.startswith(piece, cursor)
