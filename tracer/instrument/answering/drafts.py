"""Assisted decoding: one forward judges several drafted tokens, and some of them stand.

At each place the model's own distribution is known. `drafted_id` is what was proposed there; places
after the first one that did not stand keep their draft as a choice that is not accepted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tracer.instrument.answering import choices, finishes
from tracer.instrument.answering.scores import Pick, Scores

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run
    from tracer.instrument.answering.step import Step


def tell(run: Run, step: Step) -> None:
    """Write a step that judged drafts: what stands, and what was thrown away."""
    drafted, standing = step.drafted.tolist(), step.scores.chosen.tolist()
    scores = _together(run, step)
    count = min(max(len(standing), len(drafted)), len(scores.raw))
    tokens = (standing + drafted[len(standing) :])[:count]
    matrix = scores.at(list(range(count)))
    picks = [Pick(place, 0, place) for place in range(count)]
    for columns in choices.tell_picks(run, step.number, matrix, tokens, picks):
        place, token_id = columns["offset"], columns["token_id"]
        columns |= {"drafted_id": drafted[place] if place < len(drafted) else None}
        if place < len(standing):
            text = run.assemblers[0].add(token_id) if run.assemblers else None
            choices.hold(run, columns | {"text": text, "parent_row": 0, "sequence": 0})
        else:
            text = run.vocabulary.text(token_id) if run.vocabulary else None
            choices.write(run, columns | {"text": text, "parent_row": 0}, accepted=False)
    if run.recorder.options.logits and step.scores.logits is not None:
        places = [(place, 0, place) for place in range(min(count, len(step.scores.logits)))]
        choices.tell_logits(run, step.number, step.scores.logits, places)
    run.chosen[0].extend(standing)
    if step.scores.stopped is not None and bool(step.scores.stopped.reshape(-1)[0]):
        run.finished[0] = True
        length = len(run.prompt[0]) + len(run.chosen[0])
        run.ends[0] = finishes.reason(run, step.scores.fired, 0, standing[-1], length)


def _together(run: Run, step: Step) -> Scores:
    """One row of scores a place; without processors nothing but the model made them."""
    torch = sys.modules["torch"]
    every = [one for one in (*step.earlier, step.scores) if one.raw is not None]
    if not every:
        raw = step.scores.logits.float()
        return Scores(raw, [], raw)
    raw = torch.cat([one.raw for one in every])
    after: list[tuple[str, Any]] = [
        (name, torch.cat([one.after[index][1] for one in every]))
        for index, (name, _) in enumerate(every[0].after)
    ]
    return Scores(raw, after, after[-1][1] if after else torch.cat([one.final for one in every]))
