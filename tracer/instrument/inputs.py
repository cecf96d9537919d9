"""Text and pictures become tensors, move to a device, and ids become text again.

An outermost encoding call leaves an `Encoding`: its ids, the prompt that they came from and its
images. The model call that consumes the ids tells them; what nobody consumed is told at the end.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from tracer.instrument import images, measure, tokens
from tracer.instrument.prompts import Prompt
from tracer.instrument.stages import Call, Observer, open_call, open_span
from tracer.recorder import Recorder
from tracer.spans import Span, ThreadState


@dataclasses.dataclass(slots=True)
class Encoding:
    """What an encoding call produced, as plain numbers."""

    event: int
    rows: list[list[int]]
    mask: list[list[int]] | None
    tokenizer: Any
    prompts: list[Prompt | None]
    placeholders: tokens.Placeholders
    images: list[images.Image]
    consumed: bool = False


def _open(state: ThreadState, call: Call) -> Span:
    """A call where nothing of its stage encloses it, else one of that call's spans."""
    name = f"{type(call.args[0]).__name__}.{call.target.attribute}".removesuffix(".__call__")
    if any(span.stage == call.target.stage for span in state.spans):
        return open_span(state, call, name)
    return open_call(state, call, name, call.target.stage)


class _ModuleCounter:
    """Counts every module call of the process while a processor runs: it should be none."""

    def __init__(self) -> None:
        self.calls = 0
        torch = sys.modules.get("torch")
        self._handle = (
            torch.nn.modules.module.register_module_forward_pre_hook(self._count)
            if torch is not None
            else None
        )

    def _count(self, module: Any, args: Any) -> None:
        self.calls += 1

    def stop(self) -> int:
        """Take the hook away; the number of calls seen."""
        if self._handle is not None:
            self._handle.remove()
        return self.calls


def processor_call(state: ThreadState, call: Call) -> Observer:
    """A processor: text, images and videos into one set of tensors."""
    processor = call.args[0]
    span = _open(state, call)
    counter = _ModuleCounter()
    given = _named(call.args[1:], call.kwargs, ("images", "text", "videos"))
    given["text"] = _as_given(given["text"])
    outcome = yield None
    modules = counter.stop()
    if outcome.error is None:
        with state.own_work("encoding"), state.recorder.guard(call.target.name):
            encoding = _encoding(state, span, processor, given["text"], outcome.result)
            if encoding is not None:
                _describe_images(state.recorder, encoding, processor, given, outcome.result)
    state.close(span, outcome.status, **_summary(span, modules, outcome.result))


def _named(args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: args[place] if place < len(args) else kwargs.get(name)
        for place, name in enumerate(names)
    }


def _as_given(text: Any) -> Any:
    """The texts as they are now: a processor may write its placeholders into the user's list."""
    return list(text) if isinstance(text, list) else text


def _summary(span: Span, modules: int, result: Any) -> dict[str, Any]:
    if span.table == "calls" or result is None:
        return {}
    shapes = {
        name: measure.shape_of(value) for name, value in result.items() if hasattr(value, "shape")
    }
    return {"summary": {"modules": modules, **shapes}}


def tokenizer_call(state: ThreadState, call: Call) -> Observer:
    """A tokenizer: text into ids."""
    tokenizer = call.args[0]
    span = _open(state, call)
    text = _as_given(call.argument(1, "text"))
    outcome = yield None
    if span.table == "calls" and outcome.error is None:
        with state.own_work("encoding"), state.recorder.guard(call.target.name):
            _encoding(state, span, tokenizer, text, outcome.result)
    state.close(span, outcome.status)


def image_processor_call(state: ThreadState, call: Call) -> Observer:
    """An image processor: resize, rescale, normalise, cut into patches."""
    span = _open(state, call)
    outcome = yield None
    state.close(span, outcome.status, **_summary(span, 0, outcome.result))


def _encoding(
    state: ThreadState, span: Span, owner: Any, text: Any, result: Any
) -> Encoding | None:
    ids = result.get("input_ids")
    if ids is None or span.table != "calls":
        return None
    rows = _as_rows(ids)
    mask = result.get("attention_mask")
    texts = [text] if isinstance(text, str) else list(text or [])
    known: dict[str, Prompt] = state.recorder.notes.get("prompts", {})
    encoding = Encoding(
        span.seq,
        rows,
        None if mask is None else _as_rows(mask),
        getattr(owner, "tokenizer", owner),
        [known.get(one) if isinstance(one, str) else None for one in texts],
        tokens.Placeholders.of(owner),
        [],
    )
    encodings: list[Encoding] = state.recorder.notes.setdefault("encodings", [])
    if not encodings:
        state.recorder.at_end.append(lambda: tell_unconsumed(state.recorder))
    encodings.append(encoding)
    return encoding


def _as_rows(values: Any) -> list[list[int]]:
    """Ids of each row as plain integers; a bare list is one row."""
    rows = values.tolist() if hasattr(values, "tolist") else values
    return [list(rows)] if rows and isinstance(rows[0], int) else [list(row) for row in rows]


