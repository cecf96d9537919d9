"""Which ids each cache was built from, and what of a new prompt had been cached before.

Only ids are compared. The last few caches of a model are remembered, whether they still exist or
not: that a cache was thrown away is why its tokens are computed again.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument.answering import cache_rows, caches
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
    rows: Ids = []
    for number, piece in enumerate(pieces):
        if isinstance(piece, cache_rows.Picked):
            rows = piece.of(rows)
            continue
        new = piece.tolist() if hasattr(piece, "tolist") else piece
        if number and len(new) != len(rows):  # rows came or went, and nobody saw which
            rows = []
            break
        rows = [list(chain(*parts)) for parts in zip(rows, new, strict=True)] if number else new
    pieces[:] = [rows]
    return rows


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


def forget_if_moved(recorder: Recorder, model: str, name: str, cache: Any) -> None:
    """Of a cache whose keys somebody exchanged since the last forward, the ids are not known."""
    if not cache_rows.is_as_left(recorder, name, cache):
        _of(recorder, model).pop(name, None)


def feed(recorder: Recorder, model: str, cache: str, before: int | None, ids: Any) -> None:
    """A forward of the user's added these ids to a cache; they are read when they are asked for."""
    known = _of(recorder, model)
    pieces = known.get(cache, [])
    if before is None or not _are_ids(ids):
        known.pop(cache, None)
        return
    is_apart = ids.device.type != "cpu" or any(map(_is_unread, pieces))
    if sum(map(_width, pieces)) != before:
        rows = held(recorder, model, cache, before)
        if rows is None:
            known.pop(cache, None)
            return
        pieces = [rows] if rows else []
    if is_apart:
        known[cache] = [*pieces, ids.detach().clone()]
        return
    rows = _rows(pieces) if pieces else [[] for _ in range(len(ids))]
    if len(rows) != len(ids):
        known.pop(cache, None)
        return
    for row, new in zip(rows, ids.tolist(), strict=True):
        row.extend(new)
    known[cache] = [rows]


def _are_ids(ids: Any) -> bool:
    """Whether what a forward was given are ids that can be read; on meta there are none."""
    from tracer.instrument import graphs  # which needs torch; ids bring it along

    are_ids = ids is not None and ids.ndim == 2 and not ids.is_floating_point()
    return are_ids and graphs.is_readable(ids)


def _is_unread(piece: Any) -> bool:
    """Whether a piece, or the places of its rows, may lie on a device."""
    held = getattr(piece, "places", piece)
    return hasattr(held, "device") and held.device.type != "cpu"


def _width(piece: Any) -> int:
    if isinstance(piece, cache_rows.Picked):
        return 0
    if hasattr(piece, "shape"):
        return int(piece.shape[1])
    return len(piece[0]) if piece else 0


def compare(run: Run, cache: Any) -> None:
    """Set the new prompt against the cache that was passed, and against those of earlier calls."""
    if run.model.config.is_encoder_decoder or not run.prompt or not run.prompt[0]:
        return
    recorder, columns = run.recorder, run.span.columns
    count = 0
    if cache is not None and columns.get("cache_why", "").startswith("passed"):
        count = caches.read(caches.count(cache)) or 0
        forget_if_moved(recorder, run.name, columns["cache"], cache)
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
    built, keys = _built(run, rows, count) if is_known else None, caches.keys_held(cache)
    if built is not None and keys is not None and len(built) != len(keys):
        built = None  # rows were taken out of it
    name = caches.name(run.recorder, cache, run)
    keep(run.recorder, run.name, name, built)
    cache_rows.note(run.recorder, name, cache)


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
