"""Text and pictures become tensors: encoding calls of processors and tokenizers.

An outermost encoding call leaves an `Encoding`: its ids, the prompt that they came from and its
images. The model call that consumes the ids tells them; what nobody consumed is told at the end,
as is what a call that failed had made until then.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from typing import Any, Final

from tracer.instrument import measure
from tracer.instrument.asking import (
    encodings,
    fed,
    image_rows,
    images,
    input_settings,
    pixels,
    rates,
    resizes,
    tokens,
)
from tracer.instrument.asking.encodings import Encoding, Pieces
from tracer.instrument.asking.images import Image
from tracer.instrument.asking.prompts import Prompt
from tracer.instrument.stages import Call, Observer, Outcome, open_call, open_span
from tracer.recorder import Recorder
from tracer.spans import Span, ThreadState

_MARK: Final = re.compile(r"\[/?INST\]|#{2,}|<\|?/?[a-z_]+\|?>", re.I)


@dataclasses.dataclass(slots=True)
class Work:
    """An outermost encoding call as it goes on; what is called inside it adds to it.

    Attributes:
        texts: The texts as the user gave them, before any placeholder is written out.
        asked: The user's arguments, those in `images_kwargs` and its like too.
    """

    span: Span
    owner: Any
    texts: list[Any]
    asked: dict[str, Any]
    modules: _ModuleCounter = dataclasses.field(default_factory=lambda: _ModuleCounter())
    images: list[Image] = dataclasses.field(default_factory=list)
    pieces: list[Pieces | None] = dataclasses.field(default_factory=list)
    settings: input_settings.InForce = dataclasses.field(default_factory=input_settings.InForce)
    ids: list[list[int]] = dataclasses.field(default_factory=list)
    mask: list[list[int]] | None = None

    def cut_short(self) -> None:
        """An interrupt has ended the call inside the lab."""
        self.modules.stop()


class _ModuleCounter:
    """Counts every module call of the process while something is encoded: it should be none."""

    def __init__(self) -> None:
        self.calls = 0
        self._handle: Any = None

    def start(self) -> None:
        """Count from now on."""
        torch = sys.modules.get("torch")
        if torch is not None:
            module = torch.nn.modules.module
            self._handle = module.register_module_forward_pre_hook(self._count)

    def _count(self, module: Any, args: Any) -> None:
        self.calls += 1

    def stop(self) -> None:
        """Take the hook away."""
        if self._handle is not None:
            self._handle.remove()


def current(state: ThreadState) -> Work | None:
    """The encoding call that this thread is inside of."""
    work: Work | None = state.notes.get("encoding")
    is_open = work is not None and any(span is work.span for span in state.spans)
    return work if is_open else None


def _begin(state: ThreadState, call: Call, texts: Any) -> Work:
    name = type(call.args[0]).__name__
    span = open_call(state, call, name, call.target.stage)
    listed = list(texts) if isinstance(texts, list | tuple) else [texts]
    asked = input_settings.asked_of(call)
    work = Work(span, call.args[0], listed if texts is not None else [], asked)
    state.note("encoding", work)
    work.modules.start()
    return work


def _end(state: ThreadState, call: Call, work: Work, status: str, result: Any) -> None:
    """Close the call; what it made is kept until it is consumed."""
    work.modules.stop()
    summary: dict[str, Any] = {"modules": work.modules.calls}
    with state.own_work("encoding"), state.recorder.guard(call.target.name):
        if result is not None and result.get("input_ids") is not None:
            work.ids = _as_rows(result["input_ids"])
            mask = result.get("attention_mask")
            work.mask = None if mask is None else _as_rows(mask)
        encoding = _keep(state.recorder, work)
        videos = [one for one in work.images if one.kind == "video"]
        rates.add_times(videos, work, result)
        summary |= _counts(encoding, work) | _shapes(result)
        input_settings.tell(state.recorder, work.span.seq, work)
    state.note("encoding", None)
    state.close(work.span, status, summary=summary)


def _enter(state: ThreadState, call: Call, texts: Any = None) -> tuple[Work, Span, int]:
    """A call where no encoding encloses it, else a span of that encoding; modules run so far."""
    work = current(state)
    if work is None:
        work = _begin(state, call, texts)
        return work, work.span, 0
    return work, open_span(state, call, type(call.args[0]).__name__), work.modules.calls


def _leave(
    state: ThreadState, call: Call, work: Work, span: Span, before: int, outcome: Outcome
) -> None:
    if span is work.span:
        _end(state, call, work, outcome.status, outcome.result)
        return
    summary = {"modules": work.modules.calls - before, **_shapes(outcome.result)}
    state.close(span, outcome.status, summary=summary)


def processor_call(state: ThreadState, call: Call) -> Observer:
    """A processor: text, images and videos into one set of tensors."""
    work, span, before = _enter(state, call, input_settings.argument(call, "text"))
    given = {kind: input_settings.argument(call, f"{kind}s") for kind in pixels.NAMES}
    outcome = yield None
    if outcome.error is not None and span is work.span:
        _note_refused(state.recorder, work, given)
    _leave(state, call, work, span, before, outcome)


def _note_refused(recorder: Recorder, work: Work, given: dict[str, Any]) -> None:
    """Pictures of a call that ended before an image processor had them."""
    flat = {
        "image": images.flat_images(given["image"]),
        "video": images.flat_videos(given["video"]),
    }
    for kind, pictures in flat.items():
        if pictures and not any(image.kind == kind for image in work.images):
            work.images.extend(images.take(recorder, pictures, kind))


def tokenizer_call(state: ThreadState, call: Call) -> Observer:
    """A tokenizer: text into ids."""
    text = call.argument(1, "text")
    text = list(text) if isinstance(text, list) else text
    work, span, before = _enter(state, call, text)
    outcome = yield None
    _note_pieces(state, call, work, text, outcome.result)
    _leave(state, call, work, span, before, outcome)


def ids_alone(state: ThreadState, call: Call) -> Observer:
    """`encode`: a text into ids and nothing else."""
    if current(state) is not None or state.run is not None:
        yield None
        return
    text = input_settings.argument(call, "text")
    work = _begin(state, call, text)
    outcome = yield None
    made = None if outcome.result is None else {"input_ids": outcome.result}
    _note_pieces(state, call, work, text, made)
    _end(state, call, work, outcome.status, made)


def _note_pieces(state: ThreadState, call: Call, work: Work, text: Any, result: Any) -> None:
    if result is None or result.get("input_ids") is None:
        return
    with state.own_work("pieces of the text"), state.recorder.guard(call.target.name):
        texts = [text] if isinstance(text, str) else list(text or [])
        stride = input_settings.argument(call, "stride") or 0
        side = getattr(call.args[0], "truncation_side", "right")
        work.pieces = encodings.pieces_of(result, texts, stride, side)
        work.ids = _as_rows(result["input_ids"])
        mask = result.get("attention_mask")
        work.mask = None if mask is None else _as_rows(mask)
        work.settings.note_tokenizer(call, work.pieces, work.ids, work.mask)


def image_processor_call(state: ThreadState, call: Call) -> Observer:
    """An image or video processor: resize, rescale, normalise, cut into patches."""
    part = call.args[0]
    kind, given = pixels.pictures_given(call)
    resizes.watch(part)
    work, span, before = _enter(state, call)
    outcome = yield None
    with state.own_work("pictures"), state.recorder.guard(call.target.name):
        flat = images.flat_videos(given) if kind == "video" else images.flat_images(given)
        taken = images.take(state.recorder, flat, kind)
        work.images.extend(taken)
        work.settings.note_part(part, kind, call.kwargs)
        pixels.add_resizes(state, part, taken, work.asked)
        if outcome.error is None:
            pixels.add_pixels(taken, part, kind, outcome.result)
            if kind == "video":
                rates.add_rates(taken, outcome.result)
    _leave(state, call, work, span, before, outcome)


def _shapes(result: Any) -> dict[str, Any]:
    if result is None:
        return {}
    return {
        name: measure.shape_of(value) for name, value in result.items() if hasattr(value, "shape")
    }


def _counts(encoding: Encoding, work: Work) -> dict[str, Any]:
    """Placeholders before and after each was written out many times, and what was cut."""
    counts: dict[str, Any] = {
        "has_template": _has_template(work.owner, encoding.tokenizer),
        "template_marks": _template_marks(work.owner, encoding.tokenizer),
        "has_pad_token": getattr(encoding.tokenizer, "pad_token_id", None) is not None,
        "eos_token_id": getattr(encoding.tokenizer, "eos_token_id", None),
    }
    vocabulary = getattr(encoding.tokenizer, "convert_ids_to_tokens", None)
    for kind in ("image", "video"):
        mark = getattr(encoding.placeholders, kind)
        given = sum(image.kind == kind for image in work.images)
        if mark is None or vocabulary is None:
            continue
        word = vocabulary(mark)
        in_text = sum(one.count(word) for one in work.texts if isinstance(one, str))
        in_ids = sum(row.count(mark) for row in encoding.rows)
        if given or in_text or in_ids:
            counts |= {
                f"{kind}s": given,
                f"{kind}_markers_in_text": in_text,
                f"{kind}_tokens": in_ids if encoding.rows else None,
            }
    cut = sum(one.cut for one in encoding.pieces if one is not None)
    return counts | ({"cut_tokens": cut} if cut else {})


def _has_template(*owners: Any) -> bool:
    return any(getattr(owner, "chat_template", None) is not None for owner in owners)


def _template_marks(*owners: Any) -> list[str]:
    """Marks of turns that the chat templates write, in lower case: `[inst]`, `###`."""
    sources: list[str] = []
    for owner in owners:
        held = getattr(owner, "chat_template", None)
        sources += [str(one) for one in (held.values() if isinstance(held, dict) else [held])]
    return sorted({mark.lower() for text in sources for mark in _MARK.findall(text)})


def _keep(recorder: Recorder, work: Work) -> Encoding:
    prompts: dict[str, Prompt] = recorder.notes.get("prompts", {})
    encoding = Encoding(
        work.span.seq,
        work.ids,
        work.mask,
        getattr(work.owner, "tokenizer", work.owner),
        [prompts.get(one) if isinstance(one, str) else None for one in work.texts],
        work.pieces,
        tokens.Placeholders.of(work.owner),
        work.images,
    )
    kept = encodings.known(recorder)
    if not kept:
        recorder.at_end.append(lambda: tell_unconsumed(recorder))
    kept.append(encoding)
    return encoding


def _as_rows(values: Any) -> list[list[int]]:
    """Ids of each row as plain integers; a bare list is one row."""
    rows = values.tolist() if hasattr(values, "tolist") else values
    return [list(rows)] if rows and isinstance(rows[0], int) else [list(row) for row in rows]


def tell_unconsumed(recorder: Recorder) -> None:
    """Tokens and images of encodings that no model call consumed."""
    fed.tell_waiting(recorder)
    for encoding in encodings.known(recorder):
        if encoding.consumed:
            continue
        tokens.tell(recorder, encoding.event, tokens.of_encoding(encoding))
        for image in image_rows.placed(encoding, encoding.rows, encoding.placeholders):
            image_rows.tell(recorder, image, encoding.event, encoding.event)
