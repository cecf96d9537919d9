"""The language that the lab speaks, and its words as they lie in the files beside this one.

Each language is a folder with one TOML file for each kind of words; all languages have the same
files with the same keys, which a test holds. `names/` has what no language changes. Nothing is read
before it is asked for, and then once.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
import tomllib
from typing import Any, Final

from tracer.errors import UnknownNameError

LANGUAGES: Final = {"en": "English", "zh": "中文"}
"""The languages by code, each under the name that its readers give it."""

ENVIRONMENT: Final = "TRACER_LANG"
"""Variable of the environment that chooses the language at first."""

_asked_for = os.environ.get(ENVIRONMENT, "")
_current = _asked_for if _asked_for in LANGUAGES else "en"


def language(code: str | None = None) -> str:
    """Choose the language of explanations, tables, charts and summaries, or ask which it is.

    It holds for the whole process, so that widgets and threads speak like the cell that chose it.
    So does what the lab refuses. A trace holds English whatever language it is made in; its reasons
    are told in the one that holds where they are shown. Names in code stay English, and errors of
    Python and of the libraries are told as they come.
    At first it is what the environment says in TRACER_LANG, else English.

    Args:
        code: `"en"` or `"zh"`; without it nothing changes.

    Returns:
        The code of the language that now holds.

    Raises:
        UnknownNameError: The lab does not speak that language.
    """
    global _current  # one word for the process; assigning it is atomic
    if code is not None:
        _current = known_language(code)
    return _current


def known_language(code: str) -> str:
    """The code itself.

    Raises:
        UnknownNameError: No language has it.
    """
    if not isinstance(code, str) or code not in LANGUAGES:
        spoken = words("phrases")["joints"]["choice"].join(
            f"{one!r} ({name})" for one, name in LANGUAGES.items()
        )
        said = words("errors")["errors"]["no_language"]
        raise UnknownNameError(said.format(code=code, spoken=spoken))
    return code


def words(kind: str, code: str | None = None) -> dict[str, Any]:
    """All words of one kind, such as `stages`; not to be changed.

    Args:
        kind: A file's name without its ending, or the name of a folder of files.
        code: A language; by default the one that holds.

    Raises:
        UnknownNameError: The lab does not speak that language.
    """
    return _read(_current if code is None else known_language(code), kind)


def names(kind: str) -> dict[str, Any]:
    """What no language changes: `stages` and their tables, `moved` names; not to be changed."""
    return _read("names", kind)


@functools.cache
def _read(folder: str, kind: str) -> dict[str, Any]:
    """One file, or all files of a folder of that name: findings have a file a stage."""
    place = importlib.resources.files("tracer.explain").joinpath(folder)
    parts = place.joinpath(kind)
    files = [place.joinpath(f"{kind}.toml")]
    if parts.is_dir():
        files = sorted(parts.iterdir(), key=lambda file: file.name)
    found: dict[str, Any] = {}
    for file in files:
        found |= tomllib.loads(file.read_text("utf-8"))
    return found
