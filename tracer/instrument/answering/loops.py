"""A user's own decode loop: each forward that takes or makes a cache is a row of `steps`.

Kind, tokens, cache, mask and positions are told as for a step of generate(). Forwards that pass the
same cache on are one loop. The user chooses the tokens: `loop_choices` tells what is seen of that.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from typing import Any, Final

from tracer.instrument.answering import cache_rows, cached_ids, caches, device_time, loop_choices
from tracer.instrument.answering.feeding import (
    describe_mask,
    ends,
    first_given,
    index_ends,
    read_ends,
    with_logits,
)
from tracer.instrument.answering.step import Row
from tracer.instrument.hooks import InertInCopies, every_module
from tracer.instrument.installer import tracing_test
from tracer.instrument.modules import handles
from tracer.instrument.stages import Call, Outcome
from tracer.recorder import Recorder
from tracer.spans import ACTIVE, Span, ThreadState

_CHOOSING: Final = 16
"""Loops whose last logits are kept at once; each takes a vocabulary of numbers for each row."""


@dataclasses.dataclass(eq=False)
class Loop:
    """Forwards that pass one cache on."""

    cache: weakref.ref[Any] | None = None  # what lasts of it
    number: int = -1  # of the last step
    tokens: int | None = 0  # that the cache holds now
    choosing: loop_choices.Choosing = dataclasses.field(default_factory=loop_choices.Choosing)


@dataclasses.dataclass
class Step:
    """One forward of a loop."""

    loop: Loop
    span: Span
    call: int
    given: dict[str, Any]
    started: int
    first_row: int
    outer_counts: dict[str, int]
    columns: dict[str, Any]
    fed_at: Any = None
    positions: Any = None
    timer: device_time.DeviceTimer | None = None


def begin(state: ThreadState, call: Call, model: Any, around: Span) -> Step | None:
    """Open the step; None where no cache takes part in the forward, or one shared by many."""
    recorder = state.recorder
    given = given_to(model, call)
    cache = first_given(given, *caches.NAMES)
    if cache is None and not _makes_cache(model, given):
        return None
    if cache is not None and not caches.is_known(cache):
        return None
    loop = _loop_of(recorder, cache) or Loop(tokens=_held(recorder, cache))
    fed_at = index_ends(given.get("cache_position"))
    _look_again(recorder, model, loop, cache, fed_at)
    ids = _fed(model, given)
    if cache is not None:
        named = caches.name(recorder, cache, loop), cache
        loop.choosing.fed(state, recorder.models.of(model), named, loop.tokens, ids)
    loop.number += 1
    kind = "decode" if loop.tokens != 0 else "prefill"
    steps = recorder.options.steps
    state.mute(steps is not None and loop.number not in steps)
    span = state.open(
        "steps",
        kind,
        f"{kind} {loop.number}",
        model=recorder.models.of(model),
        source=recorder.places.source(type(model).forward),
        stack=around.columns.get("stack"),
    )
    state.context = recorder.context(around.seq, loop.number, kind)
    columns = {
        "step": loop.number,
        "kind": kind,
        "input_tokens": None if ids is None else int(ids.shape[1]),
        "mask": describe_mask(given.get("attention_mask")),
        "undone": False,
    }
    positions = given.get("position_ids")
    step = Step(loop, span, around.seq, given, span.start, len(state.rows), state.counts, columns)
    step.fed_at, step.positions = fed_at, None if positions is None else ends(positions)
    state.counts = {}
    _watch_positions(recorder, model)
    state.note("loop step", step)
    first = next(model.parameters(), None)
    step.timer = device_time.begin(model, None if first is None else first.device)
    step.started = recorder.clock()
    return step


def _look_again(recorder: Recorder, model: Any, loop: Loop, cache: Any, fed_at: Any) -> None:
    """Between two forwards a cache may have been cut, or its rows exchanged."""
    if cache is None or isinstance(cache, tuple) or not recorder.caches.knows(cache):
        return
    seen = caches.counted(cache, fed_at)
    if _is_at_hand(seen):
        loop.tokens = caches.read(seen)
    name = recorder.caches.of(cache)
    cached_ids.forget_if_moved(recorder, recorder.models.of(model), name, cache)


def given_to(model: Any, call: Call) -> dict[str, Any]:
    """A forward's arguments by name; a first one without a name is the model's main input."""
    return call.kwargs | dict(zip((model.main_input_name,), call.args[1:], strict=False))


def _makes_cache(model: Any, given: dict[str, Any]) -> bool:
    """Whether the forward returns a cache, as its argument or the model's configuration wants."""
    wanted = given.get("use_cache")
    if wanted is None:
        wanted = (
            getattr(model.config.get_text_config(), "use_cache", False) and model.can_generate()
        )
    return bool(wanted)


def _fed(model: Any, given: dict[str, Any]) -> Any:
    names = ("input_ids", "inputs_embeds")
    decoder = tuple(f"decoder_{name}" for name in names)
    return first_given(given, *(decoder if model.config.is_encoder_decoder else names))


def _loops(recorder: Recorder) -> list[Loop]:
    loops: list[Loop] = recorder.notes.setdefault("loops", [])
    return loops


def _loop_of(recorder: Recorder, cache: Any) -> Loop | None:
    lasting = caches.identity(cache)
    if lasting is None:
        return None
    return next((one for one in _loops(recorder) if one.cache and one.cache() is lasting), None)


