"""Beam search: which token continued which beam, which ended there, and what was returned.

A round makes two kinds of choices. Those with offset 0 go on as the rows of the next forward; those
with offset 1 ended there, numbered from the best one of their item. `parent_row` is the row of the
forward that a token came out of, so a sequence is followed backwards from its end.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tracer.instrument.answering import choices, finishes
from tracer.instrument.answering.scores import Pick
from tracer.instrument.asking.vocabulary import TextAssembler

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run
    from tracer.instrument.answering.step import Step

Choice = dict[str, Any]


@dataclasses.dataclass(slots=True)
class Round:
    """Own copies of what one round selected; shapes (items, kept) and (items, beams)."""

    tokens: Any
    parents: Any
    totals: Any
    is_over: Any
    next_tokens: Any
    next_parents: Any
    next_totals: Any


class Beams:
    """Beam search of one generate(); its choices wait until it is known which were returned."""

    def __init__(self, count: int, returned: int, prompt: int) -> None:
        self.count = count
        self.returned = returned
        self.prompt = prompt  # tokens
        self.rounds: list[dict[tuple[int, int], list[Choice]]] = []
        self.paths: list[list[Choice]] = []  # the choices of each returned sequence
        self._indices: Any = None

    def selected(self, turn: int, given: dict[str, Any], result: Any) -> Round:
        """Copy what goes on from a round and what it chose from."""
        place = self.prompt + turn
        sequences, totals, indices = result
        return Round(
            given["topk_running_sequences"][:, :, place].clone(),
            given["topk_running_beam_indices"][:, :, turn].clone(),
            given["topk_log_probs"].clone(),
            given["next_token_hits_stopping_criteria"].clone(),
            sequences[:, :, place].clone(),
            indices[:, :, turn].clone(),
            totals.clone(),
        )

    def ended(self, result: Any) -> None:
        """Copy the way of the best ended sequences so far: what is returned in the end."""
        self._indices = result[2][:, : self.returned].clone()

    def tell(self, run: Run, step: Step) -> None:
        """Write what belongs to a round's choices; the choices themselves wait."""
        chosen = step.selection
        if chosen is None:
            return
        ended, going = self._ended(run, step, chosen), self._going(chosen)
        picked = [*ended, *going]
        tokens = [one["token_id"] for one in picked]
        sources = [one["parent_row"] for one in picked]
        picks = [Pick(n, one["row"], one["offset"]) for n, one in enumerate(picked)]
        logits = step.scores.logits
        told = choices.tell_picks(
            run, step.number, step.scores.at(sources), tokens, picks, logits[sources]
        )
        self._add_texts(run, picked)
        known: dict[tuple[int, int], list[Choice]] = {}
        for columns, own in zip(told, picked, strict=True):
            known.setdefault((own["parent_row"], own["token_id"]), []).append(columns | own)
        self.rounds.append(known)
        if run.recorder.options.logits:
            choices.tell_logits(
                run, step.number, logits, [(row, row, 0) for row in range(len(logits))]
            )

    def _ended(self, run: Run, step: Step, chosen: Round) -> list[Choice]:
        """Of the best of each item those that the stopping test ended."""
        parents, totals = chosen.parents.tolist(), chosen.totals.tolist()
        tokens, kept = chosen.tokens.tolist(), chosen.tokens.shape[1]
        length = self.prompt + len(self.rounds) + 1
        return [
            {
                "row": item * self.count + rank,
                "offset": 1,
                "parent_row": parents[item][rank],
                "token_id": tokens[item][rank],
                "score": totals[item][rank],
                "finish": finishes.reason(
                    run, step.scores.fired, item * kept + rank, tokens[item][rank], length
                ),
            }
            for item, over in enumerate(chosen.is_over.tolist())
            for rank in range(self.count)
            if over[rank]
        ]

    def _going(self, chosen: Round) -> list[Choice]:
        """What the next forward is fed, unless there is none: every continuation has ended."""
        if bool(chosen.is_over.all()):
            return []
        parents, totals = chosen.next_parents.tolist(), chosen.next_totals.tolist()
        return [
            {
                "row": item * self.count + rank,
                "offset": 0,
                "parent_row": parents[item][rank],
                "token_id": token,
                "score": totals[item][rank],
                "finish": None,
            }
            for item, tokens in enumerate(chosen.next_tokens.tolist())
            for rank, token in enumerate(tokens)
        ]

    def _add_texts(self, run: Run, picked: list[Choice]) -> None:
        """Each token's text in its own beam: a character may be spread over several rounds."""
        after: dict[int, TextAssembler] = {}
        for one in picked:
            one["text"] = None
            if not run.assemblers:
                continue
            assembler = run.assemblers[one["parent_row"]].fork()
            one["text"] = assembler.add(one["token_id"])
            if one["offset"]:
                one["text"] = None if one["text"] is None else one["text"] + assembler.finish()
            else:
                after[one["row"]] = assembler
        if after:
            run.assemblers = [after[row] for row in sorted(after)]

    def finish(self, run: Run, rows: list[list[int]] | None) -> list[str]:
        """Write all choices, those of the returned sequences as accepted.

        Returns:
            Why each returned sequence ended.
        """
        self.paths = [] if rows is None else self._followed(rows)
        for sequence, path in enumerate(self.paths):
            for one in path:
                one.setdefault("accepted", True)
                one.setdefault("sequence", sequence)  # the first of those that share it
        for known in self.rounds:
            for one in (one for same in known.values() for one in same):
                one.setdefault("accepted", None if rows is None else False)
                choices.write(run, one)
        self.rounds.clear()
        return [
            (path[-1]["finish"] or "unfinished") if path else "unfinished" for path in self.paths
        ]

    def _followed(self, rows: list[list[int]]) -> list[list[Choice]]:
        """The choices that each returned sequence was made of, from its first token."""
        if self._indices is None:
            return []
        paths = []
        for ids, parents in zip(rows, self._indices.flatten(0, 1).tolist(), strict=False):
            path: list[Choice] = []
            steps = [parent for parent in parents if parent >= 0]
            for turn, parent in enumerate(steps):
                token = ids[self.prompt + turn]
                # Scores that are no numbers lead the library to a beam that it never had.
                known = self.rounds[turn] if turn < len(self.rounds) else {}
                same = known.get((parent, token), [])
                wanted = int(turn == len(steps) - 1)
                path.extend(sorted(same, key=lambda one: one["offset"] != wanted)[:1])
            paths.append(path)
        return paths
