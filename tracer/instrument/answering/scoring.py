"""A step's scores and its choice as they come: own copies, kept until the step is resolved.

Called by the observers of generate() while logits processors and stopping criteria run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracer.instrument.answering import caches
from tracer.instrument.answering.own_loops import Asked
from tracer.instrument.answering.scores import Scores
from tracer.instrument.answering.step import Step
from tracer.instrument.stages import Outcome

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run


def keep_logits(run: Run, step: Step, logits: Any) -> None:
    """Copy the model's own logits, where they are wanted or never meet a processor."""
    is_wanted = run.recorder.options.logits
    if run.follows == "drafts":
        places = 1 if step.drafted is None else 1 + len(step.drafted)
        if is_wanted or not run.chain_length:
            step.scores.logits = logits[0, -places:].detach().clone()
    elif is_wanted or run.follows == "beams":  # whose processors are given log-probabilities
        step.scores.logits = logits[:, -1].detach().clone()


def processing_began(run: Run, ids: Any, scores: Any) -> None:
    """Logits processors are about to run; their input is kept until the step is resolved."""
    step = run.step
    if step is not None and run.follows:
        started = run.recorder.clock()
        if run.loop is not None:
            step.scores = run.loop.processing_began(ids, scores)
            step.own_ns += run.recorder.clock() - started
            return
        if step.scores.raw is not None:  # another place of the same forward
            step.earlier.append(step.scores)
            step.scores = Scores(logits=step.scores.logits)
        step.scores.raw = scores.detach().clone()
        step.own_ns += run.recorder.clock() - started


def processing_ended(run: Run, start: int, own_ns: int, result: Any) -> None:
    """Logits processors have run."""
    step = run.step
    if step is None:
        return
    end = run.recorder.clock()
    step.processors_end = end
    step.own_ns += own_ns
    if not step.chose:  # else it is over, and these are for the next
        took = end - start - own_ns
        step.columns["processors_ns"] = step.columns.get("processors_ns", 0) + took
    if run.follows and result is not None:
        step.scores.final = _final(run, step.scores, result)
        step.own_ns += run.recorder.clock() - end


def _final(run: Run, scores: Scores, result: Any) -> Any:
    """The scores chosen from, copied only where no copy of them exists yet."""
    if scores.after:
        return scores.after[-1][1]
    return result.detach().clone() if run.chain_length else scores.raw


def stopping_began(run: Run, input_ids: Any) -> Asked | None:
    """The choice is made and stands at the end of the ids."""
    step = run.step
    if step is None:
        return None
    now = run.recorder.clock()
    if step.processors_end is not None and not step.chose:
        step.columns["select_ns"] = max(0, now - step.processors_end)
    if run.loop is not None:
        return run.loop.stopping_began(input_ids)
    if run.follows == "rows":
        step.scores.chosen = input_ids[:, -1].clone()
    elif run.follows == "drafts":
        known = len(run.prompt[0]) + len(run.chosen[0])
        step.scores.chosen = input_ids[0, known:].clone()
        # What did not stand has been cut off the cache by now.
        step.seen_after = caches.counted(run.last_cache, step.fed_at)
    return None


def stopping_ended(run: Run, start: int, outcome: Outcome, asked: Asked | None) -> None:
    """The stopping test has run: the step is over, unless the test failed."""
    step = run.step
    if step is None:
        return
    stopped = outcome.result.clone() if hasattr(outcome.result, "clone") else None
    if asked is not None:
        asked.stopped = stopped
    if step.chose:
        return
    step.columns["stop_ns"] = run.recorder.clock() - start
    step.scores.stopped = stopped
    run.rounds += 1
    step.chose = True
    # Of a search with beams these are still to be selected and put in order.
    if run.follows != "beams" and outcome.error is None:
        run.end_step(step)
