"""Callbacks of the right side: into which answer one looks, at what, and what is taken home."""

from __future__ import annotations

from tracer.explain import text
from tracer.widgets.callbacks import Callbacks, callback, is_place


class Looking(Callbacks):
    """What the user looks at, once there is an answer."""

    @callback
    def pick_token(self, strip: str, index: int) -> None:
        """A token was clicked, or reached with the arrow keys."""
        run = self.state.run
        if run is None or self.state.is_busy:
            return
        marks = run.marks if strip == "answer" else run.prompt
        if not is_place(index, marks):
            return
        self.state.picked = (strip, index)
        self.screen.show_picked()
        self.screen.show()

    @callback
    def move(self, name: str, value: float) -> None:
        """A what-if slider was moved."""
        self.state.what_if[name] = value
        self.screen.show_what_if()

    @callback
    def press_as_run(self) -> None:
        """Put the what-if sliders back where the run's own settings are."""
        self.state.what_if = {}
        self.screen.reset_sliders()
        self.screen.show_what_if()

    @callback
    def pick_run(self, index: int | None) -> None:
        """Another answer was chosen to look at."""
        state = self.state
        if index == state.shown or state.is_busy or not is_place(index, state.runs):
            return
        self.state.shown, self.state.picked, self.state.what_if = index, None, {}
        self.screen.show_run()

    @callback
    def compare(self, left: int | None, right: int | None) -> None:
        """Two answers were chosen to be compared."""
        if left is None or right is None:
            return
        if is_place(left, self.state.runs) and is_place(right, self.state.runs):
            self.state.pair = (left, right)
        self.screen.show_pair()

    @callback
    def open_tab(self, name: str) -> None:
        """A tab was opened; its page is drawn when it is first seen."""
        self.screen.open_tab(name)

    @callback
    def repaint(self) -> None:
        """A page that was opened meanwhile asks for the whole strip."""
        self.screen.whole_stream()

    @callback
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
