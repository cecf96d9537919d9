"""An answer as the explorer shows it: its tokens with their probabilities, and what it came to.

Reads traces; runs nothing, knows no widget.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Final

from tracer.explain import text
from tracer.views.labels import bytes_label, count_label, duration_label, is_missing

if TYPE_CHECKING:
    from tracer.lab import Answer
    from tracer.trace import Trace

_LONGEST_NAME: Final = 32
_MOST_MARKS: Final = 4000


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """A token as a strip shows it.

    Attributes:
        probability: In the distribution that it was chosen from; None where nothing was recorded.
        kind: `text` of the prompt or answer, `special`, `image`, `video`, `pad`; `taken` where a
            user put it there.
        place: Index in the answer, or in the prompt.
        many: How many neighbours it stands for: placeholders of a picture are one mark.
    """

    text: str
    probability: float | None = None
    kind: str = "text"
    place: int = 0
    many: int = 1

    def told(self) -> list[Any]:
        """The mark for the page, short: an answer has hundreds."""
        shown = None if self.probability is None else round(self.probability, 4)
        return [self.text, shown, self.kind, self.many]


@dataclasses.dataclass(slots=True)
class Run:
    """An answer with what its trace says of it.

    Attributes:
        prompt: Marks of the prompt.
        marks: Marks of the answer; of a branch, those of its prefix too.
        facts: Key of a phrase to a value in human units.
    """

    answer: Answer
    prompt: list[Mark] = dataclasses.field(default_factory=list)
    marks: list[Mark] = dataclasses.field(default_factory=list)
    facts: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """One line for a list: its number, what was asked, how it begins."""
        answer = self.answer
        asked = next((one.text for one in reversed(answer.messages) if one.role == "user"), "")
        branch = "" if answer.parent is None else f" ← #{answer.parent.number}"
        said = _short(answer.answer_begins + answer.text)
        return f"#{answer.number}{branch} · {_short(asked)} → {said}"


def told(answer: Answer) -> Run:
    """Read a finished answer's trace; of a failed one what there is."""
    if answer.trace is None:
        return Run(answer)
    marks = answer_marks(answer)
    return Run(answer, prompt_marks(answer), marks, _facts(answer, answer.trace, marks))


def place_of(answer: Answer, index: int) -> tuple[Trace, int] | None:
    """The trace and the step in which a token of an answer was chosen, or might have been.

    Tokens before a branch were chosen in the answer that it came from. None for what was typed,
    beyond its first token: the model gave no distribution there.
    """
    own = index - prefix_length(answer)
    if own >= 0:
        return None if answer.trace is None else (answer.trace, own)
    at, parent = answer.branched_at, answer.parent
    if parent is None or at is None or index > at or index >= len(parent.ids):
        return None
    return place_of(parent, index)


def prefix_length(answer: Answer) -> int:
    """Tokens at an answer's beginning that this run was given and did not choose."""
    if answer.parent is None or answer.trace is None:
        return 0
    return len(answer.ids) - len(_choices(answer.trace))


def answer_marks(answer: Answer) -> list[Mark]:
    """The tokens of an answer; those of a branch's prefix as they were where it came from."""
    if answer.trace is None:
        return []
    kinds = _generated_kinds(answer.trace)
    chosen = [
        Mark(_visible(row), row["probability"], kinds.get(row["token_id"], "text"))
        for row in _choices(answer.trace)
    ]
    kept: list[Mark] = []
    if answer.parent is not None and answer.branched_at is not None:
        kept = answer_marks(answer.parent)[: answer.branched_at]
        given = prefix_length(answer) - len(kept)
        kept += _given_marks(answer, given)
    return [dataclasses.replace(one, place=place) for place, one in enumerate(kept + chosen)]


def prompt_marks(answer: Answer) -> list[Mark]:
    """The tokens of the prompt, placeholders of one picture folded into one mark."""
    marks: list[Mark] = []
    for row in _prompt_rows(answer)[: len(answer.prompt_ids)]:
        kind = str(row["kind"] or "text")
        last = marks[-1] if marks else None
        if kind in ("image", "video", "pad") and last is not None and last.kind == kind:
            marks[-1] = dataclasses.replace(last, many=last.many + 1)
            continue
        marks.append(Mark(_visible(row), None, kind, int(row["index"])))
    return _bounded(marks)


