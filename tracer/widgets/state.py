"""The explorer's state as plain data, and the conversation and settings that it stands for.

Knows no widget and no model. Callbacks (`explorer`) change it, `view` says what is shown of it.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from typing import TYPE_CHECKING, Any, Final, Literal

from tracer.conversation import Message, Settings
from tracer.errors import TracerError
from tracer.explain import text
from tracer.widgets.pictures import Picture

if TYPE_CHECKING:
    from tracer.widgets.runs import Run

Phase = Literal["opening", "closed", "ready", "running", "stopping"]

NUMBERS: Final[dict[str, tuple[type, float, float]]] = {
    "temperature": (float, 1e-6, 1e6),
    "top_k": (int, 0, 1e9),
    "top_p": (float, 1e-9, 1),
    "min_p": (float, 0, 1),
    "repetition_penalty": (float, 1e-6, 1e6),
    "max_new_tokens": (int, 1, 1e9),
    "seed": (int, 0, 2**63 - 1),
}
"""Settings that are typed: kind, smallest, largest."""
_KEPT_PAGES: Final = 8  # answers whose drawn pages, with their pictures, are kept
CHOICES: Final = {"do_sample": ("", "no", "yes"), "use_cache": ("", "yes", "no")}
"""Settings that are chosen; empty is the model's own."""


FIRST_FIELDS: Final = {"max_new_tokens": "200"}
"""Filled in at first: few models say how long an answer may be, and the library's 20 is short."""


@dataclasses.dataclass(slots=True)
class Progress:
    """How far a running answer is; counted while it runs, in seconds since it began."""

    tokens: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    steps: int = 0
    most: int | None = None
    seconds: float = 0.0
    first_token: float | None = None
    cache_bytes: int | None = None


@dataclasses.dataclass(slots=True)
class State:
    """All that the explorer knows.

    Attributes:
        phase: `opening` the model, `closed` where that failed, `ready`, `running`, `stopping`.
        doing: What opening the model is at.
        error: What went wrong last, for people; empty when all is well.
        turns: The conversation before the question.
        fields: Settings as typed; empty takes the model's own.
        defaults: The model's own settings, for placeholders.
        prompt_tokens: Tokens of the conversation as it stands; None while unknown.
        runs: Every answer so far.
        shown: Index of the answer that is looked at.
        picked: The strip (`prompt` or `answer`) and the index of a mark in it.
        pair: Indices of the two answers that are compared.
        pages: What a tab shows of an answer, by the answer's index and the tab.
        log: Errors with their tracebacks, and remarks.
    """

    phase: Phase = "opening"
    doing: str = ""
    done_share: float = 0.0
    model: str = ""
    device: str = ""
    error: str = ""
    system: str = ""
    turns: list[Message] = dataclasses.field(default_factory=list)
    question: str = ""
    answer_begins: str = ""
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    takes_pictures: bool = True
    fields: dict[str, str] = dataclasses.field(default_factory=lambda: dict(FIRST_FIELDS))
    stop_strings: str = ""
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    prompt_tokens: int | None = None
    is_counting: bool = False
    context_limit: int | None = None
    progress: Progress = dataclasses.field(default_factory=Progress)
    runs: list[Run] = dataclasses.field(default_factory=list)
    shown: int | None = None
    picked: tuple[str, int] | None = None
    what_if: dict[str, float] = dataclasses.field(default_factory=dict)
    pair: tuple[int, int] | None = None
    pages: dict[tuple[int, str], str] = dataclasses.field(default_factory=dict)
    log: list[str] = dataclasses.field(default_factory=list)
    exported: str = ""

    @property
    def run(self) -> Run | None:
        """The answer that is looked at."""
        return None if self.shown is None else self.runs[self.shown]

    def forget_pages(self) -> None:
        """Let go of drawn pages of older answers; they are drawn again when they are looked at."""
        oldest = len(self.runs) - _KEPT_PAGES
        for key in [key for key in list(self.pages) if key[0] < oldest]:
            del self.pages[key]

    @property
    def is_busy(self) -> bool:
        """Whether a question is being answered."""
        return self.phase in ("running", "stopping")


def messages(state: State) -> tuple[Message, ...]:
    """The conversation as it would be asked.

    Raises:
        TracerError: There is nothing to ask.
    """
    if not state.question.strip() and not state.pictures:
        raise TracerError(text("explorer.no_question"))
    images = tuple(one.frames[0] for one in state.pictures if not one.is_video)
    videos = tuple(list(one.frames) for one in state.pictures if one.is_video)
    system = [Message("system", state.system)] if state.system.strip() else []
    return (*system, *state.turns, Message("user", state.question, images, videos))


def settings(state: State) -> Settings:
    """The settings as typed.

    Raises:
        TracerError: A field holds no number, or one that it can't be.
    """
    given: dict[str, Any] = {}
    for name in NUMBERS:
        typed = state.fields.get(name, "")
        if typed.strip():
            given[name] = number(name, typed)
    for name in CHOICES:
        if state.fields.get(name):
            given[name] = state.fields[name] == "yes"
    stops = tuple(line for line in state.stop_strings.splitlines() if line)
    return Settings(**given, stop_strings=stops)


def number(name: str, typed: str) -> float:
    """A setting's number; digits and points of full width are as good as others.

    Raises:
        TracerError: It is none, or outside of what the setting can be.
    """
    kind, least, most = NUMBERS[name]
    plain = unicodedata.normalize("NFKC", typed).strip().replace("。", ".")
    try:
        value = kind(plain)
    except ValueError:
        what = "explorer.no_whole_number" if kind is int else "explorer.no_number"
        raise TracerError(text(what, setting=name, typed=typed[:40])) from None
    if not least <= value <= most:
        if name == "temperature":
            raise TracerError(text("explorer.temperature_zero", typed=typed[:40]))
        raise TracerError(
            text("explorer.outside", setting=name, typed=typed[:40], least=f"{least:g}",
                 most=f"{most:g}")
        )  # fmt: skip
    return float(value) if kind is float else int(value)


def new_tokens(state: State) -> int | None:
    """How many tokens the answer may have: as typed, else the model's own, else unknown."""
    typed = state.fields.get("max_new_tokens", "")
    try:
        return int(number("max_new_tokens", typed)) if typed.strip() else _own_limit(state)
    except TracerError:
        return None


def _own_limit(state: State) -> int | None:
    own = state.defaults.get("max_new_tokens")
    if own is not None:
        return int(own)
    total = state.defaults.get("max_length")
    if total is None or state.prompt_tokens is None:
        return None
    return max(int(total) - state.prompt_tokens, 0)
