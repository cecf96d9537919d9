"""The `tokens` table: every position of a sequence, what it is and who wrote it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracer.instrument.prompts import Prompt
from tracer.instrument.vocabulary import TextAssembler, Vocabulary
from tracer.recorder import Recorder

if TYPE_CHECKING:
    from tracer.instrument.inputs import Encoding


@dataclasses.dataclass(frozen=True, slots=True)
class Placeholders:
    """Ids that stand for one merged cell of an image or video."""

    image: int | None
    video: int | None

    @classmethod
    def of(cls, owner: Any) -> Placeholders:
        """From a processor, or the configuration of a model (its name changed over time)."""
        return cls(_placeholder(owner, "image"), _placeholder(owner, "video"))

    def kind(self, token_id: int) -> str | None:
        """image, video or None."""
        if token_id == self.image and self.image is not None:
            return "image"
        return "video" if token_id == self.video and self.video is not None else None


def _placeholder(owner: Any, kind: str) -> int | None:
    for name in (f"{kind}_token_id", f"{kind}_token_index"):
        value = getattr(owner, name, None)
        if isinstance(value, int):
            return value
    # Older processors know the token, not its id.
    text, tokenizer = getattr(owner, f"{kind}_token", None), getattr(owner, "tokenizer", None)
    if not isinstance(text, str) or tokenizer is None:
        return None
    found = tokenizer.convert_tokens_to_ids(text)
    return found if isinstance(found, int) and found != tokenizer.unk_token_id else None


def vocabulary_of(recorder: Recorder, tokenizer: Any) -> Vocabulary | None:
    """The vocabulary of a tokenizer, made once a recording."""
    if tokenizer is None:
        return None
    made: dict[int, tuple[Any, Vocabulary]] = recorder.notes.setdefault("vocabularies", {})
    if id(tokenizer) not in made:
        made[id(tokenizer)] = (tokenizer, Vocabulary(tokenizer))
    return made[id(tokenizer)][1]


def tell(
    recorder: Recorder,
    event: int,
    encoding: Encoding | None,
    rows: Sequence[Sequence[int]],
    mask: Sequence[Sequence[int]] | None,
    *,
    placeholders: Placeholders | None = None,
    tokenizer: Any = None,
    positions: Sequence[Sequence[Sequence[int]]] | None = None,
) -> None:
    """Write the tokens of a prompt, as facts of `event`.

    `positions` are three-axis positions as axis, row, index; None where there is one axis only.
    """
    tokenizer = tokenizer if encoding is None else encoding.tokenizer
    vocabulary = vocabulary_of(recorder, tokenizer)
    marks = placeholders or (encoding.placeholders if encoding else Placeholders(None, None))
    used = {"image": 0, "video": 0}  # placeholders so far; pictures are numbered through all rows
    for row, ids in enumerate(rows):
        prompt = encoding.prompts[row] if encoding and row < len(encoding.prompts) else None
        seen = mask[row] if mask is not None and row < len(mask) else None
        origins = list(_origins(prompt, ids, vocabulary, marks, seen))
        pictures = list(_pictures(ids, marks, encoding, used))
        assembler = TextAssembler(vocabulary) if vocabulary else None
        last = len(ids) - 1
        for index, token_id in enumerate(ids):
            attended = None if seen is None else bool(seen[index])
            origin = "pad" if attended is False else origins[index]
            recorder.add_fact(
                "tokens",
                event,
                event,
                row=row,
                index=index,
                position=index,
                origin=origin,
                image=pictures[index],
                attended=attended,
                **_identity(token_id, vocabulary, assembler, is_last=index == last),
                kind=_kind(token_id, vocabulary, marks, origin),
                **_axes(positions, row, index),
            )


def _identity(
    token_id: int,
    vocabulary: Vocabulary | None,
    assembler: TextAssembler | None,
    is_last: bool,
) -> dict[str, Any]:
    if vocabulary is None or assembler is None:
        return {"token_id": token_id}
    vocab, raw = vocabulary.piece(token_id)
    text = assembler.add(token_id)
    if is_last and text is not None:
        text += assembler.finish()
    return {
        "token_id": token_id,
        "vocab": vocab,
        "bytes_hex": None if raw is None else raw.hex(),
        "text": text,
    }


def _kind(
    token_id: int, vocabulary: Vocabulary | None, marks: Placeholders, origin: str
) -> str | None:
    if origin == "pad":
        return "pad"
    if marks.kind(token_id):
        return marks.kind(token_id)
    if vocabulary is None:
        return None
    return "special" if vocabulary.is_special(token_id) else "text"


def _axes(
    positions: Sequence[Sequence[Sequence[int]]] | None, row: int, index: int
) -> dict[str, int]:
    if positions is None:
        return {}
    names = ("position_t", "position_h", "position_w")
    return {
        name: axis[row][index]
        for name, axis in zip(names, positions, strict=True)
        if row < len(axis) and index < len(axis[row])
    }


def _pictures(
    ids: Sequence[int],
    marks: Placeholders,
    encoding: Encoding | None,
    used: dict[str, int],
) -> Iterator[int | None]:
    """Which image each placeholder stands for: the n-th run of placeholders is the n-th image.

    Runs touch when two images follow each other without text, so the expected counts cut them.
    `used` counts placeholders from row to row.
    """
    expected = (
        {
            kind: [image.expected_tokens or 0 for image in encoding.images if image.kind == kind]
            for kind in ("image", "video")
        }
        if encoding
        else {"image": [], "video": []}
    )
    for token_id in ids:
        kind = marks.kind(token_id)
        if kind is None:
            yield None
            continue
        place, left = 0, used[kind]
        for place, count in enumerate(expected[kind]):  # noqa: B007 - the place reached counts
            if left < count:
                break
            left -= count
        used[kind] += 1
        yield place if expected[kind] else None


def _origins(
    prompt: Prompt | None,
    ids: Sequence[int],
    vocabulary: Vocabulary | None,
    marks: Placeholders,
    seen: Sequence[int] | None,
) -> Iterator[str]:
    """Who wrote each token: the token's bytes are followed through the rendered prompt.

    One placeholder of the text became many ids, so repeats do not advance. Where bytes and text
    part ways (a tokenizer that normalises), the rest is unknown rather than wrong.
    """
    if prompt is None or vocabulary is None:
        yield from ("unknown" for _ in ids)
        return
    raw = prompt.text.encode("utf-8", "surrogatepass")
    owners = _owners(prompt)
    cursor, before, lost = 0, None, False
    for place, token_id in enumerate(ids):
        if seen is not None and not seen[place]:
            yield "pad"
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


def _owners(prompt: Prompt) -> list[str]:
    """Origin of each byte of the prompt's text."""
    owners: list[str] = []
    for segment in prompt.segments:
        piece = prompt.text[segment.start : segment.end].encode("utf-8", "surrogatepass")
        owners.extend([segment.origin] * len(piece))
    return owners
