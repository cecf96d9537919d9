"""`Lab`: a model that is asked, each answer recorded, and continued from any of its tokens.

The explorer and the command line share it. The answers are the library's own `generate()`; the lab
keeps the KV caches of the last ones (the recorder keeps no tensor), so that another token can be
taken anywhere and the answer goes on from there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tracer.branching import Branching
from tracer.conversation import Message, Settings, encode, render, tokenizer_of
from tracer.errors import SessionStateError
from tracer.explain import text
from tracer.keeping import let_go
from tracer.opening import Opened, open_model
from tracer.session import record
from tracer.trace import Trace

Told = Callable[[dict[str, Any]], None]
CANDIDATES: Final = 20


@dataclasses.dataclass(slots=True)
class Answer:
    """One run of `generate()`, with all that was recorded of it.

    Attributes:
        number: Counts the answers of one `Lab` from 1.
        prompt: The rendered conversation.
        prompt_ids: Its ids, as the model was given them, pictures expanded.
        ids: Ids of the answer, without the prompt; of a branch, those of its prefix too.
        text: The answer decoded, special tokens left out.
        ended: `done`, `stopped` by the user, or `failed`.
        note: What to know about how it came about; empty where there is nothing.
        parent: The answer that this one branched from, and at which token: None for a fresh one.
    """

    number: int
    messages: tuple[Message, ...]
    settings: Settings
    answer_begins: str = ""
    prompt: str = ""
    prompt_ids: list[int] = dataclasses.field(default_factory=list)
    ids: list[int] = dataclasses.field(default_factory=list)
    text: str = ""
    ended: str = "done"
    error: str = ""
    note: str = ""
    seconds: float = 0.0
    trace: Trace | None = None
    parent: Answer | None = None
    branched_at: int | None = None
    cache: Any = None
    positions: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)


class Lab:
    """A model in memory, asked again and again.

    Attributes:
        model: The model.
        front: Its processor, or its tokenizer where it takes text only.
        answers: Every answer so far, failed ones too.
        layers: Numbers of the layers whose calls the answers' traces hold; None for all.
    """

    def __init__(self, opened: Opened, layers: tuple[int, ...] | None = None) -> None:
        self.opened = opened
        self.layers = layers
        self.model = opened.model
        self.front = opened.front
        self.answers: list[Answer] = []
        self._branching = Branching(opened.model, opened.front)

    @classmethod
    def open(
        cls,
        model: Any = None,
        front: Any = None,
        *,
        device: str | None = None,
        layers: tuple[int, ...] | None = None,
    ) -> Lab:
        """Open the embedded model, a folder, a hub id, or a model in memory; load it once.

        Raises:
            TracerError: As `open_model` says.
        """
        return cls(open_model(model, front, device=device), layers)

    @property
    def name(self) -> str:
        """What the model was asked for by, or that it is the embedded one."""
        return self.opened.name or text("opening.embedded")

    @property
    def context_limit(self) -> int | None:
        """How many positions the model was made for; None where its configuration says nothing."""
        config = self.model.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        return int(limit) if limit else None

    def default(self, setting: str) -> Any:
        """The model's own value of a generation setting; None leaves it to the library."""
        return getattr(self.model.generation_config, setting, None)

    def count(self, messages: Sequence[Message], answer_begins: str = "") -> int:
        """Tokens of a conversation, template and pictures included. Runs no model."""
        text = render(self.front, messages, answer_begins)
        return int(encode(self.front, text, messages)["input_ids"].shape[1])

    def ask(
        self,
        question: str | Sequence[Message],
        settings: Settings = Settings(),  # noqa: B008 - frozen
        *,
        answer_begins: str = "",
        on_choice: Told | None = None,
        on_step: Told | None = None,
        stop: threading.Event | None = None,
        path: str | Path | None = None,
    ) -> Answer:
        """Put a question to the model and record everything until its last token.

        Args:
            question: A conversation, or a single question.
            settings: How to generate.
            answer_begins: Text that the answer has to begin with.
            on_choice: Called in the generating thread with the row of each chosen token, one token
                late: only then is it known whether the choice stood.
            on_step: Called there with the row of each step when it has ended.
            stop: When set, the answer ends with the token that is being made.
            path: Where the trace is written; kept in memory without.

        Raises:
            SessionStateError: The model is answering already.
            TracerError: The conversation can't be rendered.
        """
        messages = (Message("user", question),) if isinstance(question, str) else tuple(question)
        answer = Answer(len(self.answers) + 1, messages, settings, answer_begins)
        followers = {"choices": on_choice, "steps": on_step}
        with self._alone(), self._recorded(answer, followers, path):
            answer.prompt = render(self.front, messages, answer_begins)
            inputs = encode(self.front, answer.prompt, messages).to(self.model.device)
            answer.prompt_ids = inputs["input_ids"][0].tolist()
            self._generate(answer, dict(inputs), settings, stop)
        return answer

    def branch(
        self,
        answer: Answer,
        at: int,
        token: int | str,
        *,
        on_choice: Told | None = None,
        on_step: Told | None = None,
        stop: threading.Event | None = None,
        path: str | Path | None = None,
    ) -> Answer:
        """Take another token at one place of an answer and let the model go on from there.

        It goes on out of the answer's cache; where that can't be cropped, or the model's arithmetic
        with and without a cache differs, the ids are encoded again and the note says so. Either way
        the tokens are those of a fresh run over the same ids.

        Args:
            answer: The answer to branch from.
            at: Index of the token to replace; the answer's length continues behind its end.
            token: Its id, or text (which may be several tokens).
            on_choice: As for `ask`.
            on_step: As for `ask`.
            stop: As for `ask`.
            path: As for `ask`.

        Raises:
            SessionStateError: The model is answering already.
            TracerError: There is no such place, or the token ends the answer.
        """
        prefix = self._branching.prefix(answer, at, token)
        settings = self._shortened(answer.settings, len(prefix))
        branch = dataclasses.replace(
            answer,
            number=len(self.answers) + 1,
            ids=[],
            text="",
            note="",
            trace=None,
            parent=answer,
            branched_at=at,
            cache=None,
            positions=[],
            ended="done",
            error="",
        )
        with self._alone():
            cache, why_not = self._branching.cropped(answer, len(answer.prompt_ids) + at)
            branch.note = text("asking.encoded_again", why=why_not) if why_not else ""
            with self._recorded(branch, {"choices": on_choice, "steps": on_step}, path):
                inputs = self._branching.inputs(answer, prefix, cache)
                self._generate(branch, inputs, settings, stop)
        return branch

    # How an answer comes about

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One answer at a time."""
        if not self.opened.answering.acquire(blocking=False):
            raise SessionStateError(text("asking.answering", name=self.name))
        try:
            yield
        finally:
            self.opened.answering.release()

    @contextlib.contextmanager
    def _recorded(
        self, answer: Answer, followers: dict[str, Told | None], path: Any
    ) -> Iterator[None]:
        """Record an answer; whatever happens, what was made is kept."""
        began = time.perf_counter()
        options: dict[str, Any] = {"logits": True, "top_k": CANDIDATES, "layers": self.layers}
        recording = record(path, if_exists="number", **options)
        for table, told in followers.items():
            if told is not None:
                recording.follow(table, told)
        try:
            with recording:
                yield
        except BaseException as error:
            answer.ended, answer.error = "failed", f"{type(error).__name__}: {error}"
            raise
        finally:
            answer.seconds = time.perf_counter() - began
            answer.trace = recording.trace
            self.answers.append(answer)
            let_go(self.answers)

    def _generate(
        self,
        answer: Answer,
        inputs: dict[str, Any],
        settings: Settings,
        stop: threading.Event | None,
    ) -> None:
        arguments: dict[str, Any] = settings.arguments()
        if stop is not None:
            arguments["stopping_criteria"] = [_stopping(stop)]
        # Stop strings need it; and ids that no tokenizer made have texts in the trace through it.
        arguments["tokenizer"] = tokenizer_of(self.front)
        with _seeded(settings.seed):
            output = self.model.generate(**inputs, **arguments, return_dict_in_generate=True)
        ids = output.sequences[0].tolist()
        answer.ids = ids[len(answer.prompt_ids) :]
        answer.text = self.front.decode(answer.ids, skip_special_tokens=True)
        answer.ended = "stopped" if stop is not None and stop.is_set() else "done"
        self._branching.keep(answer, output)

    def _shortened(self, settings: Settings, used: int) -> Settings:
        """The limit of new tokens holds for the whole answer, its prefix included."""
        limit = settings.max_new_tokens or self.default("max_new_tokens")
        if limit is None:
            return settings
        return dataclasses.replace(settings, max_new_tokens=max(1, limit - used))


@contextlib.contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Generate from a seed, and leave the user's generators as they were."""
    import torch

    if seed is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _stopping(stop: threading.Event) -> Any:
    """A criterion of the library's that ends an answer when the event is set."""
    import torch
    from transformers import StoppingCriteria

    class StopButton(StoppingCriteria):
        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            return torch.full((input_ids.shape[0],), stop.is_set(), device=input_ids.device)

    return StopButton()
