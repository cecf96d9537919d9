"""Forwards of whole models: a step of generate(), a call of the user, or a model inside another."""

from __future__ import annotations

import functools
import sys
from typing import Any, Final

from tracer.instrument import memory, model_state, modules
from tracer.instrument.answering import generation, loops
from tracer.instrument.asking import fed
from tracer.instrument.installer import INSTALLER
from tracer.instrument.stages import Call, Observer, open_call
from tracer.instrument.targets import STAND_IN, TARGETS
from tracer.spans import Place, ThreadState

_FORWARD: Final = next(one for one in TARGETS if one.observe == "forwards.forward_call")


def forward_call(state: ThreadState, call: Call) -> Observer:
    """`PreTrainedModel.__call__`: a step of generate, a forward of the user, or an inner model."""
    model = call.args[0]
    run = state.run
    if run is not None:
        memory.first_forward(state, run.name, ended=False)  # an encoder runs ahead of the rest
    outer = state.place, state.reached
    is_step = run is not None and run.awaits_forward(model)
    if run is not None and not is_step and run.is_between_forwards(model):
        generation.begin_unprepared(state, run, loops.given_to(model, call))
        is_step = True
    if run is not None and is_step:
        stack = run.where_it_stands()
        if stack not in run.places:
            run.places[stack] = _place(state, stack, model)
        state.place, state.reached = run.places[stack], run.reached
        run.forward_began(state.place[1])
        outcome = yield None
        run.forward_ended(outcome)
        state.place, state.reached = outer
        memory.first_forward(state, run.name, ended=True)
        return
    if state.spans or state.frames:
        if state.place is None:
            if run is None and state.load is None:  # in a call of a pipeline, say
                modules.meet(state.recorder, model)
            _stand(state, state.recorder.places.stack(sys._getframe()), model)
        yield None
        state.place, state.reached = outer
        return
    yield from _user_forward(state, call, model)


def _place(state: ThreadState, stack: str | None, model: Any) -> Place:
    """From where a model is called, and on which device it is: the same object for the same two."""
    known: dict[Place, Place] = state.recorder.notes.setdefault("places", {})
    first = next(model.parameters(), None)
    place = stack, None if first is None else first.device
    return known.setdefault(place, place)


def _stand(state: ThreadState, stack: str | None, model: Any) -> None:
    """From here on modules run that this model's call has reached."""
    state.place = _place(state, stack, model)
    state.reached = state.recorder.places.reach(sys._getframe(), stack)


def _user_forward(
    state: ThreadState, call: Call, model: Any, *, compiled: bool | None = None
) -> Observer:
    recorder = state.recorder
    from tracer.instrument import graphs  # which needs torch; a model brings it along

    modules.meet(recorder, model)
    now: dict[str, Any] = {}
    with recorder.guard("state of the model"):
        now = model_state.of(model)
    span = open_call(
        state,
        call,
        f"{type(model).__name__}.forward",
        "forward",
        model=recorder.models.of(model),
        grad_mode=modules.grad_mode(),
        **now,
        compiled=modules.is_compiled(model) if compiled is None else compiled,
    )
    name = recorder.models.of(model)
    memory.first_forward(state, name, ended=False)
    step = prompt = None
    if graphs.is_drawn():
        recorder.fault(f"{type(model).__name__}.forward", graphs.UNREAD, call=span.seq)
    else:
        with graphs.unseen(), recorder.guard("steps"):
            step = loops.begin(state, call, model, span)
        with graphs.unseen():
            prompt = fed.begin(state, span.seq, model, loops.given_to(model, call))
    outer = state.place, state.reached
    _stand(state, span.columns["stack"], model)
    outcome = yield None
    state.place, state.reached = outer
    with graphs.unseen():
        if step is not None:
            loops.end(state, step, outcome)
        if prompt is not None:
            fed.end(state, prompt)
    memory.first_forward(state, name, ended=True)
    state.close(span, outcome.status, keeps_graph=model_state.keeps_graph(outcome.result))
    recorder.flush_if_due(state)


def compiled_by_generate(state: ThreadState, call: Call) -> Observer:
    """`get_compiled_call`: what it gives is called in place of the model, past every wrapper."""
    model, run = call.args[0], state.run
    outcome = yield None
    if outcome.error is not None or run is None or model is not run.model:
        return
    run.is_compiled = True
    run.span.columns["compiled"] = True
    state.recorder.fault(run.name, f"generate() runs it compiled: {modules.UNSEEN}")
    compiled = outcome.result

    def as_a_call(_: Any, *args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    outcome.result = functools.partial(INSTALLER.observed(_FORWARD, as_a_call), model)


def compiled_by_the_user(state: ThreadState, call: Call) -> Observer:
    """A module that `torch.compile` gave: what happens in it is traced past every wrapper."""
    module = call.args[0]._orig_mod
    state.recorder.fault(type(module).__name__, f"it runs compiled: {modules.UNSEEN}")
    if state.spans or state.frames or not modules.is_model(module):
        outer = state.notes.get("inside compiled")
        state.note("inside compiled", True)
        yield None
        state.note("inside compiled", outer)
        return
    yield from _user_forward(state, call, module, compiled=True)


def replicated(state: ThreadState, call: Call) -> Observer:
    """`_replicate_for_data_parallel`: the replica is called as itself, and in a thread of its own.

    What stands in for the call of the module that it was copied from would call that module.
    """
    outcome = yield None
    attributes = {} if outcome.result is None else vars(outcome.result)
    if modules.is_stand_in(attributes.get(STAND_IN)):
        del attributes[STAND_IN]


def compiling(state: ThreadState, call: Call) -> Observer:
    """`run_start_callbacks`: a compiler begins to trace, perhaps a function of the user's own.

    Of what it has compiled no wrapper and no hook hears, so this is all that there is to see of
    such a function. A compiled model tells of itself.
    """
    known = state.recorder.notes.get("compiled", ())
    is_told = state.notes.get("inside compiled") or any(
        span.columns.get("compiled") or span.columns.get("model") in known
        for span in state.spans
        if span.table == "calls"
    )
    if not is_told:
        state.recorder.fault(
            "torch.compile",
            "code was compiled while recording: a model that is called in there leaves no row of "
            "its calls, steps and modules",
        )
    yield None
