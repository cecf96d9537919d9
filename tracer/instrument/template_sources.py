"""Where a chat template comes from: the call, a file of the model's folder, or somewhere else.

A template carries no mark of its origin, so its text is compared with what the files hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tracer.recorder import Recorder

# In the order in which the library lets one win over another.
_FILES: Final = (
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    "tokenizer_config.json",
)
_MORE: Final = "additional_chat_templates"


def origin(recorder: Recorder, owner: Any, given: Any) -> str:
    """Where the template of a call comes from.

    `owner` is the processor or tokenizer, `given` the call's own `chat_template`: a template, the
    name of one of several, or None.
    """
    known = getattr(owner, "chat_template", None)
    if given is not None and not (isinstance(known, dict) and given in known):
        return "argument of the call"
    name = "default" if given is None else str(given)
    text = known.get(name) if isinstance(known, dict) else known
    if text is None:
        return "none"
    named = f", named {name}" if isinstance(known, dict) else ""
    for file, held in _held(recorder, owner):
        if text == held.get(name):
            return file + named
    return f"chat_template of the {type(owner).__name__}{named}: in none of its files"


def _held(recorder: Recorder, owner: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Files that the owner was loaded from, each with the templates that it holds, by name."""
    paths = [Path(path) for path in recorder.notes.get("resolved", ())]
    tokenizer = getattr(owner, "tokenizer", owner)
    folder = Path(str(getattr(tokenizer, "name_or_path", None) or "\0"))
    for file in _FILES:
        for path in [folder / file, *(one for one in paths if one.name == file)]:
            yield file, _templates_in(path)
    for path in [*folder.glob(f"{_MORE}/*.jinja"), *paths] if folder.is_dir() else paths:
        if path.parent.name == _MORE:
            yield f"{_MORE}/{path.name}", {path.stem: path.read_text("utf-8")}


def _templates_in(path: Path) -> dict[str, str]:
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".jinja":
            return {"default": text}
        held = json.loads(text).get("chat_template")
    except (OSError, ValueError, AttributeError):  # no such file, or none that holds templates
        return {}
    if isinstance(held, list):
        return {one["name"]: one["template"] for one in held}
    return held if isinstance(held, dict) else {"default": held}