def _bounded(marks: list[Mark]) -> list[Mark]:
    """At most so many marks as a page can hold; those in the middle become one."""
    half = _MOST_MARKS // 2
    left_out = marks[half:-half]
    if len(marks) <= _MOST_MARKS:
        return marks
    many = sum(mark.many for mark in left_out)
    return [*marks[:half], Mark("…", None, "pad", left_out[0].place, many), *marks[-half:]]


def _given_marks(answer: Answer, count: int) -> list[Mark]:
    """What a user put in place of the parent's token: in the trace it is the prompt's end."""
    begin = len(answer.prompt_ids) + (answer.branched_at or 0)
    rows = _prompt_rows(answer)[begin : begin + count]
    return [
        Mark(_visible(row), _chance_in_parent(answer, row) if number == 0 else None, "taken")
        for number, row in enumerate(rows)
    ]


def _chance_in_parent(answer: Answer, row: dict[str, Any]) -> float | None:
    parent, at = answer.parent, answer.branched_at
    where = None if parent is None or at is None else place_of(parent, at)
    if where is None:
        return None
    trace, step = where
    found = trace.arrow(
        "candidates", ["probability"], [("step", "==", step), ("token_id", "==", row["token_id"])]
    )["probability"].to_pylist()
    return float(found[0]) if found else None


def _choices(trace: Trace) -> list[dict[str, Any]]:
    columns = ["step", "token_id", "text", "probability", "raw_logprob", "logprob", "raw_rank"]
    rows: list[dict[str, Any]] = trace.arrow("choices", columns).sort_by("step").to_pylist()
    return rows


def _prompt_rows(answer: Answer) -> list[dict[str, Any]]:
    if answer.trace is None:
        return []
    columns = ["index", "token_id", "text", "vocab", "kind", "origin", "call"]
    rows = answer.trace.arrow("tokens", columns).sort_by("index").to_pylist()
    calls = {row["call"] for row in rows if row["origin"] == "generated"}
    return [
        row for row in rows if row["origin"] != "generated" and (not calls or row["call"] in calls)
    ]


def _generated_kinds(trace: Trace) -> dict[int, str]:
    """Kinds of the ids that were generated, such as `special`."""
    rows = trace.arrow("tokens", ["token_id", "kind"], [("origin", "==", "generated")])
    return {row["token_id"]: str(row["kind"] or "text") for row in rows.to_pylist()}


def _visible(row: dict[str, Any]) -> str:
    """A token's text; where its bytes are only part of a character, its name in the vocabulary."""
    return str(row.get("text") or row.get("vocab") or "")


def _facts(answer: Answer, trace: Trace, marks: list[Mark]) -> dict[str, str]:
    chosen = _choices(trace)
    steps = trace.arrow("steps", ["start_ns", "duration_ns", "cache_bytes", "step"]).sort_by("step")
    rows = steps.to_pylist()
    facts = {
        "tokens": count_label(len(marks)),
        "time": duration_label(answer.seconds * 1e9),
    }
    if rows and rows[-1]["duration_ns"] is not None:
        calls = trace.arrow("calls", ["start_ns"], [("kind", "==", "generate")])
        begin = calls["start_ns"].to_pylist()[-1]
        first = rows[0]["start_ns"] + rows[0]["duration_ns"] - begin
        facts["first_token"] = duration_label(first)
        decoding = rows[-1]["start_ns"] + rows[-1]["duration_ns"] - begin - first
        if len(rows) > 1 and decoding:
            speed = 1e9 * (len(rows) - 1) / decoding
            facts["speed"] = text("explorer.a_second", number=f"{speed:.1f}")
        facts["cache"] = bytes_label(rows[-1]["cache_bytes"])
    logs = [row["logprob"] for row in chosen if not is_missing(row["logprob"])]
    if logs and all(map(math.isfinite, logs)):
        mean = sum(logs) / len(logs)
        facts["mean_logprob"] = f"{mean:.3f}"
        facts["perplexity"] = f"{math.exp(-mean):.3f}"
    return facts


def _short(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _LONGEST_NAME else words[: _LONGEST_NAME - 1] + "…"
