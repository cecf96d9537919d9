"""Why a row ended: which stopping criterion said so.

Two of the library's own criteria, a stop id and a length, are told by what they compare. Where
others take part, every criterion's answer is copied in the library's own loop over them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracer.instrument.run import Run

_WORDS: Final = {
    "EosTokenCriteria": "eos",
    "StopStringCriteria": "stop string",
    "MaxLengthCriteria": "length",
    "MaxTimeCriteria": "time",
}
_PLAIN: Final = frozenset({"eos", "length"})
_LIMITS: Final = ("length", "time")  # where something else ends a row too, that is the reason


class Watch:
    """Stands in for a criterion in the library's own loop and keeps a copy of its answer."""

    def __init__(self, criterion: Any, fired: list[tuple[str, Any]]) -> None:
        self._criterion = criterion
        self._fired = fired

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Ask the criterion; copy what it says."""
        answer = self._criterion(*args, **kwargs)
        copied = answer.detach().clone() if hasattr(answer, "clone") else answer
        self._fired.append((word(self._criterion), copied))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._criterion, name)


def word(criterion: Any) -> str:
    """What a row that a criterion ended is said to have ended by."""
    kind = type(criterion)
    for base in kind.__mro__:
        if base.__name__ in _WORDS:
            return _WORDS[base.__name__]
    return f"other ({kind.__name__})"


def are_plain(criteria: Any) -> bool:
    """Whether each of them can be told by what it compares."""
    return all(word(one) in _PLAIN for one in criteria)


def reason(run: Run, fired: list[tuple[str, Any]], place: int, token_id: int, length: int) -> str:
    """Why a row ended, once its stopping test said that it has.

    Args:
        run: The generate() that it is of.
        fired: Answers of the watched criteria; empty where none was watched.
        place: Its place in them.
        token_id: The last token.
        length: Tokens of the row, prompt included.
    """
    words = [word for word, answer in fired if _says(answer, place)]
    if not fired:
        if token_id in run.stop_ids:
            words.append("eos")
        if run.max_length is not None and length >= run.max_length:
            words.append("length")
    # A criterion handed over by the user, then the library's, then a limit: it alone is no end.
    words.sort(key=lambda one: (one in _LIMITS, one != "eos", one != "stop string"))
    return words[0] if words else "other"


def _says(answer: Any, place: int) -> bool:
    if not hasattr(answer, "tolist"):
        return bool(answer)
    answers = answer.reshape(-1).tolist()
    return bool(answers[place if place < len(answers) else -1])
