"""Observers of generate(): the call, its decoding method, and the parts of each step.

The user's own generate() runs; nothing here loops, chooses or computes a token. What is in force
as it begins is in `generation_facts.py`, what came out of it in `answers.py`.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, Final

from tracer.instrument import modules
from tracer.instrument.answering import answers, caches, generation_facts, scoring
from tracer.instrument.answering.feeding import first_given
from tracer.instrument.answering.finishes import Watch
from tracer.instrument.answering.run import Run
from tracer.instrument.answering.scores import Probe
from tracer.instrument.asking import consumed
from tracer.instrument.stages import Call, Observer, open_call, open_span
from tracer.spans import ThreadState

_FOLLOWED: Final = {"_sample": "rows", "_beam_search": "beams", "_assisted_decoding": "drafts"}
"""Decoding methods and how their choices are followed, others as a loop; the first runs for greedy
too."""


_POSITIONAL: Final = ("inputs", "generation_config", "logits_processor", "stopping_criteria")


def generate(state: ThreadState, call: Call) -> Observer:
    """`generate`: one call from the user's arguments to the returned ids."""
    model, recorder = call.args[0], state.recorder
    modules.meet(recorder, model)
    span = open_call(
        state,
        call,
        f"{type(model).__name__}.generate",
        "generate",
        model=recorder.models.of(model),
    )
    given = dict(call.kwargs)
    given |= dict(zip(_POSITIONAL, call.args[1:], strict=False))
    run = Run(state, span, model, given)
    outer, state.run = state.run, run
    if outer is not None and outer.model is model:
        outer.delegates = True
    outer_counts, state.counts = state.counts, {}
    run.setup = open_span(state, call, "set-up of generate")
    outcome = yield None
    run.resolve(status=outcome.status)
    if run.delegates and not run.mode:
        span.columns["mode"] = f"{_custom_name(run)}, by a generate() within"
    elif not run.mode and outcome.error is None:
        recorder.fault("steps", "generate() ran a loop of which no part is known: no step was seen")
    with state.own_work("facts of the generation"), recorder.guard(call.target.name):
        answers.tell(run, outcome.result)
    state.run, state.counts = outer, outer_counts
    state.mute(False)
    state.close(span, outcome.status)
    recorder.flush_if_due(state)


def around(state: ThreadState, call: Call) -> Observer:
    """`generate` of a model's own class: its own work, and the library's generate() within.

    Speech models go over a long recording piece by piece, others ask the language model that they
    contain; some run a decoding method of the library themselves.
    """
    model, recorder = call.args[0], state.recorder
    modules.meet(recorder, model)
    name = f"{type(model).__name__}.generate"
    span = open_call(state, call, name, "own_generate", model=recorder.models.of(model))
    outcome = yield None
    state.close(span, outcome.status)
    recorder.flush_if_due(state)


def decoding(state: ThreadState, call: Call) -> Observer:
    """`_sample` and its like: the set-up is over, everything in force is in the arguments."""
    run: Run | None = state.run
    method = call.target.attribute
    if run is None:
        state.recorder.fault(
            "steps",
            f"{type(call.args[0]).__name__} runs {method} out of a generate() of its own, "
            "whose steps and choices are not followed",
        )
    elif call.args[0] is run.model:
        run.end_setup()
        run.mode = method
        state.recorder.places.source(call.function)  # its text, the loop over the tokens
        run.follows = _FOLLOWED.get(method, "loop")
        with state.own_work("settings of the generation"), state.recorder.guard(call.target.name):
            generation_facts.tell_setup(run, call.argument(1, "input_ids"), call.kwargs)
    yield None


def part(state: ThreadState, call: Call) -> Observer:
    """A function of the set-up: a span, and what it prepared, for a loop that is not known."""
    span = open_span(state, call)
    outcome = yield None
    state.close(span, outcome.status)
    run: Run | None = state.run
    # In generation 4 one of these is static, and given everything by name.
    if run is not None and (call.args[0] is run.model if call.args else run.setup is not None):
        made = outcome.result
        if call.target.attribute == "_prepare_cache_for_generation":
            made = call.argument(2, "model_kwargs")  # which it puts the cache into
        run.parts[call.target.attribute] = made


def pipeline(state: ThreadState, call: Call) -> Observer:
    """`Pipeline.__call__`: texts in, texts out, with a generate() or a forward within."""
    pipe, recorder = call.args[0], state.recorder
    model = getattr(pipe, "model", None)
    name = None if model is None else recorder.models.of(model)
    span = open_call(state, call, f"{type(pipe).__name__}.__call__", "pipeline", model=name)
    outer = state.notes.get("runs")
    state.note("runs", (pipe, call.kwargs))
    outcome = yield None
    state.note("runs", outer)
    state.close(span, outcome.status)
    recorder.flush_if_due(state)


def _custom_name(run: Run) -> str:
    given = run.kwargs.get("custom_generate")
    if isinstance(given, str):
        name = PurePath(given).name if Path(given).exists() else given  # never the user's folders
    else:
        name = getattr(given, "__qualname__", "unknown")
    return f"custom_generate: {name}"


