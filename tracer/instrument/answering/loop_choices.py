"""What a user's own loop chose: the ids that it feeds next, and the model's opinion of them.

The user picks a token in a way that only the user knows. Once it is fed, one id a row behind the
same cache, it is known, and what the forward before made at its last place is the model's own
opinion of it. There is no distribution that it was chosen from, and what is never fed is not seen.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from typing import Any

from tracer.instrument.answering import cache_rows, cached_ids
from tracer.instrument.answering.spreads import Spread
from tracer.instrument.asking import encodings, tokens
from tracer.instrument.asking.vocabulary import TextAssembler, Vocabulary
from tracer.recorder import Recorder
from tracer.spans import ThreadState


@dataclasses.dataclass(slots=True)
class Made:
    """The end of a forward, until it is known what was chosen from it.

    Attributes:
        call: The forward's call.
        step: Its number in the loop.
        held: Tokens in the cache behind it.
        logits: An own copy of those at the last place: (rows, vocabulary).
    """

    call: int
    step: int
    held: int
    logits: Any


@dataclasses.dataclass(slots=True)
class Choosing:
    """One loop's last forward, and what has read its rows so far."""

    made: Made | None = None
    vocabulary: Vocabulary | None = None
    texts: list[TextAssembler] | None = None
    is_given_up: bool = False

    def give_up(self) -> None:
        """Too many loops wait for their next forward: keep nothing more of this one's last."""
        self.is_given_up |= self.made is not None
        self.made = None

    def keep(
        self, call: int, step: int, held: int | None, given: Mapping[str, Any], result: Any
    ) -> None:
        """Copy the end of a forward; one with labels is no step of an answer."""
        from tracer.instrument import graphs  # which needs torch; logits bring it along

        logits: Any = getattr(result, "logits", None)
        is_whole = getattr(logits, "ndim", 0) == 3 and graphs.is_readable(logits)
        if held is not None and is_whole and given.get("labels") is None and _ends_rows(given):
            self.made = Made(call, step, held, logits[:, -1].detach().clone())

    def fed(
        self, state: ThreadState, model: str, cache: tuple[str, Any], held: int | None, ids: Any
    ) -> None:
        """The loop feeds ids behind a cache: tell them as chosen, or once why they can't be.

        Args:
            state: Of the thread.
            model: Short id of the model.
            cache: Short id of the cache that is passed, and the cache.
            held: Tokens in it now.
            ids: What is fed, of shape (rows, tokens).
        """
        made, self.made = self.made, None
        recorder = state.recorder
        if made is None:
            if self.is_given_up:
                _note(recorder, model, "many other loops went on before it did")
            self.is_given_up = False
            return
        with state.own_work("choices of a loop"), recorder.guard("choices"):
            why, places = _unknown(ids), None
            if not why:
                places = cache_rows.places(recorder, *cache, len(made.logits))
                is_behind = held == made.held and places is not None and len(places) == len(ids)
                why = "" if is_behind else "its cache was changed meanwhile"
            if why or places is None:
                self.texts = None
                _note(recorder, model, why)
                return
            chosen = [row[0] for row in ids.tolist()]
            if self.texts is None:
                self._begin_texts(recorder, cached_ids.held(recorder, model, cache[0], made.held))
            read = self._read(places, chosen)
            with sys.modules["torch"].no_grad():
                _tell(recorder, made, places, chosen, read, self.vocabulary)

    def _begin_texts(self, recorder: Recorder, rows: list[list[int]] | None) -> None:
        """Read what the cache was built from, where the tokenizer that made it was seen."""
        encoding = encodings.find(recorder, rows or [])
        self.vocabulary = tokens.vocabulary_of(recorder, encoding.tokenizer if encoding else None)
        if self.vocabulary is None or rows is None:
            self.texts = []
        else:
            self.texts = [TextAssembler(self.vocabulary, after=row) for row in rows]

    def _read(self, places: list[int], chosen: list[int]) -> list[str | None]:
        """The text that becomes complete with each id."""
        if not self.texts:
            return [None] * len(chosen)
        if places != list(range(len(self.texts))):
            self.texts = [self.texts[place].fork() for place in places]
        return [text.add(one) for text, one in zip(self.texts, chosen, strict=True)]


def _ends_rows(given: Mapping[str, Any]) -> bool:
    """Whether each row's last token stands at the last place; padded behind it, nobody knows."""
    mask: Any = given.get("attention_mask")
    kept = given.get("logits_to_keep", given.get("num_logits_to_keep"))
    if hasattr(kept, "shape"):  # places of its own
        return False
    if getattr(mask, "ndim", 0) != 2 or mask.device.type != "cpu":
        return True
    return bool(mask[:, -1].all())


def _unknown(ids: Any) -> str:
    """Why nobody knows which of the ids were chosen; empty where each row has its one."""
    if ids is None or ids.ndim != 2 or ids.is_floating_point():
        return "it is fed no ids"
    if ids.shape[1] != 1:
        return "several ids are fed at once, of which some may have been given"
    if ids.device.type != "cpu":
        return f"its ids lie on {ids.device.type}, and to read them would be to wait for it"
    return ""


def _note(recorder: Recorder, model: str, why: str) -> None:
    """A fault, once a recording."""
    said: set[tuple[str, str]] = recorder.notes.setdefault("loop_choices_untold", set())
    if (model, why) not in said:
        said.add((model, why))
        recorder.fault("choices", f"of what a loop over {model} chose there is no row: {why}")


def _tell(
    recorder: Recorder,
    made: Made,
    places: list[int],
    chosen: list[int],
    read: list[str | None],
    vocabulary: Vocabulary | None,
) -> None:
    """Write the choices of a forward, and what the model itself held likeliest."""
    is_moved = places != list(range(len(made.logits)))
    spread = Spread.over_all(made.logits[places] if is_moved else made.logits)
    best_scores, best_ids = spread.best(recorder.options.top_k)
    own = spread.at([[one] for one in chosen])
    ranks = spread.rank(own)
    for row, (place, token_id) in enumerate(zip(places, chosen, strict=True)):
        total, key = spread.log_total[row], {"step": made.step, "row": row, "offset": 0}
        recorder.add_fact(
            "choices",
            made.call,
            made.call,
            **key,
            token_id=token_id,
            text=read[row],
            raw_logprob=own[row][0] - total,
            raw_rank=ranks[row][0],
            raw_entropy=spread.entropy[row],
            parent_row=place,
        )
        best = best_ids[row]
        recorder.add_facts(
            "candidates",
            made.call,
            len(best),
            **key,
            token_rank=list(range(len(best))),
            token_id=best,
            text=[vocabulary.text(one) for one in best] if vocabulary else None,
            raw_logit=best_scores[row],
            raw_probability=[math.exp(score - total) for score in best_scores[row]],
        )
