"""Decoding loops that the library does not know, or knew once: what their ids tell.

A loop of the user's own, of a hub repository, or an old one of the library's hands its ids to the
stopping test and to the logits processors. What is new in them since the last test was chosen; the
scores that it was chosen from were made for the ids before it. Rows may change places: then a
choice comes out of a row that held the same ids. Whether it stands is known in the end.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument.answering import choices, finishes
from tracer.instrument.answering.choice_tree import ChoiceTree, Ids, Node
from tracer.instrument.answering.scores import Pick, Scores
from tracer.instrument.asking.vocabulary import TextAssembler

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run
    from tracer.instrument.answering.step import Step

Columns = dict[str, Any]
_KEPT: Final = 32
"""Positions of a forward whose logits are all kept: a prompt has more, a draft has fewer."""
_NEAR: Final = 1e-4  # logarithms of probabilities are the logits less a number, but for rounding


@dataclasses.dataclass(slots=True)
class Asked:
    """Own copies of a stopping test: ids of shape (rows, tokens), its answers of shape (rows,)."""

    ids: Any
    fired: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    stopped: Any = None


class OwnLoop:
    """What one such loop has handed over, and what follows from it."""

    def __init__(self, prompt: list[Ids]) -> None:
        self.is_scored = False  # processors have run, so the prompt is through
        self._tree = ChoiceTree(prompt)
        self._prompt = prompt
        self._reasons: dict[int, str] = {}  # of rows that have ended
        self._assemblers: list[TextAssembler] | None = None
        self._logits: Any = None  # of the last forward: (rows, positions, vocabulary)
        self._scored: list[tuple[Any, Scores]] = []  # with the ids given: (rows, tokens)
        self._asked: list[Asked] = []
        self._told: list[Columns] = []
        self._noted: set[str] = set()
        self._is_own_score = False  # processors were given other scores than the model's

    # What the loop hands over

    def forward_ended(self, logits: Any) -> None:
        """Copy the logits of a forward; of a whole prompt the last position only."""
        kept = logits if logits.shape[1] <= _KEPT else logits[:, -1:]
        self._logits = kept.detach().clone()

    def processing_began(self, ids: Any, raw: Any) -> Scores:
        """Copy what a round of processors is given."""
        self.is_scored = True
        scores = Scores(raw=raw.detach().clone(), logits=self._logits)
        self._scored.append((ids.clone(), scores))
        return scores

    def stopping_began(self, ids: Any) -> Asked:
        """Copy the ids at a stopping test."""
        self._asked.append(Asked(ids.clone()))
        return self._asked[-1]

    # Between steps

    def tell(self, run: Run, step: Step) -> None:
        """Tell the distributions that a step's choices came from; the choices themselves wait."""
        if self._assemblers is None:
            known = run.vocabulary
            self._assemblers = [TextAssembler(known, row) for row in self._prompt if known]
        asked, self._asked = self._asked, []
        counts: dict[int, int] = {}
        for one in asked:
            chosen = self._take(run, step.number, one, counts)
            self._told += [columns for _, columns in chosen]
            self._tell_scores(run, step.number, chosen)
        # What is scored and not chosen from yet may be for the next step.
        self._scored = [one for one in self._scored if one[0].shape[1] >= self._tree.width]

    def _take(
        self, run: Run, step: int, asked: Asked, counts: dict[int, int]
    ) -> list[tuple[Ids, Columns]]:
        """What a stopping test was the first to be shown: each choice, and the ids before it."""
        rows: list[Ids] = asked.ids.tolist()
        parents, width = self._tree.parents(rows), self._tree.width
        if None in parents:
            self._note(run, "ids go on from no row that was seen, so choices are missing")
        assemblers, ends, forks = self._assemblers or [], [], []
        chosen: list[tuple[Ids, Columns]] = []
        for row, (ids, parent) in enumerate(zip(rows, parents, strict=True)):
            node = Node() if parent is None else self._tree.end(parent)
            fork = assemblers[parent or 0].fork() if assemblers else None
            is_filler = row in self._reasons and not self._tree.is_crossed
            for place in range(len(ids) if parent is None or is_filler else width, len(ids)):
                columns = {
                    "step": step,
                    "row": row,
                    "offset": counts.get(row, 0),
                    "token_id": ids[place],
                    "parent_row": parent,
                    "text": fork.add(ids[place]) if fork else None,
                }
                counts[row] = counts.get(row, 0) + 1
                node = node.add(columns)
                chosen.append((ids[:place], columns))
            if not is_filler and _says_stop(asked, row):
                self._reasons[row] = finishes.reason(run, asked.fired, row, ids[-1], len(ids))
            ends.append(node)
            forks += [fork] if fork else []
        self._tree.go_on(rows, ends)
        self._assemblers = forks
        return chosen

    def _note(self, run: Run, words: str) -> None:
        """A fault of this loop, once a call."""
        if words not in self._noted:
            self._noted.add(words)
            run.recorder.fault("choices", f"{run.mode}: {words}")

    def _tell_scores(self, run: Run, step: int, chosen: list[tuple[Ids, Columns]]) -> None:
        """The distribution of each choice, where processors were given the ids before it."""
        complete = ((ids, scores) for ids, scores in self._scored if scores.final is not None)
        every = [(ids.tolist(), scores) for ids, scores in complete][::-1]  # the newest first
        found: dict[int, tuple[Scores, list[int], list[Columns]]] = {}
        for history, columns in chosen:
            source = _source(every, history, columns["parent_row"])
            if source is None:
                self._note(run, "of some choices no scores were seen: no distribution is told")
                continue
            scores, place = source
            _, places, mine = found.setdefault(id(scores), (scores, [], []))
            places.append(place)
            mine.append(columns)
        for scores, places, mine in found.values():
            self._tell_picks(run, step, scores, places, mine)

    def _tell_picks(
        self, run: Run, step: int, scores: Scores, places: list[int], mine: list[Columns]
    ) -> None:
        picks = [Pick(n, one["row"], one["offset"]) for n, one in enumerate(mine)]
        own, is_given = _own_logits(scores, places)
        self._is_own_score |= not is_given
        if own is None:
            self._note(run, "processors are given scores that are not the model's: raw means these")
        tokens = [one["token_id"] for one in mine]
        told = choices.tell_picks(run, step, scores.at(places), tokens, picks, own)
        for columns, one in zip(told, mine, strict=True):
            one.update(columns)
        if run.recorder.options.logits and own is not None:
            places_told = [(pick.source, pick.row, pick.offset) for pick in picks]
            choices.tell_logits(run, step, own, places_told)

    # The end

    def finish(self, run: Run, returned: list[Ids] | None) -> list[str] | None:
        """Write all choices, those of the returned rows as accepted.

        Returns:
            Why each row ended, with its ids in `run.chosen`; None where the choices do not tell
            what was returned.
        """
        paths = self._tree.mark(returned)
        is_plain = not self._tree.is_crossed
        by_row: list[list[Columns]] = [[] for _ in self._prompt]
        if is_plain:
            for one in self._told:
                by_row[one["row"]].append(one)
            self._end_rows(by_row)
        for columns in self._told:
            choices.write(run, {"accepted": None if returned is None else False} | columns)
        if self._is_own_score:
            run.span.columns["mode"] += ", by scores of its own"
        if not is_plain:
            run.span.columns["mode"] += ", rows change places"
            self._note(run, "rows change places: which sequence ended where is not seen")
            return None
        if returned is not None and not self._are_all(paths, by_row, returned):
            run.span.columns["mode"] += ", not followed to the end"
            self._note(run, "it returned ids that no stopping test was shown: these are no choices")
            return None
        run.chosen = [[one["token_id"] for one in mine] for mine in by_row]
        run.texts = [[one["text"] for one in mine] for mine in by_row]
        return [self._reasons.get(row, "unfinished") for row in range(len(by_row))]

    def _end_rows(self, by_row: list[list[Columns]]) -> None:
        """Complete each row's last choice: the rest of its text, and why the row ended."""
        for row, mine in enumerate(by_row):
            for one in mine:
                one.setdefault("sequence", row)
            if not mine:
                continue
            mine[-1]["finish"] = self._reasons.get(row, "unfinished")
            if self._assemblers and mine[-1]["text"] is not None:
                mine[-1]["text"] += self._assemblers[row].finish()

    def _are_all(
        self, paths: list[list[Node]], by_row: list[list[Columns]], returned: list[Ids]
    ) -> bool:
        """Whether the choices of each row are all that was returned of it, but for filler."""
        return len(returned) == len(by_row) and all(
            len(path) == len(mine)
            and (row in self._reasons or len(self._prompt[row]) + len(mine) == len(returned[row]))
            for row, (path, mine) in enumerate(zip(paths, by_row, strict=True))
        )


