"""`explore()`: put a question to a model, watch the answer come, and look into each token of it.

Callbacks have names and take plain values; each changes the state and shows its view. What takes
time (opening, answering, counting, drawing) runs in a thread; what fails is shown in the panel and
loses nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.demo import EXAMPLES, draw_movie, draw_scene
from tracer.environment import require
from tracer.errors import TracerError
from tracer.explain import text
from tracer.widgets import pictures
from tracer.widgets.asking import Asking
from tracer.widgets.export import FOLDER
from tracer.widgets.pictures import Picture
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
    require("ipywidgets", "anywidget", extra="lab", purpose="the explorer")
    return Explorer(model, front, device=device)


def _callback(method: Callable[..., Any]) -> Callable[..., None]:
    """A callback whose failure is shown; the page alone would swallow it."""

    @functools.wraps(method)
    def guarded(self: Explorer, *arguments: Any, **named: Any) -> None:
        try:
            method(self, *arguments, **named)
        except Exception as error:
            self.asking.failed(error)

    return guarded


class Explorer:
    """A panel with its state. Its callbacks can be called from code as well as by the page.

    Attributes:
        state: All that it knows, as plain data.
        panel: Its widgets.
        asking: The model, and what takes time with it.
        screen: What puts the state on them.
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

    @_callback
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

    @_callback
    def press_stop(self) -> None:
        """End the answer with the token that is being made."""
        if self.state.phase != "running":
            return
        self.state.phase = "stopping"
        self.asking.stop()
        self.screen.show()

    @_callback
    def press_clear(self) -> None:
        """Begin a new conversation; the answers stay."""
        state = self.state
        state.turns, state.question, state.answer_begins = [], "", ""
        state.pictures, state.error = [], ""
        self.panel.fill(state)
        self.asking.changed()

    @_callback
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

    @_callback
    def press_branch(self) -> None:
        """Continue the answer from the picked token with what was typed in its place."""
        typed = self.panel.named["branch_text"].value
        if not typed:
            raise TracerError(text("explorer.type_first"))
        self.branch(typed)

    @_callback
    def take_candidate(self, token: int) -> None:
        """Continue the answer from the picked token with another candidate, by its id."""
        self.branch(token)

    @_callback
    def branch(self, token: int | str) -> None:
        """Continue the answer from the picked token with another: an id, or text."""
        run, picked = self.state.run, self.state.picked
        if run is None or picked is None or picked[0] != "answer" or self.state.is_busy:
            return
        self.asking.ask(lambda lab, **told: lab.branch(run.answer, picked[1], token, **told))

    @_callback
    def press_download(self) -> None:
        """Write answers to a zip, hand it to the browser, and say where it lies."""
        from tracer.widgets.export import export

        named = self.panel.named
        runs = self.state.runs
        if named["scope"].value == "run":
            runs = [] if self.state.run is None else [self.state.run]
        path = export(runs, named["kind"].value, self._folder)
        self.state.exported = text("explorer.written", path=str(path))
        self.panel.keys.download(path.name, path.read_bytes())
        self.screen.show()

    @_callback
    def type_text(self, name: str, value: str) -> None:
        """A text field was edited: system, question, answer_begins or stop_strings."""
        setattr(self.state, name, value)
        self.asking.changed()

    @_callback
    def type_setting(self, name: str, value: str) -> None:
        """A setting was edited; empty takes the model's own."""
        self.state.fields[name] = value
        self.state.error = ""
        try:
            settings(self.state)
        except TracerError as error:
            self.state.error = str(error)
        self.screen.show()

    @_callback
    def edit_turn(self, number: int, words: str) -> None:
        """An earlier turn of the conversation was edited."""
        turn = self.state.turns[number]
        self.state.turns[number] = dataclasses.replace(turn, text=words)
        self.asking.changed()

    @_callback
    def delete_turn(self, number: int) -> None:
        """An earlier turn was taken out."""
        del self.state.turns[number]
        self.panel.fill(self.state)
        self.asking.changed()

    @_callback
    def pick_scene(self, name: str) -> None:
        """A demo scene was chosen: it becomes a picture of the question."""
        if not name:
            return
        from tracer.widgets.panel import MOVIES

        if name in MOVIES:
            self._add_picture(pictures.drawn(name, draw_movie(MOVIES[name]), is_video=True))
        else:
            self._add_picture(pictures.drawn(name, [draw_scene(EXAMPLES[name])]))
        self.panel.named["scene"].value = ""

    @_callback
    def receive(self, key: str, name: str, number: int, pieces: int, content: bytes = b"") -> None:
        """A piece of a file came in; the last one makes it a picture."""
        parts = self._uploads.setdefault(key, [])
        if number != len(parts):
            del self._uploads[key]
            raise TracerError(text("explorer.file_torn", name=name))
        parts.append(content)
        if len(parts) < pieces:
            return
        del self._uploads[key]
        self.add_file(name, b"".join(parts))

    @_callback
    def add_file(self, name: str, content: bytes) -> None:
        """A file was dropped or chosen."""
        self._add_picture(pictures.read(name, content))

    @_callback
    def refuse_file(self, name: str, size: int) -> None:
        """The page did not send a file, since it is too large."""
        raise TracerError(
            text("explorer.file_too_big", name=name, size=f"{size / 1e6:.0f}",
                 most=f"{pictures.MOST_BYTES / 1e6:.0f}")
        )  # fmt: skip

    @_callback
    def remove_picture(self, index: int) -> None:
        """A picture was taken out of the question."""
        del self.state.pictures[index]
        self.asking.changed()

    @_callback
    def pick_token(self, strip: str, index: int) -> None:
        """A token was clicked, or reached with the arrow keys."""
        run = self.state.run
        if run is None or self.state.is_busy:
            return
        marks = run.marks if strip == "answer" else run.prompt
        if not 0 <= index < len(marks):
            return
        self.state.picked = (strip, index)
        self.screen.show_picked()
        self.screen.show()

    @_callback
    def move(self, name: str, value: float) -> None:
        """A what-if slider was moved."""
        self.state.what_if[name] = value
        self.screen.show_what_if()

    @_callback
    def press_as_run(self) -> None:
        """Put the what-if sliders back where the run's own settings are."""
        self.state.what_if = {}
        self.screen.reset_sliders()
        self.screen.show_what_if()

    @_callback
    def pick_run(self, index: int | None) -> None:
        """Another answer was chosen to look at."""
        if index is None or index == self.state.shown or self.state.is_busy:
            return
        self.state.shown, self.state.picked, self.state.what_if = index, None, {}
        self.screen.show_run()

    @_callback
    def compare(self, left: int | None, right: int | None) -> None:
        """Two answers were chosen to be compared."""
        if left is None or right is None:
            return
        self.state.pair = (left, right)
        self.screen.show_pair()

    @_callback
    def open_tab(self, name: str) -> None:
        """A tab was opened; its page is drawn when it is first seen."""
        self.screen.open_tab(name)

    @_callback
    def pick_device(self, device: str) -> None:
        """Another device was chosen: the model is opened there."""
        if self.state.is_busy:
            raise TracerError(text("explorer.busy"))
        model, front, _ = self._asked_for
        self._asked_for = (model, front, device or None)
        self.asking.open(*self._asked_for)

    @_callback
    def repaint(self) -> None:
        """A page that was opened meanwhile asks for the whole strip."""
        self.screen.whole_stream()

    def _ipython_display_(self) -> None:
        self.screen.display()

    def _add_picture(self, picture: Picture) -> None:
        self.state.pictures.append(picture)
        self.asking.changed()
