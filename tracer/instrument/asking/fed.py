"""Prompts that a user's own forward consumes: from then on their tokens are that call's.

Only ids that an encoding call made are told, and each encoding once: a loop that feeds the same
batch a thousand times has not a thousand prompts. Ids on a device are compared when the recording
ends, so that nothing waits for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tracer.instrument.asking import encodings, images, tokens
from tracer.instrument.asking.encodings import Encoding
from tracer.recorder import Recorder
from tracer.spans import ThreadState


@dataclasses.dataclass(frozen=True, slots=True)
class Fed:
    """Ids of shape (rows, tokens) that a forward was given, and its mask of the same shape."""

    event: int
    ids: Any
    mask: Any
    marks: tokens.Placeholders
    part: str | None


def note(state: ThreadState, event: int, model: Any, given: dict[str, Any]) -> None:
    """A forward begins: take over the prompt that it is given, if it is one."""
    ids: Any = given.get("input_ids")
    mask: Any = given.get("attention_mask")
    if getattr(ids, "ndim", 0) != 2:
        return
    recorder = state.recorder
    if not any(_fits(one, ids) for one in encodings.known(recorder)):
        return
    with state.own_work("prompt of a forward"), recorder.guard("tokens"):
        is_same_shape = getattr(mask, "shape", None) == ids.shape
        part = "encoder" if model.config.is_encoder_decoder else None
        marks = tokens.Placeholders.of(model.config)
        own = Fed(
            event,
            ids.detach().clone(),
            mask.detach().clone() if is_same_shape else None,
            marks,
            part,
        )
        if ids.device.type == "cpu":
            _tell(recorder, own)
        else:
            _waiting(recorder).append(own)


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
    prompt = tokens.Prompt(rows, mask, encoding, fed.marks, encoding.tokenizer, part=fed.part)
    tokens.tell(recorder, fed.event, prompt)
    for image in images.placed(encoding, rows, fed.marks):
        images.tell(recorder, image, fed.event, fed.event)
