"""The way in's last step and the way out: batches move to a device, ids become text again."""

from __future__ import annotations

from typing import Any, Final

from tracer.instrument import measure
from tracer.instrument.asking import input_settings
from tracer.instrument.asking.input_settings import Row, plain
from tracer.instrument.installer import release
from tracer.instrument.stages import Call, Observer, open_call, open_span
from tracer.instrument.targets import FIVE
from tracer.recorder import Recorder
from tracer.spans import ThreadState

_CLEAN_UP: Final = "clean_up_tokenization_spaces"
_FORCED: Final = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"


def transfer(state: ThreadState, call: Call) -> Observer:
    """`.to(device)` of a batch: which bytes moved or changed dtype, from where to where."""
    batch = call.args[0]
    before = {name: (str(one.device), one.dtype) for name, one in _tensors(batch)}
    span = open_span(state, call, f"{type(batch).__name__}.to")
    outcome = yield None
    after = _tensors(batch)
    moved = [(name, one) for name, one in after if before.get(name, ("",))[0] != str(one.device)]
    cast = [name for name, one in after if name in before and before[name][1] != one.dtype]
    summary = {
        "tensors": len(before),
        "moved": len(moved),
        "moved_bytes": sum(measure.size_of(value) for _, value in moved),
        "cast": cast,
        "from": sorted({device for device, _ in before.values()}),
        "to": sorted({str(value.device) for _, value in after}),
    }
    state.close(span, outcome.status, summary=summary)


def _tensors(batch: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in batch.items() if hasattr(value, "device")]


def output(state: ThreadState, call: Call) -> Observer:
    """`decode`, `batch_decode`: ids become text; what is dropped or changed on the way is told.

    A call with one span in it, also where the library decodes row by row. A streamer decodes once
    a token inside generate(): there the span is enough.
    """
    name = f"{type(call.args[0]).__name__}.{call.target.attribute}"
    if any(span.stage == call.target.stage for span in state.spans):
        yield None  # a row of a batch that is decoded: the batch tells it
        return
    if state.run is not None:
        span = open_span(state, call, name)
        outcome = yield None
        state.close(span, outcome.status)
        return
    top = open_call(state, call, name, call.target.stage)
    span = open_span(state, call, "ids to text")
    outcome = yield None
    row = state.close_held(span, outcome.status)
    with state.own_work("text of the answer"), state.recorder.guard(call.target.name):
        if outcome.error is None and row is not None:
            row[1]["summary"] = _told(state.recorder, top.seq, call, outcome.result)
    if row is not None:
        state.release(row)
    state.close(top, outcome.status)


def _told(recorder: Recorder, event: int, call: Call, result: Any) -> dict[str, Any]:
    """What the span says: ids in, ids dropped as special, texts and what clean-up changed."""
    tokenizer = call.args[0]
    ids = input_settings.argument(call, "token_ids")
    rows = _rows(input_settings.argument(call, "sequences") if ids is None else ids)
    skips = bool(input_settings.argument(call, "skip_special_tokens"))
    special = set(tokenizer.all_special_ids)
    dropped = sum(one in special for row in rows for one in row) if skips else 0
    texts = result if isinstance(result, list) else [result]
    changed = _cleaned(call, tokenizer, rows, texts, skips)
    _tell_settings(recorder, event, call, dropped, changed)
    return {
        "rows": len(rows),
        "ids": sum(map(len, rows)),
        "special_dropped": dropped,
        "clean_up_changed": changed,
        "characters": sum(map(len, texts)),
        "texts": texts,
    }


def _rows(ids: Any) -> list[list[int]]:
    plain = ids.tolist() if hasattr(ids, "tolist") else ids
    if isinstance(plain, dict) or hasattr(plain, "keys"):
        return _rows(plain["input_ids"])
    if isinstance(plain, int):
        return [[plain]]
    items = [one.tolist() if hasattr(one, "tolist") else one for one in plain]
    if items and isinstance(items[0], list | tuple):
        return [list(one) for one in items]
    return [items] if items else []


def _wants_clean_up(call: Call, tokenizer: Any) -> bool:
    asked = input_settings.argument(call, _CLEAN_UP)
    return bool(getattr(tokenizer, _CLEAN_UP, False) if asked is None else asked)


def _cleaned(
    call: Call, tokenizer: Any, rows: list[list[int]], texts: list[str], skips: bool
) -> int | None:
    """Characters that clean-up took out of the texts; None where it cannot be told.

    The rows are decoded once more without it, by the tokenizer itself.
    """
    if not _wants_clean_up(call, tokenizer):
        return 0
    if len(rows) != len(texts):
        return None
    plain = [tokenizer.decode(row, skip_special_tokens=skips, **{_CLEAN_UP: False}) for row in rows]
    return sum(len(before) - len(after) for before, after in zip(plain, texts, strict=True))


def _tell_settings(
    recorder: Recorder, event: int, call: Call, dropped: int, changed: int | None
) -> None:
    tokenizer = call.args[0]
    asked = input_settings.asked_of(call)
    for name in ("token_ids", "sequences"):
        asked.pop(name, None)
    skips = bool(asked.get("skip_special_tokens", False))
    cleans = _wants_clean_up(call, tokenizer)
    origin = "call"
    if asked.get(_CLEAN_UP) is None:
        origin = input_settings.attribute_origin(recorder, tokenizer, _CLEAN_UP, cleans)
    skip_origin = "call" if "skip_special_tokens" in asked else "library"
    rows = {
        "skip_special_tokens": (skips, skip_origin, bool(dropped), _dropped(skips, dropped)),
        _CLEAN_UP: (cleans, origin, bool(changed), _why(tokenizer, cleans, changed)),
    }
    told = [
        Row("decode", name, plain(asked.get(name)), effective, where, used, why)
        for name, (effective, where, used, why) in rows.items()
    ]
    told += [
        Row("decode", name, plain(one), plain(one), "call", None, "not followed")
        for name, one in asked.items()
        if name not in rows
    ]
    input_settings.tell_rows(recorder, event, told)


def _dropped(skips: bool, dropped: int) -> str | None:
    if not skips:
        return None
    if not dropped:
        return "there is no special id"
    return f"{dropped} special id{'s' if dropped > 1 else ''} dropped"


def _why(tokenizer: Any, cleans: bool, changed: int | None) -> str | None:
    if not cleans:
        return None
    if _is_refused(tokenizer):
        return "this release leaves texts of byte-pair tokenizers as they are"
    if not changed:
        return "nothing to clean up"
    return f"{changed} character{'s' if changed > 1 else ''} taken out"


def _is_refused(tokenizer: Any) -> bool:
    """Whether the library ignores the wish (tokenization_utils_tokenizers.py, `_decode`)."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if release() < FIVE or backend is None or getattr(tokenizer, _FORCED, False):
        return False
    return type(backend.model).__name__ == "BPE"