def _says_stop(asked: Asked, row: int) -> bool:
    answers = [] if asked.stopped is None else asked.stopped.reshape(-1).tolist()
    return row < len(answers) and bool(answers[row])


def _source(
    every: list[tuple[list[Ids], Scores]], history: Ids, parent: int
) -> tuple[Scores, int] | None:
    """The scores that were made for these ids, and their row: the parent's own, if it has them."""
    for given, scores in every:
        if parent < len(given) and given[parent] == history:
            return scores, parent
        if history in given:
            return scores, given.index(history)
    return None


def _own_logits(scores: Scores, places: list[int]) -> tuple[Any, bool]:
    """The model's own logits behind rows of scores, and whether the scores are these.

    None where nothing shows which they are.
    """
    if scores.logits is None:
        return None, False
    raw, flat = scores.raw[places].float(), scores.logits.flatten(0, 1)
    rows = []
    for one in raw:
        apart = one - flat.float()
        is_same = (apart.amax(-1) - apart.amin(-1)) <= _NEAR * one.abs().amax().clamp(min=1)
        rows += is_same.nonzero()[:1].flatten().tolist()
    if len(rows) == len(places):
        return flat[rows], True
    # Made of several layers' logits, as DoLa does: each row of those of the same row.
    is_row_by_row = len(scores.raw) == len(scores.logits)
    return (scores.logits[places, -1] if is_row_by_row else None), False
