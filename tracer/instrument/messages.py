"""Warnings and library log lines become rows of `messages`; they still go where they went."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument import patching
from tracer.places import relative_path

if TYPE_CHECKING:
    from tracer.instrument.installer import Installer

_LOGGERS: Final = ("transformers", "accelerate", "qwen_vl_utils")


class _MessageHandler(logging.Handler):
    """Hands log records to the recording of the thread that wrote them."""

    def __init__(self, installer: Installer) -> None:
        super().__init__(logging.DEBUG)
        self._installer = installer

    def emit(self, record: logging.LogRecord) -> None:
        """Write one row; never fails into the library's own logging."""
        _write(self._installer, record.levelname.lower(), record.name, record.getMessage)


def _write(installer: Installer, level: str, source: str, text: Any) -> None:
    with installer.boundary("messages"):
        recorder = installer.route()
        if recorder is not None:
            recorder.add_point(
                "messages", "recorder", source, level=level, source=source, text=text()
            )


@contextmanager
def listening(installer: Installer) -> Iterator[None]:
    """Listen to loggers and warnings until the end of the block."""
    handler = _MessageHandler(installer)

    def failed(error: Exception) -> None:
        installer.failed("messages", error)

    def warned(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        message = args[0] if args else kwargs.get("message")
        place = f"{relative_path(args[2])}:{args[3]}" if len(args) > 3 else "warnings"
        category = args[1].__name__ if len(args) > 1 else "Warning"
        _write(installer, "warning", place, lambda: f"{category}: {message}")

    wrap = patching.observing(warned, failed)
    placed = patching.prepare(warnings, "showwarning", wrap, lambda: True)
    try:
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(handler)
        patching.put(placed)
        yield
    finally:
        try:
            _stop(installer, handler, placed)
        except BaseException:
            _stop(installer, handler, placed)
            raise


def _stop(installer: Installer, handler: logging.Handler, placed: patching.Placed) -> None:
    """Take all away; again does nothing."""
    if not patching.undo(placed):
        installer.fault("warnings.showwarning", "replaced by somebody else: theirs stays")
    for name in _LOGGERS:
        logging.getLogger(name).removeHandler(handler)
