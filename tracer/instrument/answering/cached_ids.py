"""Which ids each cache was built from, and what of a new prompt had been cached before.

Only ids are compared. The last few caches of a model are remembered, whether they still exist or
not: that a cache was thrown away is why its tokens are computed again.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument.answering import caches
from tracer.recorder import Recorder

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run

Ids = list[list[int]]  # row, place
_REMEMBERED: Final = 16
"""Caches of a model that are compared with a new prompt; a conversation looks back at the last."""


def _of(recorder: Recorder, model: str) -> dict[str, list[Any]]:
    known: dict[str, dict[str, list[Any]]] = recorder.notes.setdefault("cached_ids", {})
    return known.setdefault(model, {})


def _rows(pieces: list[Any]) -> Ids:
    """Ids fed one after the other, put together; a piece on a device is read now."""
    pieces[:] = [one.tolist() if hasattr(one, "tolist") else one for one in pieces]
    if len(pieces) > 1:
        pieces[:] = [[list(chain(*parts)) for parts in zip(*pieces, strict=True)]]
    return pieces[0] if pieces else []


def held(recorder: Recorder, model: str, cache: str, count: int) -> Ids | None:
    """The ids of a cache that holds so many tokens; None where they were not all seen."""
    if count == 0:
        return []
    pieces = _of(recorder, model).get(cache)
    rows = _rows(pieces) if pieces else []
    # It may have been cut since; what it holds beyond what was seen came from elsewhere.
    is_known = bool(rows) and all(len(row) >= count for row in rows)
    return [row[:count] for row in rows] if is_known else None


def keep(recorder: Recorder, model: str, cache: str, rows: Ids | None) -> None:
    """From now on a cache was built from these ids; None where that is not known."""
    known = _of(recorder, model)
    known.pop(cache, None)
    if rows:
        known[cache] = [rows]
        while len(known) > _REMEMBERED:
            del known[next(iter(known))]


def feed(recorder: Recorder, model: str, cache: str, before: int | None, ids: Any) -> None:
    """A forward of the user's added these ids to a cache; they are read when they are asked for."""
    known = _of(recorder, model)
    pieces = known.get(cache, [])
    if before is None or ids is None or ids.ndim != 2 or ids.is_floating_point():
        known.pop(cache, None)
        return
    length = sum(_width(piece) for piece in pieces)
    if length != before:
        rows = held(recorder, model, cache, before)
        if rows is None:
            known.pop(cache, None)
            return
        pieces = [rows] if rows else []
    if ids.device.type != "cpu":
        known[cache] = [*pieces, ids.detach().clone()]
    elif len(pieces) == 1:
        for row, new in zip(_rows(pieces), ids.tolist(), strict=True):
            row.extend(new)
        known[cache] = pieces
    else:
        known[cache] = [_rows([*pieces, ids])]


def _width(piece: Any) -> int:
    return int(piece.shape[1]) if hasattr(piece, "shape") else len(piece[0])


def compare(run: Run, cache: Any) -> None:
    """Set the new prompt against the cache that was passed, and against those of earlier calls."""
    if run.model.config.is_encoder_decoder or not run.prompt or not run.prompt[0]:
        return
    recorder, columns = run.recorder, run.span.columns
    count = 0
    if cache is not None and columns.get("cache_why", "").startswith("passed"):
        count = caches.read(caches.count(cache)) or 0
        run.built_from = held(recorder, run.name, columns["cache"], count)
        if count and run.built_from is not None:
            columns |= _difference(run, run.built_from, count)
    run.cached_before = count
    marks = run.placeholders()
    again = 0
    for row in run.prompt:
        # Behind a picture the same ids need not mean the same picture.
        seen = next((n for n, one in enumerate(row) if marks.kind(one)), len(row))
        again += max(0, min(seen, _longest(recorder, run.name, row)) - count)
    columns["recomputed_tokens"] = again


def _difference(run: Run, rows: Ids, count: int) -> dict[str, int | None]:
    mask = run.kwargs.get("attention_mask")
    if mask is not None and mask.ndim == 2 and mask.shape[1] > len(run.prompt[0]):
        return {"cache_prefix_tokens": count}  # the prompt begins where the cache ends
    pairs = zip(rows, run.prompt, strict=False)
    common = min((_common(row, prompt) for row, prompt in pairs), default=0)
    return {
        "cache_prefix_tokens": common,
        "cache_first_difference": common if common < count else None,
    }


def _longest(recorder: Recorder, model: str, prompt: list[int]) -> int:
    """Leading ids of a prompt that a remembered cache held."""
    every = (row for pieces in _of(recorder, model).values() for row in _rows(pieces))
    return max((_common(row, prompt) for row in every), default=0)


def _common(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def remember(run: Run, rows: Ids | None, *, is_known: bool = True) -> None:
    """A generate() is over: note what its cache holds now, and what it computed again.

    Args:
        run: The generate().
        rows: What it returned.
        is_known: Whether the rows of the cache are those of what was returned.
    """
    columns = run.span.columns
    again, fed = columns.get("recomputed_tokens"), run.prompt_fed
    if again and fed and run.prompt_ns is not None:
        share = min(1.0, again / (fed * len(run.prompt)))
        columns["recomputed_ns"] = round(run.prompt_ns * share)
    cache, count = run.last_cache, run.cached_after
    if cache is None or count is None or run.model.config.is_encoder_decoder:
        return
    built = _built(run, rows, count) if is_known else None
    keep(run.recorder, run.name, caches.name(run.recorder, cache, run), built)


def _built(run: Run, rows: Ids | None, count: int) -> Ids | None:
    before = run.built_from if run.cached_before else [[] for _ in run.prompt]
    # Beams change places within the cache; embeddings handed over have no ids.
    if run.beams is not None or before is None or run.prompt_fed > len(run.prompt[0]):
        return None
    built = []
    for row, prompt in enumerate(run.prompt):
        answer = run.chosen[row] if rows is None else rows[row][len(prompt) :]
        earlier = before[row] if row < len(before) else []
        built.append([*earlier, *prompt[len(prompt) - run.prompt_fed :], *answer][:count])
    return built if all(len(row) == count for row in built) else None
