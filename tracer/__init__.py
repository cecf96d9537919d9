"""Public names of the lab, each imported from its room when it is first asked for.

`import tracer` imports no torch, no pandas and none of the rooms below, patches nothing and
changes nothing. A name of `__all__` must not be the name of a submodule: importing that submodule
would overwrite it here.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracer.diagnosis.examine import doctor
    from tracer.diagnosis.findings import Findings
    from tracer.environment import check
    from tracer.errors import (
        CheckpointError,
        IncompleteTraceWarning,
        MissingPackageError,
        SessionStateError,
        StorageError,
        TraceFormatError,
        TracerError,
        UnknownNameError,
    )
    from tracer.explain.languages import language
    from tracer.inspection import Inspection, inspect
    from tracer.lab import Lab
    from tracer.session import record, start
    from tracer.trace import Trace, open_trace, read_csv
    from tracer.verify import audit_model
    from tracer.views.html import to_html
    from tracer.widgets.explorer import explore
    from tracer.widgets.player import play

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "Findings",
    "IncompleteTraceWarning",
    "Inspection",
    "Lab",
    "MissingPackageError",
    "SessionStateError",
    "StorageError",
    "Trace",
    "TraceFormatError",
    "TracerError",
    "UnknownNameError",
    "audit_model",
    "check",
    "doctor",
    "explore",
    "inspect",
    "language",
    "open_trace",
    "play",
    "read_csv",
    "record",
    "start",
    "to_html",
]

_ROOMS: Final = {
    "tracer.diagnosis.examine": ("doctor",),
    "tracer.diagnosis.findings": ("Findings",),
    "tracer.environment": ("check",),
    "tracer.errors": (
        "CheckpointError",
        "IncompleteTraceWarning",
        "MissingPackageError",
        "SessionStateError",
        "StorageError",
        "TraceFormatError",
        "TracerError",
        "UnknownNameError",
    ),
    "tracer.explain.languages": ("language",),
    "tracer.inspection": ("Inspection", "inspect"),
    "tracer.lab": ("Lab",),
    "tracer.session": ("record", "start"),
    "tracer.trace": ("Trace", "open_trace", "read_csv"),
    "tracer.verify": ("audit_model",),
    "tracer.views.html": ("to_html",),
    "tracer.widgets.explorer": ("explore",),
    "tracer.widgets.player": ("play",),
}
_ROOM_OF: Final = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the room that holds a public name, and keep the name here for the next time."""
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names too, so that completion offers what isn't imported yet."""
    return sorted({*globals(), *__all__})
