"""`explore()`: put a question to a model, watch the answer come, and look into each token of it.

Callbacks have names and take plain values; each changes the state and shows its view. What takes
time (opening, answering, counting, drawing) runs in a thread; what fails is shown in the panel and
loses nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.environment import require
from tracer.errors import TracerError
from tracer.explain import text
from tracer.widgets.asking import Asking
from tracer.widgets.callbacks import callback
from tracer.widgets.composing import Composing
from tracer.widgets.export import FOLDER
from tracer.widgets.looking import Looking
from tracer.widgets.state import State, messages, settings

if TYPE_CHECKING:
    from tracer.lab import Lab


def explore(model: Any = None, front: Any = None, *, device: str | None = None) -> Explorer:
    """The prompt explorer, for a notebook's cell; the panel is there before the model is.

    Args:
        model: None for the embedded model; a folder, GGUF file, hub id or name of a demo model; or
            a model in memory. A model is loaded once: a second explorer shares it.
        front: The processor or tokenizer of a model in memory.
        device: Where a model is loaded to; by default to a GPU where there is one.

    Raises:
        MissingPackageError: ipywidgets or anywidget is not installed.
    """
    require("ipywidgets", "anywidget", extra="lab", purpose="explorer")
    return Explorer(model, front, device=device)


class Explorer(Composing, Looking):
    """A panel with its state. Its callbacks can be called from code as well as by the page.

    Here are those of a run; `Composing` has those of what is asked, `Looking` those of what is
    looked at.
    """

    def __init__(
        self,
        model: Any = None,
        front: Any = None,
        *,
        device: str | None = None,
        delay: float = 0.3,
        folder: Path = FOLDER,
    ) -> None:
        from tracer.widgets.panel import Panel

        self.state = State(doing=text("explorer.opening_torch"))
        self._asked_for = (model, front, device)
        self._folder = folder
        self._uploads: dict[str, list[bytes]] = {}
        self.panel = Panel(self)
        self.asking = Asking(self.state, self.panel, delay)
        self.screen = self.asking.screen
        self.screen.show()
        self.asking.open(*self._asked_for)

    @property
    def lab(self) -> Lab | None:
        """The model, once it is open."""
        return self.asking.lab

    def settle(self, seconds: float | None = None) -> bool:
        """Wait, for so long each, until model, answer, count and tabs are done; whether they are.

        For cells and scripts: a page needs no waiting.
        """
        return self.asking.settle(seconds)

    # What the page calls

    @callback
    def press_run(self, question: str | None = None) -> None:
        """Ask; the question as it stands in the page, where that is newer than what was told."""
        if question is not None:
            self.state.question = question
        if self.lab is None:
            raise TracerError(text("explorer.no_model_yet"))
        if self.state.is_busy:
            return
        asked, how = messages(self.state), settings(self.state)
        begins = self.state.answer_begins
        self.asking.ask(lambda lab, **told: lab.ask(asked, how, answer_begins=begins, **told))

    @callback
    def press_stop(self) -> None:
        """End the answer with the token that is being made."""
        if self.state.phase != "running":
            return
        self.state.phase = "stopping"
        self.asking.stop()
        self.screen.show()

    @callback
    def press_clear(self) -> None:
        """Begin a new conversation; the answers stay."""
        state = self.state
        state.turns, state.question, state.answer_begins = [], "", ""
        state.pictures, state.error = [], ""
        self.panel.fill(state)
        self.asking.changed()

    @callback
    def press_continue(self) -> None:
        """Take question and answer into the conversation, and go on with the next question."""
        run, state = self.state.run, self.state
        if run is None or not run.answer.text:
            return
        from tracer.conversation import Message

        asked = [one for one in run.answer.messages if one.role != "system"]
        said = run.answer.answer_begins + run.answer.text
        state.turns = [*asked, Message("assistant", said)]
        state.question, state.answer_begins, state.pictures = "", "", []
        self.panel.fill(state)
        self.asking.changed()

    @callback
    def press_branch(self) -> None:
        """Continue the answer from the picked token with what was typed in its place."""
        typed = self.panel.named["branch_text"].value
        if not typed:
            raise TracerError(text("explorer.type_first"))
        self.branch(typed)

    @callback
    def take_candidate(self, token: int) -> None:
        """Continue the answer from the picked token with another candidate, by its id."""
        self.branch(token)

    @callback
    def branch(self, token: int | str) -> None:
        """Continue the answer from the picked token with another: an id, or text."""
        run, picked = self.state.run, self.state.picked
        if run is None or picked is None or picked[0] != "answer" or self.state.is_busy:
            return
        self.asking.ask(lambda lab, **told: lab.branch(run.answer, picked[1], token, **told))

    @callback
    def pick_device(self, device: str) -> None:
        """Another device was chosen: the model is opened there."""
        if self.state.is_busy:
            raise TracerError(text("explorer.busy"))
        model, front, _ = self._asked_for
        self._asked_for = (model, front, device or None)
        self.asking.open(*self._asked_for)

    def _ipython_display_(self) -> None:
        self.screen.display()