def _held(recorder: Recorder, cache: Any) -> int | None:
    """Tokens in a cache that no loop has passed yet; None where only its device knows."""
    if cache is None:
        return 0
    seen = caches.count(cache)
    if seen is None or _is_at_hand(seen):
        return caches.read(seen)
    return None if recorder.caches.knows(cache) else 0  # nobody has filled it yet


def end(state: ThreadState, step: Step, outcome: Outcome) -> None:
    """Close the step and tell it."""
    recorder, columns = state.recorder, step.columns
    columns["forward_ns"] = recorder.clock() - step.started
    if step.timer is not None:
        with recorder.guard("device time"):
            step.timer.end()
    state.note("loop step", None)
    state.mute(False)
    row = state.close_held(step.span, outcome.status)
    counts, state.counts = state.counts, step.outer_counts
    if row is None:
        return
    with state.own_work("step resolved"), recorder.guard("steps"):
        columns |= {
            "rope_index_calls": counts.get("rope_index_calls", 0),
            "rotary_applications": counts.get("rotary_applications", 0),
            "logits_tokens": with_logits(outcome.result),
        }
        if recorder.options.detail != "stages":
            columns["rotary_calls"] = caches.count_rotary(recorder, state.rows, step.first_row)
        if outcome.error is None:
            _tell_cache(recorder, step, _returned(outcome.result, step))
            _keep_logits(recorder, step, outcome.result)
    row[1].update(columns)
    _tell_positions(state, step, row)


def _returned(result: Any, step: Step) -> Any:
    if hasattr(result, "get"):
        cache = first_given(result, *caches.NAMES)
    else:
        parts = result if isinstance(result, tuple) else ()
        cache = next((one for one in parts if hasattr(one, "get_seq_length")), None)
    return first_given(step.given, *caches.NAMES) if cache is None else cache


def _tell_cache(recorder: Recorder, step: Step, cache: Any) -> None:
    loop, columns = step.loop, step.columns
    if cache is None:
        return
    before = loop.tokens
    loop.tokens = _held_after(step, cache)
    columns["cache"] = caches.name(recorder, cache, loop)
    columns["cache_tokens_before"], columns["cache_tokens_after"] = before, loop.tokens
    ids = step.given.get("input_ids")
    model = step.span.columns["model"]
    cached_ids.feed(recorder, model, columns["cache"], before, ids)
    cache_rows.note(recorder, columns["cache"], cache)
    own = loop.tokens if not _counts_itself(step, cache) else None
    columns["cache_bytes"] = caches.tell(
        recorder, step.call, loop.number, columns["cache"], cache, own
    )
    lasting = caches.identity(cache)
    if lasting is None:
        return
    loop.cache = weakref.ref(lasting)
    loops = _loops(recorder)
    loops[:] = [one for one in loops if one.cache and one.cache() is not None and one is not loop]
    loops.append(loop)


def _keep_logits(recorder: Recorder, step: Step, result: Any) -> None:
    """Copy what the next choice is made from; only of the newest loops, which may go on."""
    loop = step.loop
    loop.choosing.keep(step.call, loop.number, loop.tokens, step.given, result)
    for older in _loops(recorder)[:-_CHOOSING]:
        older.choosing.give_up()


def _counts_itself(step: Step, cache: Any) -> bool:
    """Whether its own count is true, and there to be read without waiting for a device."""
    return _is_at_hand(caches.counted(cache, step.fed_at))


def _is_at_hand(seen: Any) -> bool:
    """Whether a count is there to be read without waiting for a device."""
    return seen is not None and (not hasattr(seen, "device") or seen.device.type == "cpu")


def _held_after(step: Step, cache: Any) -> int | None:
    if _counts_itself(step, cache):
        return caches.read(caches.count(cache))
    fed, before = step.columns["input_tokens"], step.loop.tokens
    return None if fed is None or before is None else before + fed


def _tell_positions(state: ThreadState, step: Step, row: Row) -> None:
    """Release the row; what lies on a device is read when the recording ends, not awaited now."""
    recorder, copied = state.recorder, step.positions

    def release() -> None:
        with recorder.guard("steps"):
            if step.timer is not None:
                row[1]["device_ns"] = step.timer.read()
            first, last = read_ends(copied)
            row[1].update(first_position=first, last_position=last)
            fed, before = row[1].get("input_tokens"), row[1].get("cache_tokens_before")
            if last is not None and fed is not None and before is not None:
                row[1]["position_offset"] = last - (before + fed - 1)
        state.release(row)

    if step.timer is None and (copied is None or copied.device.type == "cpu"):
        release()
    else:
        recorder.at_end.append(release)


def _watch_positions(recorder: Recorder, model: Any) -> None:
    """Hook the modules that turn positions into angles: a forward often counts by itself."""
    watched: set[str] = recorder.notes.setdefault("loop_models", set())
    name = recorder.models.of(model)
    if name in watched or recorder.options.detail == "stages":
        return
    from tracer.instrument import graphs  # which needs torch; a model brings it along

    is_traced, ident = tracing_test(), threading.get_ident

    def rotating(module: Any, args: Any, kwargs: Any) -> None:
        if is_traced():
            return
        state = ACTIVE.get(ident())
        if state is None or state.recorder is not recorder:
            return
        step = state.notes.get("loop step")
        if step is not None and step.positions is None:
            given = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
            if hasattr(given, "ndim"):
                with graphs.unseen():
                    step.positions = ends(given)

    for module in every_module(model):
        if caches.is_rotary(type(module).__name__):
            handle = module.register_forward_pre_hook(InertInCopies(rotating), with_kwargs=True)
            handles(recorder).append(handle)
    watched.add(name)
