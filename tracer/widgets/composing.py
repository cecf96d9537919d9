"""Callbacks of the left side: what will be asked, with which pictures and settings."""

from __future__ import annotations

import dataclasses

from tracer.demo import EXAMPLES, draw_movie, draw_scene
from tracer.errors import TracerError
from tracer.explain import text
from tracer.widgets import pictures
from tracer.widgets.callbacks import Callbacks, callback, is_place
from tracer.widgets.pictures import Picture
from tracer.widgets.state import settings


class Composing(Callbacks):
    """What the user writes, drops and sets."""

    _uploads: dict[str, list[bytes]]

    @callback
    def type_text(self, name: str, value: str) -> None:
        """A text field was edited: system, question, answer_begins or stop_strings."""
        setattr(self.state, name, value)
        self.asking.changed()

    @callback
    def type_setting(self, name: str, value: str) -> None:
        """A setting was edited; empty takes the model's own."""
        self.state.fields[name] = value
        self.state.error = ""
        try:
            settings(self.state)
        except TracerError as error:
            self.state.error = str(error)
        self.screen.show()

    @callback
    def edit_turn(self, number: int, words: str) -> None:
        """An earlier turn of the conversation was edited."""
        turns = self.state.turns
        if not is_place(number, turns):
            return
        turns[number] = dataclasses.replace(turns[number], text=words)
        self.asking.changed()

    @callback
    def delete_turn(self, number: int) -> None:
        """An earlier turn was taken out."""
        if not is_place(number, self.state.turns):
            return
        del self.state.turns[number]
        self.panel.fill(self.state)
        self.asking.changed()

    @callback
    def pick_scene(self, name: str) -> None:
        """A demo scene was chosen: it becomes a picture of the question."""
        if not name:
            return
        from tracer.widgets.question_side import MOVIES

        shown = text(f"scenes.{name}")
        if name in MOVIES:
            self._add_picture(pictures.drawn(shown, draw_movie(MOVIES[name]), is_video=True))
        else:
            self._add_picture(pictures.drawn(shown, [draw_scene(EXAMPLES[name])]))
        self.panel.named["scene"].value = ""

    @callback
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

    @callback
    def add_file(self, name: str, content: bytes) -> None:
        """A file was dropped or chosen."""
        self._add_picture(pictures.read(name, content))

    @callback
    def refuse_file(self, name: str, size: int) -> None:
        """The page did not send a file, since it is too large."""
        raise TracerError(
            text("explorer.file_too_big", name=name, size=f"{size / 1e6:.0f}",
                 most=f"{pictures.MOST_BYTES / 1e6:.0f}")
        )  # fmt: skip

    @callback
    def remove_picture(self, index: int) -> None:
        """A picture was taken out of the question."""
        if not is_place(index, self.state.pictures):
            return
        del self.state.pictures[index]
        self.asking.changed()

    def _add_picture(self, picture: Picture) -> None:
        if not self.state.takes_pictures:
            raise TracerError(text("explorer.no_pictures"))
        self.state.pictures.append(picture)
        self.asking.changed()
