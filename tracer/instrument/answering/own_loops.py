"""Decoding loops that the library does not know, or knew once: what their ids tell.

A loop of the user's own, of a hub repository, or an old one of the library's hands its ids to the
stopping test and to the logits processors. What is new in them since the last test was chosen; the
scores that it was chosen from were made for the ids before it. Rows may change places: then a
choice comes out of a row that held the same ids. Whether it stands is known in the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument.answering import choices, finishes, own_ends, own_scores
from tracer.instrument.answering.choice_tree import Begun, ChoiceTree, Ids, Node, Way
from tracer.instrument.answering.own_feeding import Feeding
from tracer.instrument.answering.scores import Pick, Scores
from tracer.instrument.asking.vocabulary import TextAssembler

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run
    from tracer.instrument.answering.step import Step

Columns = dict[str, Any]
_KEPT: Final = 32
"""Positions of a forward whose logits are all kept: a prompt has more, a draft has fewer."""
_WAITING: Final = 8
"""Rounds of processors that are kept for a later choice; a loop that never chooses has more."""


@dataclasses.dataclass(slots=True)
class Asked:
    """Own copies of a stopping test: ids of shape (rows, tokens), its answers of shape (rows,)."""

    ids: Any
    is_fed: bool = False  # no test: what a loop fed that asks none
    fired: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    stopped: Any = None


class OwnLoop:
    """What one such loop has handed over, and what follows from it."""

    def __init__(self, prompt: list[Ids], fillers: Sequence[int] = ()) -> None:
        """Begin with the prompt's rows, and the ids that may stand behind a row's end."""
        self.is_told = True  # whether the choices tell all that was returned
        self.is_scored = False  # processors have run, so the prompt is through
        self._tree = ChoiceTree(prompt, fillers[0] if fillers else None)
        self._prompt = prompt
        self._fillers = fillers
        self._logits: Any = None  # of the last forward: (rows, positions, vocabulary)
        self._scored: list[tuple[Any, Scores]] = []  # with the ids given: (rows, tokens)
        self._asked: list[Asked] = []
        self._told: list[Node] = []
        self._noted: set[str] = set()
        self._is_own_score = False  # processors were given other scores than the model's
        self._feeding = Feeding()
        self._is_asking = False  # the library's processors or stopping test

    # What the loop hands over

    def forward_ended(self, logits: Any) -> None:
        """Copy the logits of a forward; of a whole prompt the last position only."""
        kept = logits if logits.shape[1] <= _KEPT else logits[:, -1:]
        self._logits = kept.detach().clone()
        if not self._is_asking:
            self._feeding.made(self._logits[:, -1])

    def feeding_began(self, ids: Any, held: int | None) -> None:
        """A forward is fed, behind so many ids in its cache: that much has been chosen by now."""
        if not self._is_asking:
            whole = self._feeding.began(ids, held)
            self._asked += [] if whole is None else [Asked(whole, is_fed=True)]

    def _asks(self) -> None:
        """The loop asks the library: what it says counts, not what is fed."""
        if not self._is_asking:
            self._is_asking = True
            self._tree = ChoiceTree(self._prompt, self._fillers[0] if self._fillers else None)
            self._told.clear()
            self._asked.clear()

    def processing_began(self, ids: Any, raw: Any) -> Scores:
        """Copy what a round of processors is given."""
        self._asks()
        self.is_scored = True
        scores = Scores(raw=raw.detach().clone(), logits=self._logits)
        self._scored.append((ids.clone(), scores))
        return scores

    def stopping_began(self, ids: Any) -> Asked:
        """Copy the ids at a stopping test."""
        self._asks()
        self._asked.append(Asked(ids.clone()))
        return self._asked[-1]

    # Between steps

    def tell(self, run: Run, step: Step) -> None:
        """Tell the distributions that a step's choices came from; the choices themselves wait."""
        asked, self._asked = self._asked, []
        counts: dict[int, int] = {}
        for one in asked:
            chosen = self._take(run, step.number, one, counts)
            self._told += [node for _, node in chosen]
            if one.is_fed:
                self._feeding.tell(chosen)
            else:
                self._tell_scores(run, step.number, chosen)
        # What is scored and not chosen from yet may be for the next step.
        waiting = [one for one in self._scored if one[0].shape[1] >= self._tree.width]
        self._scored = waiting[-_WAITING:]

    def _take(
        self, run: Run, step: int, asked: Asked, counts: dict[int, int]
    ) -> list[tuple[Ids, Node]]:
        """What a stopping test was the first to be shown: each choice, and the ids before it."""
        rows: list[Ids] = asked.ids if isinstance(asked.ids, list) else asked.ids.tolist()
        begun = self._tree.begun(rows)
        if None in begun and asked.is_fed:
            return []  # ids of another use
        if None in begun:
            self._note(run, "ids go on from no row that was seen, so choices are missing")
        ends: list[Node] = []
        chosen: list[tuple[Ids, Node]] = []
        for row, (ids, one) in enumerate(zip(rows, begun, strict=True)):
            node, parent, known = one or Begun(Node(row, is_lost=True), row, len(ids))
            # Behind a row's end a pad is no choice; whatever else stands there is one.
            if node.reason is not None and all(each in self._fillers for each in ids[known:]):
                ends.append(node)
                continue
            for place in range(known, len(ids)):
                columns = {"step": step, "row": row, "offset": counts.get(row, 0)}
                columns |= {"token_id": ids[place], "parent_row": parent}
                counts[row] = counts.get(row, 0) + 1
                node = self._add(run, node, row, columns)
                chosen.append((ids[:place], node))
            if asked.is_fed and node.columns.get("token_id") in run.stop_ids:
                node.reason = "eos"
            elif node.reason is None and _says_stop(asked, row):
                node.reason = finishes.reason(run, asked.fired, row, ids[-1], len(ids))
            ends.append(node)
        self._tree.go_on(rows, begun, ends)
        return chosen

    def _add(self, run: Run, node: Node, row: int, columns: Columns) -> Node:
        """A choice after another, with the text that becomes complete with it."""
        text, node.text = node.text or self._text(run, node), None
        columns["text"] = text.add(columns["token_id"]) if text else None
        node = node.add(row, columns)
        node.text = text
        return node

    def _text(self, run: Run, node: Node) -> TextAssembler | None:
        """What has read a row up to a choice; anew where another way has gone on from it."""
        if run.vocabulary is None:
            return None
        path, prompt = node.path(), node.root().row
        text = TextAssembler(run.vocabulary, [] if node.is_lost else self._prompt[prompt])
        for one in path:
            text.add(one.columns["token_id"])
        return text

    def _note(self, run: Run, words: str) -> None:
        """A fault of this loop, once a call."""
        if words not in self._noted:
            self._noted.add(words)
            run.recorder.fault("choices", f"{run.mode}: {words}")

    def _tell_scores(self, run: Run, step: int, chosen: list[tuple[Ids, Node]]) -> None:
        """The distribution of each choice, where processors were given the ids before it."""
        bare = self._tree.bare
        every = [
            ([*map(bare, ids.tolist())], scores)
            for ids, scores in reversed(self._scored)  # the newest first
            if scores.final is not None
        ]
        found: dict[int, tuple[Scores, list[int], list[Columns]]] = {}
        for history, node in chosen:
            source = own_scores.source(every, bare(history), node.columns["parent_row"])
            if source is None:
                self._note(run, "of some choices no scores were seen: no distribution is told")
                continue
            scores, place = source
            _, places, mine = found.setdefault(id(scores), (scores, [], []))
            places.append(place)
            mine.append(node.columns)
        for scores, places, mine in found.values():
            self._tell_picks(run, step, scores, places, mine)

    def _tell_picks(
        self, run: Run, step: int, scores: Scores, places: list[int], mine: list[Columns]
    ) -> None:
        picks = [Pick(n, one["row"], one["offset"]) for n, one in enumerate(mine)]
        own, is_given = own_scores.own_logits(scores, places)
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
            Why each row ended, with its ids in `run.chosen` and that of the prompt which it goes on
            from in `run.prompt_rows`; None where the choices do not tell what was returned.
        """
        if returned is not None and not self._is_asking:
            chosen = self._take(run, run.number, Asked(returned, is_fed=True), {})
            self._told += [node for _, node in chosen]
            self._feeding.tell(chosen)
        finish = self._end_rows(run) if returned is None else self._end_returned(run, returned)
        known = None if returned is None else False
        for node in self._told:
            if node.reason is not None and not node.below:
                node.columns.setdefault("finish", node.reason)
            choices.write(run, {"accepted": None if node.is_lost else known} | node.columns)
        mode = ", by scores of its own" if self._is_own_score else ""
        if self._tree.is_crossed:
            mode += ", rows change places"
        if returned is None or not self.is_told:
            mode += ", not followed to the end"
        run.span.columns["mode"] += mode
        return finish

    def _end_returned(self, run: Run, returned: list[Ids]) -> list[str]:
        """The ends of what was returned: each row's, as far as the choices tell."""
        ways = self._tree.mark(returned)
        ends = [
            own_ends.of(way, self._fillers, run.stop_ids, is_asked=self._is_asking) for way in ways
        ]
        for way, end in zip(ways, ends, strict=True):
            if way.path and end.finish != own_ends.UNKNOWN and end.is_told:
                way.end.columns["finish"] = end.finish
        run.prompt_rows = [way.root.row for way in ways]
        run.chosen = [end.chosen for end in ends]
        run.texts = [self._texts(run, way, end.chosen) for way, end in zip(ways, ends, strict=True)]
        self.is_told = all(end.is_told for end in ends)
        if not self._is_asking:
            self._note(
                run,
                "it asks the library for nothing: its choices are told as it feeds and "
                "returns them, not how they were made",
            )
        elif not self.is_told:
            self._note(run, "it returned ids that no stopping test was shown: these are no choices")
        elif any(end.finish == own_ends.UNKNOWN for end in ends):
            self._note(run, "no stopping test said of every returned row that it ends, or why")
        return [end.finish for end in ends]

    def _texts(self, run: Run, way: Way, chosen: Ids) -> list[str | None]:
        """Text of each id of a sequence, its choices first."""
        more = chosen[len(way.path) :]
        if not more:
            way.end.finish_text()
        texts = [node.columns["text"] for node in way.path]
        reader = self._text(run, way.end) if more else None
        return texts + [reader.add(one) if reader else None for one in more]

    def _end_rows(self, run: Run) -> list[str] | None:
        """The ends of the rows themselves, where it isn't known which of them were returned."""
        self.is_told = not (self._tree.is_crossed or self._tree.is_forked)
        if not self.is_told:
            self._note(
                run,
                "rows change places, and no ids that go on from a prompt were returned: "
                "which sequence ended where is not seen",
            )
            return None
        by_row: list[list[Node]] = [[] for _ in self._prompt]
        for node in self._told:
            node.columns["sequence"] = node.row
            by_row[node.row].append(node)
        run.prompt_rows = list(range(len(by_row)))
        run.chosen = [[node.columns["token_id"] for node in mine] for mine in by_row]
        unsaid = "unfinished" if self._is_asking else own_ends.UNKNOWN
        for last in (mine[-1] for mine in by_row if mine):
            last.columns["finish"] = last.reason or unsaid
            last.finish_text()
        run.texts = [[node.columns["text"] for node in mine] for mine in by_row]
        return [mine[-1].columns["finish"] if mine else unsaid for mine in by_row]


def _says_stop(asked: Asked, row: int) -> bool:
    answers = [] if asked.stopped is None else asked.stopped.reshape(-1).tolist()
    return row < len(answers) and bool(answers[row])
