"""What takes time: opening a model, answering, counting. Each in a thread, each failure shown.

Works on the state and has the screen show it; which question is asked the callbacks decide.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tracer.errors import TracerError
from tracer.explain import text
from tracer.widgets.job import Job, Latest
from tracer.widgets.screen import Screen
from tracer.widgets.state import NUMBERS, Progress, State, messages, new_tokens

if TYPE_CHECKING:
    from tracer.lab import Answer, Lab
    from tracer.widgets.panel import Panel

_LOG_LINES: Final = 200


class Asking:
    """The work behind a panel.

    Args:
        state: What it works on.
        panel: Where it is shown.
        delay: Seconds of quiet before the conversation's tokens are counted.

    Attributes:
        lab: The model, once it is open.
        screen: What puts the state on the panel.
    """

    def __init__(self, state: State, panel: Panel, delay: float) -> None:
        self.state = state
        self.panel = panel
        self.lab: Lab | None = None
        self.screen = Screen(state, panel, self.failed, self._decode)
        self._lock = threading.RLock()
        self._opening = Job("explorer opens", self._open_failed)
        self._answering = Job("explorer answers", self._answer_failed)
        self._counting = Latest("explorer counts", self.failed, delay)

    def settle(self, seconds: float | None = None) -> bool:
        """Wait, for so long each, until model, answer, count and tabs are done; whether they are.

        For cells and scripts: a page needs no waiting.
        """
        jobs = (self._opening, self._answering, self._counting, self.screen.drawing)
        return all([job.join(seconds) for job in jobs])

    # How a model is opened

    def open(self, model: Any, front: Any, device: str | None) -> None:
        """Open a model; what was asked for is as `Lab.open` has it."""
        self._opening.start(lambda _: self._open(model, front, device))

    def _open(self, model: Any, front: Any, device: str | None) -> None:
        self._doing("explorer.opening_torch", 0.1)
        import torch

        self._doing("explorer.opening_transformers", 0.4)
        import transformers  # noqa: F401 - imported here so that the wait is named

        from tracer.conversation import takes_pictures
        from tracer.lab import Lab

        self._doing("explorer.opening_model", 0.7)
        with _without_bars():  # they would land in whichever cell runs
            # The panel shows no single layer, and to time each would slow every token down.
            lab = Lab.open(model, front, device=device, layers=())
        state = self.state
        with self._lock:
            for answer in [] if self.lab is None else self.lab.answers:
                answer.cache = None  # it lies on the device that was left
            self.lab = lab
            state.model, state.context_limit = lab.name, lab.context_limit
            state.device = f"{lab.model.device} · {str(lab.model.dtype).removeprefix('torch.')}"
            state.takes_pictures = takes_pictures(lab.front)
            state.defaults = _defaults(lab)
            state.phase, state.error = "ready", ""
        self.panel.place(state.defaults)
        cards = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        self.panel.set_devices(["cpu", *cards])
        self.changed()

    def _doing(self, phrase: str, share: float) -> None:
        with self._lock:
            self.state.phase = "opening"
            self.state.doing, self.state.done_share = text(phrase), share
        self.screen.show()

    def _open_failed(self, error: BaseException) -> None:
        self.state.phase = "ready" if self.lab is not None else "closed"
        self.failed(error)

    # How a question is answered

    def stop(self) -> None:
        """End the answer with the token that is being made."""
        self._answering.stop()

    def ask(self, ask: Callable[..., Answer]) -> None:
        """Have an answer made by a function that is given the lab and whom to tell."""
        state = self.state
        self._answering.join()  # the one before is done, and may be putting its last things away
        state.phase, state.error = "running", ""
        state.progress = Progress(most=new_tokens(state))
        state.picked, state.what_if = None, {}
        self.screen.begin_stream()
        self.screen.show()
        self._answering.start(lambda stop: self._ask(ask, stop))

    def _ask(self, ask: Callable[..., Answer], stop: threading.Event) -> None:
        lab = self.lab
        if lab is None:
            return
        self._counting.join()  # its encoding would be recorded as ours
        began = time.perf_counter()
        progress = self.state.progress

        def chosen(row: dict[str, Any]) -> None:
            progress.tokens.append(row)
            self.screen.paint()

        def stepped(row: dict[str, Any]) -> None:
            progress.seconds = time.perf_counter() - began
            progress.steps += 1
            progress.cache_bytes = row.get("cache_bytes")
            if progress.first_token is None:
                progress.first_token = progress.seconds
            self.screen.paint()

        self._finish(ask(lab, on_choice=chosen, on_step=stepped, stop=stop))

    def _finish(self, answer: Answer) -> None:
        from tracer.widgets.runs import told

        state = self.state
        run = told(answer)
        with self._lock:
            state.runs.append(run)
            state.shown = len(state.runs) - 1
            state.forget_pages()
            if answer.parent is not None:
                parent = next(
                    (n for n, one in enumerate(state.runs) if one.answer is answer.parent), None
                )
                state.pair = None if parent is None else (parent, state.shown)
            elif len(state.runs) > 1:
                state.pair = (state.shown - 1, state.shown)
            state.phase = "ready"
        self.screen.show_run()
        self.screen.keep()
        if state.prompt_tokens is None:  # the conversation was edited meanwhile
            self._recount()

    def _answer_failed(self, error: BaseException) -> None:
        """Keep what the failed answer made, and say why it failed."""
        state, lab = self.state, self.lab
        state.phase = "ready"
        known = {id(run.answer) for run in state.runs}
        last = lab.answers[-1] if lab is not None and lab.answers else None
        if last is not None and last.ended == "failed" and id(last) not in known:
            self._note(error)
            state.error = _sentence(error)
            self._finish(last)
        else:
            self.failed(error)

    # What follows a change

    def changed(self) -> None:
        """The conversation changed: what went wrong before is over, and its tokens are counted."""
        state = self.state
        if state.phase != "closed":
            state.error = ""
        self._recount()
        self.screen.show()

    def _recount(self) -> None:
        """Count when nothing is answered: the encoding would be recorded with the answer."""
        state = self.state
        if self.lab is None:
            return
        state.is_counting, state.prompt_tokens = True, None
        if not state.is_busy:
            self._counting.ask(self._count)

    def _count(self) -> None:
        lab, state = self.lab, self.state
        if lab is None:
            return
        if lab.opened.answering.locked():  # by another explorer: its next chance is the next edit
            state.is_counting = False
            return
        try:
            found = lab.count(messages(state), state.answer_begins)
        except TracerError:  # nothing to ask yet
            found = None
        except Exception as error:
            found = None
            state.error = _sentence(error)
            self._note(error)
        state.prompt_tokens, state.is_counting = found, False
        self.screen.show()

    def _decode(self, token: int) -> str:
        return "" if self.lab is None else str(self.lab.front.decode([token]))

    def failed(self, error: BaseException) -> None:
        """Show what went wrong, and keep it in the log."""
        self._note(error)
        self.state.error = _sentence(error)
        self.screen.show()

    def _note(self, error: BaseException) -> None:
        lines = "".join(traceback.format_exception(error))
        self.state.log = [*self.state.log, lines][-_LOG_LINES:]


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    import transformers.utils

    logging: Any = transformers.utils.logging
    is_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_shown:
            logging.enable_progress_bar()


def _sentence(error: BaseException) -> str:
    """An error for people: the lab's own are sentences, others have their kind before them."""
    return str(error) if isinstance(error, TracerError) else f"{type(error).__name__}: {error}"


def _defaults(lab: Lab) -> dict[str, Any]:
    names = ("do_sample", "use_cache", "max_length", *NUMBERS)
    return {name: lab.default(name) for name in names}