def _describe_images(
    recorder: Recorder,
    encoding: Encoding,
    processor: Any,
    given: dict[str, Any],
    result: Any,
) -> None:
    for kind, grids, values in (
        ("image", "image_grid_thw", "pixel_values"),
        ("video", "video_grid_thw", "pixel_values_videos"),
    ):
        pictures = given[f"{kind}s"]
        if pictures is None:
            continue
        taken = images.take(recorder, _flat(pictures), kind)
        own = getattr(processor, f"{kind}_processor", None)
        part = own or getattr(processor, "image_processor", None)  # once it took videos too
        if grids in result:
            _add_grids(taken, part, result[grids], result.get(values))
        seconds = result.get("second_per_grid_ts")
        if kind == "video" and seconds is not None:
            for video, value in zip(taken, seconds, strict=False):
                video.seconds_per_grid = float(value)
        encoding.images.extend(taken)


def _flat(pictures: Any) -> list[Any]:
    if not isinstance(pictures, list | tuple):
        return [pictures]
    return [one for picture in pictures for one in _flat(picture)]


def _add_grids(taken: list[images.Image], part: Any, grids: Any, values: Any) -> None:
    merge = getattr(part, "merge_size", 1) or 1
    patch = getattr(part, "patch_size", None)
    start = 0
    for image, grid in zip(taken, grids.tolist(), strict=False):
        image.grid_t, image.grid_h, image.grid_w = grid
        image.patches = grid[0] * grid[1] * grid[2]
        image.expected_tokens = image.patches // merge**2
        if isinstance(patch, int):
            image.processor_h, image.processor_w = grid[1] * patch, grid[2] * patch
        if values is not None:
            own = values[start : start + image.patches]
            image.value_min, image.value_max = float(own.min()), float(own.max())
        start += image.patches
        size = getattr(part, "size", None)
        if size is not None:
            image.limit = "; ".join(filter(None, [image.limit, f"processor: {_edges(size)}"]))
            image.limit_origin = f"{type(part).__name__}.size, or arguments of the call"


def _edges(size: Any) -> str:
    """The limits of a size, which is a dict in some releases and an object in others."""
    edges = {
        name: size.get(name) if isinstance(size, dict) else getattr(size, name, None)
        for name in ("shortest_edge", "longest_edge")
    }
    return ", ".join(f"{name}={value}" for name, value in edges.items() if value is not None)


def find(recorder: Recorder, rows: list[list[int]]) -> Encoding | None:
    """The newest encoding whose ids are exactly these."""
    encodings: list[Encoding] = recorder.notes.get("encodings", [])
    return next((one for one in reversed(encodings) if one.rows == rows), None)


def tell_unconsumed(recorder: Recorder) -> None:
    """Tokens and images of encodings that no model call consumed."""
    for encoding in recorder.notes.get("encodings", []):
        if not encoding.consumed:
            tokens.tell(recorder, encoding.event, encoding, encoding.rows, encoding.mask)
            for image in encoding.images:
                images.tell(recorder, image, encoding.event, encoding.event)


def transfer(state: ThreadState, call: Call) -> Observer:
    """`.to(device)` of a batch: which bytes moved, and where."""
    batch = call.args[0]
    before = {name: str(value.device) for name, value in _tensors(batch)}
    span = open_span(state, call, f"{type(batch).__name__}.to")
    outcome = yield None
    moved = [
        (name, value) for name, value in _tensors(batch) if before.get(name) != str(value.device)
    ]
    summary = {
        "tensors": len(before),
        "moved": len(moved),
        "moved_bytes": sum(measure.size_of(value) for _, value in moved),
        "from": sorted(set(before.values())),
        "to": sorted({str(value.device) for _, value in _tensors(batch)}),
    }
    state.close(span, outcome.status, summary=summary)


def _tensors(batch: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in batch.items() if hasattr(value, "device")]


def output(state: ThreadState, call: Call) -> Observer:
    """`decode`, `batch_decode`: ids become text; what was dropped on the way is counted."""
    tokenizer = call.args[0]
    ids = call.argument(1, "token_ids" if call.target.attribute == "decode" else "sequences")
    span = _open(state, call)
    outcome = yield None
    # A streamer decodes once a token inside generate(): the span is enough there.
    if span.table == "calls" or outcome.error is not None or state.run is not None:
        state.close(span, outcome.status)
        return
    special = set(tokenizer.all_special_ids)
    flat = _flat(ids.tolist() if hasattr(ids, "tolist") else ids)
    skipped = call.kwargs.get("skip_special_tokens", False)
    dropped = sum(one in special for one in flat) if skipped else 0
    texts = outcome.result if isinstance(outcome.result, list) else [outcome.result]
    summary = {"ids": len(flat), "special_dropped": dropped, "characters": sum(map(len, texts))}
    state.close(span, outcome.status, summary=summary)
