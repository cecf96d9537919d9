"""Prompts that a user's own forward consumes: from then on their tokens are that call's.

Only ids that an encoding call made are told, and each encoding once: a loop that feeds the same
batch a thousand times has not a thousand prompts. While the forward runs, `vision.py` adds what the
model did with the pictures. Ids on a device are compared when the recording ends, so that nothing
waits for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tracer.instrument.asking import encodings, image_rows, replaced, tokens
from tracer.instrument.asking.encodings import Encoding
from tracer.instrument.asking.replaced import Features
from tracer.recorder import Recorder
from tracer.spans import ThreadState


@dataclasses.dataclass(slots=True)
class Fed:
    """Ids of shape (rows, tokens) that a forward was given, and its mask of the same shape.

    Attributes:
        features: What the vision part made, until it is compared.
        compared: How many features there were, and of each token whether it is a placeholder that
            one of them took the place of: shape (rows * tokens,).
        positions: Three-axis positions, shape (3, rows, tokens).
    """

    event: int
    ids: Any
    mask: Any
    marks: tokens.Placeholders
    part: str | None
    features: list[Features] = dataclasses.field(default_factory=list)
    compared: tuple[int, Any] | None = None
    positions: Any = None

    def note_positions(self, position_ids: Any) -> None:
        """Where the tokens stand, as the model or the user counts; plain positions are none."""
        if self.positions is None and getattr(position_ids, "ndim", 0) == 3:
            axes = position_ids[-3:]  # generation 5 puts the plain text positions before them
            self.positions = axes.detach().clone() if len(axes) == 3 else None

    def compare(self, embeddings: Any) -> None:
        """Set each placeholder's embedding against its feature; nothing is read from a device."""
        made, self.features = self.features, []
        flat = embeddings.detach().reshape(-1, embeddings.shape[-1])
        ids = self.ids.reshape(-1)
        count = sum(len(one.rows) for one in made)
        if len(flat) != len(ids) or not count:
            return
        image, video = (
            (ids == mark) if mark is not None else ids.new_zeros(ids.shape).bool()
            for mark in (self.marks.image, self.marks.video)
        )
        equal = replaced.expect(made, image, video).equal(flat)
        self.compared = count, replaced.best(equal)

    def replaced(self, rows: list[list[int]]) -> list[bool]:
        """Of each placeholder in turn whether a feature took its place; empty if nobody knows."""
        if self.compared is None:
            return []
        count, equal = self.compared
        kinds = [self.marks.kind(token_id) for row in rows for token_id in row]
        found = [bool(one) for one, kind in zip(equal.tolist(), kinds, strict=True) if kind]
        return found if len(found) == count else []


def begin(state: ThreadState, event: int, model: Any, given: dict[str, Any]) -> Fed | None:
    """A forward begins: take over the prompt that it is given, if it is one."""
    ids: Any = given.get("input_ids")
    mask: Any = given.get("attention_mask")
    if getattr(ids, "ndim", 0) != 2:
        return None
    recorder = state.recorder
    if not any(_fits(one, ids) for one in encodings.known(recorder)):
        return None
    with state.own_work("prompt of a forward"), recorder.guard("tokens"):
        is_same_shape = getattr(mask, "shape", None) == ids.shape
        fed = Fed(
            event,
            ids.detach().clone(),
            mask.detach().clone() if is_same_shape else None,
            tokens.Placeholders.of(model.config),
            "encoder" if model.config.is_encoder_decoder else None,
        )
        fed.note_positions(given.get("position_ids"))
        state.note("being fed", fed)
        return fed
    return None


def end(state: ThreadState, fed: Fed) -> None:
    """The forward has ended, well or not: tell the prompt, or keep it until it can be read."""
    recorder = state.recorder
    state.note("being fed", None)
    with state.own_work("prompt of a forward"), recorder.guard("tokens"):
        fed.features.clear()
        if fed.ids.device.type == "cpu":
            _tell(recorder, fed)
        else:
            _waiting(recorder).append(fed)


def running(state: ThreadState) -> Fed | None:
    """The prompt that a forward of this thread consumes now."""
    fed: Fed | None = state.notes.get("being fed")
    return fed


def _fits(encoding: Encoding, ids: Any) -> bool:
    rows = encoding.rows
    return not encoding.consumed and (len(rows), len(rows[0]) if rows else 0) == tuple(ids.shape)


def _waiting(recorder: Recorder) -> list[Fed]:
    waiting: list[Fed] = recorder.notes.setdefault("fed", [])
    return waiting


def tell_waiting(recorder: Recorder) -> None:
    """The recording ends: compare what lay on a device."""
    for one in _waiting(recorder):
        _tell(recorder, one)
    _waiting(recorder).clear()


def _tell(recorder: Recorder, fed: Fed) -> None:
    rows = fed.ids.tolist()
    known = (one for one in reversed(encodings.known(recorder)) if not one.consumed)
    encoding = next((one for one in known if one.rows == rows), None)
    if encoding is None:
        return
    encoding.consume()
    mask = encoding.mask if fed.mask is None else fed.mask.tolist()
    positions = None if fed.positions is None else fed.positions.tolist()
    prompt = tokens.Prompt(
        rows, mask, encoding, fed.marks, encoding.tokenizer, positions, part=fed.part
    )
    tokens.tell(recorder, fed.event, prompt)
    for image in image_rows.placed(encoding, rows, fed.marks, fed.replaced(rows)):
        image_rows.tell(recorder, image, fed.event, fed.event)
