"""The `tokens` table: every position of a sequence, what it is and who wrote it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracer.instrument import origins
from tracer.instrument.vocabulary import TextAssembler, Vocabulary
from tracer.recorder import Recorder

if TYPE_CHECKING:
    from tracer.instrument.encodings import Encoding
    from tracer.instrument.images import Image


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


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """The ids of a call's prompt, and what is known of them.

    Attributes:
        mask: 1 where attention sees an id, as rows; None where no mask was given.
        positions: Three-axis positions as axis, row, index; None where there is one axis only.
        part: encoder or decoder, of a model that has both.
        starts: Running number of each row's first id, where other rows' ids came before.
    """

    rows: Sequence[Sequence[int]]
    mask: Sequence[Sequence[int]] | None
    encoding: Encoding | None
    placeholders: Placeholders
    tokenizer: Any
    positions: Sequence[Sequence[Sequence[int]]] | None = None
    part: str | None = None
    starts: Sequence[int] | None = None


def of_encoding(encoding: Encoding) -> Prompt:
    """The prompt that an encoding call made, whoever may consume it."""
    return Prompt(encoding.rows, encoding.mask, encoding, encoding.placeholders, encoding.tokenizer)


def tell(recorder: Recorder, event: int, prompt: Prompt) -> list[int]:
    """Write the tokens of a prompt, as facts of `event`.

    Returns:
        The next running number of each row.
    """
    vocabulary = vocabulary_of(recorder, prompt.tokenizer)
    images = prompt.encoding.images if prompt.encoding else []
    lines = list(map(_Line, *_lines(prompt, vocabulary)))
    shown = pictures([line.ids for line in lines], prompt.placeholders, images, _times(prompt))
    for row, line in enumerate(lines):
        start = prompt.starts[row] if prompt.starts else 0
        common = {"row": row, "part": prompt.part}
        for index, told in enumerate(_cells(prompt, vocabulary, row, line)):
            told |= common | {"index": start + index, "image": shown[row][index]}
            recorder.add_fact("tokens", event, event, **told)
    starts = prompt.starts or [0] * len(lines)
    return [start + len(line.ids) for start, line in zip(starts, lines, strict=True)]


def _times(prompt: Prompt) -> int:
    return prompt.encoding.times if prompt.encoding else 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    """A row with what truncation cut: all ids in the order of the text, and who wrote them."""

    ids: list[int]
    kept_from: int
    kept_to: int
    origins: list[str]


def _lines(prompt: Prompt, vocabulary: Vocabulary | None) -> tuple[Any, Any, Any, Any]:
    found = []
    for row, kept in enumerate(prompt.rows):
        said = prompt.encoding.said(row) if prompt.encoding else None
        text = prompt.encoding.prompt(row) if prompt.encoding else None
        if said is not None and len(said.places) != len(kept):
            said = None  # the ids were changed after they were made
        before = [one.token_id for one in said.before] if said else []
        after = [one.token_id for one in said.after] if said else []
        ids = [*before, *kept, *after]
        seen = prompt.mask[row] if prompt.mask is not None and row < len(prompt.mask) else None
        attended = None if seen is None else [*[1] * len(before), *seen, *[1] * len(after)]
        who = origins.of(text, said, ids, vocabulary, prompt.placeholders, attended)
        found.append((ids, len(before), len(before) + len(kept), who))
    columns = list(zip(*found, strict=True)) or [(), (), (), ()]
    return columns[0], columns[1], columns[2], columns[3]


def _cells(
    prompt: Prompt, vocabulary: Vocabulary | None, row: int, line: _Line
) -> Iterator[dict[str, Any]]:
    """The columns of each token of a row, but for those that number it."""
    seen = prompt.mask[row] if prompt.mask is not None and row < len(prompt.mask) else None
    assembler = TextAssembler(vocabulary) if vocabulary else None
    last = len(line.ids) - 1
    for index, token_id in enumerate(line.ids):
        position = index - line.kept_from
        is_cut = not line.kept_from <= index < line.kept_to
        attended = None if seen is None or is_cut else bool(seen[position])
        origin = "pad" if attended is False else line.origins[index]
        yield {
            "position": None if is_cut else position,
            "origin": origin,
            "attended": attended,
            **_identity(token_id, vocabulary, assembler, is_last=index == last),
            "kind": "cut" if is_cut else _kind(token_id, vocabulary, prompt.placeholders, origin),
            **({} if is_cut else _axes(prompt.positions, row, position)),
        }


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


def pictures(
    rows: Sequence[Sequence[int]],
    marks: Placeholders,
    images: Sequence[Image],
    times: int = 1,
) -> list[list[int | None]]:
    """Which image or video each placeholder of each row stands for.

    Pictures are numbered through all rows. Where there are as many unbroken runs of placeholders as
    pictures, the n-th run is the n-th picture, whole or not; else runs touch, and the expected
    counts cut them. Of rows that stand `times` times, each copy shows the same pictures.
    """
    shown: list[list[int | None]] = [[None] * len(row) for row in rows]
    for kind in ("image", "video"):
        expected = [image.expected_tokens or 0 for image in images if image.kind == kind]
        if not expected:
            continue
        runs = [run for row in range(0, len(rows), times) for run in _runs(rows, row, kind, marks)]
        if len(runs) == len(expected):
            owners = [[number] * len(run) for number, run in enumerate(runs)]
        else:
            places = [place for run in runs for place in run]
            numbers = [number for number, count in enumerate(expected) for _ in range(count)]
            numbers += [len(expected) - 1] * (len(places) - len(numbers))
            runs, owners = [places], [numbers[: len(places)]]
        for run, numbers in zip(runs, owners, strict=True):
            for (row, index), number in zip(run, numbers, strict=True):
                for copy in range(row, row + times):
                    shown[copy][index] = number
    return shown


def _runs(
    rows: Sequence[Sequence[int]], row: int, kind: str, marks: Placeholders
) -> list[list[tuple[int, int]]]:
    """Unbroken runs of the placeholders of a kind in a row, each as its places."""
    runs: list[list[tuple[int, int]]] = []
    is_open = False
    for index, token_id in enumerate(rows[row]):
        is_mark = marks.kind(token_id) == kind
        if is_mark and not is_open:
            runs.append([])
        if is_mark:
            runs[-1].append((row, index))
        is_open = is_mark
    return runs