def _begin_custom(state: ThreadState, run: Run, input_ids: Any) -> None:
    """The first step of a decoding loop that is not the library's: what is in force is known."""
    run.end_setup()
    run.is_custom = True
    run.mode = _custom_name(run)
    names = ("_prepare_generation_config", "_get_logits_processor", "_get_stopping_criteria")
    config, processors, criteria = (run.parts.get(name) for name in names)
    if config is None or processors is None or criteria is None or input_ids is None:
        state.recorder.fault("settings", f"{run.mode} prepares nothing that is known")
        run.follows = "loop"
        with state.own_work("prompt of the generation"), state.recorder.guard("tokens"):
            generation_facts.tell_unprepared(run, input_ids)
        return
    run.follows = "loop"
    made = run.parts.get("_prepare_cache_for_generation") or {}
    with state.own_work("settings of the generation"), state.recorder.guard("settings"):
        kwargs = {"generation_config": config[0], "logits_processor": processors}
        kwargs |= {"stopping_criteria": criteria, "cache": first_given(made, *caches.NAMES)}
        generation_facts.tell_setup(run, input_ids, kwargs)


def begin_unprepared(state: ThreadState, run: Run, given: dict[str, Any]) -> None:
    """A loop of the user's own calls the model with inputs that it made itself: a step begins."""
    names = ["input_ids", "decoder_input_ids"]
    if consumed.is_encoder_decoder(run):
        names.reverse()
    ids = first_given(given, *names)
    if not run.mode:
        expanded = run.parts.get("_expand_inputs_for_generation")
        _begin_custom(state, run, expanded[0] if expanded else ids)
    if run.loop is not None:
        run.loop.feeding_began(ids, _held(given))
    run.begin_step(ids)
    if run.step is not None:
        run.given(run.step, given)


def _held(given: Any) -> int | None:
    """Tokens that the cache holds which a forward is given; None where only a device knows."""
    cache = first_given(given, *caches.NAMES)
    seen = 0 if cache is None else caches.count(cache)
    return seen if isinstance(seen, int) else None


def prepared(state: ThreadState, call: Call) -> Observer:
    """`prepare_inputs_for_generation`: where a step begins."""
    run: Run | None = state.run
    if run is None or call.args[0] is not run.model:
        yield None
        return
    if not run.mode:
        _begin_custom(state, run, call.argument(1, "input_ids"))
    if run.loop is not None:
        run.loop.feeding_began(call.argument(1, "input_ids"), 0)
    run.begin_step(call.argument(1, "input_ids"))
    outcome = yield None
    run.prepared(outcome)


def processed(state: ThreadState, call: Call) -> Observer:
    """`LogitsProcessorList.__call__`: the library's own loop over a list of probes."""
    run: Run | None = state.run
    # After the choice it is a draft that is being made, for the next step.
    is_draft = run is not None and run.step is not None and run.step.chose and run.loop is None
    if run is None or run.step is None or not run.step.in_forward or is_draft:
        yield None
        return
    clock = state.recorder.clock
    processors = call.args[0]
    scoring.processing_began(run, call.argument(1, "input_ids"), call.argument(2, "scores"))
    probes = []
    changed = None
    if run.follows and state.recorder.options.effects and len(processors):
        probes = [Probe(one, run.step.scores, clock) for one in processors]
        changed = ((type(processors)(probes), *call.args[1:]), call.kwargs)
    start, run.is_processing = clock(), True
    outcome = yield changed
    run.is_processing = False
    scoring.processing_ended(run, start, sum(probe.own_ns for probe in probes), outcome.result)


def stopped(state: ThreadState, call: Call) -> Observer:
    """`StoppingCriteriaList.__call__`: the token is chosen; is that the end?"""
    run: Run | None = state.run
    # Assisted decoding also asks about its candidates, before the forward that checks them.
    if run is None or run.step is None or (run.step.chose and run.loop is None):
        yield None
        return
    asked = scoring.stopping_began(run, call.argument(1, "input_ids"))
    changed = None
    if run.watches_criteria:
        criteria = call.args[0]
        fired = run.step.scores.fired if asked is None else asked.fired
        changed = (
            (type(criteria)(Watch(one, fired) for one in criteria), *call.args[1:]),
            call.kwargs,
        )
    start = state.recorder.clock()
    outcome = yield changed
    scoring.stopping_ended(run, start, outcome, asked)


def beams_selected(state: ThreadState, call: Call) -> Observer:
    """`_get_running_beams_for_next_iteration`: what one round of beam search goes on with."""
    run: Run | None = state.run
    outcome = yield None
    if run is not None and call.args[0] is run.model and outcome.result is not None:
        run.beams_selected(call.kwargs, outcome.result)


def beams_ended(state: ThreadState, call: Call) -> Observer:
    """`_update_finished_beams`: the best sequences that have ended so far."""
    run: Run | None = state.run
    outcome = yield None
    if run is None or run.beams is None or outcome.result is None:
        return
    if call.args[0] is run.model:
        run.beams.ended(outcome.result)


def drafting(state: ThreadState, call: Call) -> Observer:
    """`_get_candidate_generator`: what proposes tokens in assisted decoding."""
    run: Run | None = state.run
    outcome = yield None
    if run is not None and call.args[0] is run.model and outcome.result is not None:
        run.drafting = type(outcome.result).__name__
        run.span.columns["mode"] = generation_facts.mode(run)
