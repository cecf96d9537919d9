"""What can be wrong with a model folder, as rows: kind, file, key, numbers and one sentence.

Each is decided from bytes and names, never from the text of another library's error. `inspect`,
a failed load's trace and the doctor share these rows; this module opens no file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final, Literal

from tracer.errors import CheckpointError
from tracer.explain.sentences import Sentence, names, phrase, say

Level = Literal["error", "warning", "note"]

KINDS: Final[dict[str, Level]] = {
    # Of one file
    "absent_file": "error",
    "broken_link": "error",
    "no_permission": "error",
    "unreadable": "error",
    "empty_file": "error",
    "lfs_pointer": "error",
    "wrong_format": "error",
    "header_cut": "error",
    "tail_cut": "error",
    "damaged_header": "error",
    "extra_bytes": "error",
    "gap": "error",
    "size_mismatch": "error",
    "damaged_json": "error",
    # Between index, headers and files
    "damaged_index": "error",
    "outside_folder": "error",
    "not_held": "error",
    "misplaced": "warning",
    "not_in_index": "warning",
    "held_twice": "warning",
    "total_size": "warning",
    "nested": "warning",
    "stray_file": "note",
    # Of the folder
    "no_folder": "error",
    "no_config": "error",
    "no_weights": "error",
    "no_index": "error",
    "no_base": "error",
    "no_tokenizer": "note",
    "no_template": "note",
    "vocabulary": "warning",
    "token_ids": "warning",
    "no_room": "warning",
    # Against the model as built
    "no_model": "error",
    "missing": "warning",
    "unexpected": "note",
    "mismatched": "error",
    "other_prefix": "warning",
}
"""Every kind of problem. `error`: a load fails. `warning`: it may end well with values or answers
that nobody asked for. `note`: harmless, and often asked about."""

_SPOIL_A_FILE: Final = {
    "absent_file", "broken_link", "no_permission", "unreadable", "empty_file", "lfs_pointer",
    "wrong_format", "header_cut", "tail_cut", "damaged_header", "extra_bytes", "gap",
    "size_mismatch", "damaged_json", "damaged_index", "outside_folder",
}  # fmt: skip
_OF_NAMES: Final = {"not_held", "misplaced", "not_in_index", "held_twice", "nested"}
_MOST_NAMES: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        kind: One of `KINDS`.
        file: File that it is about, by its path in the folder; None for the whole folder.
        key: Tensor, parameter or setting that it is about, if it is about one.
        expected: What should be there: bytes, a count or a word.
        found: What is there.
        missing_bytes: Bytes of weights that are not there; None where nothing tells.
        told: What happened, with the values, and what to do; can be said in any language.
    """

    kind: str
    file: str | None
    key: str | None
    expected: int | str | None
    found: int | str | None
    missing_bytes: int | None
    told: Any

    @property
    def sentence(self) -> str:
        """What happened, in the language that holds."""
        return str(self.told)

    @property
    def english(self) -> str:
        """The same as a trace keeps it, whose words are those of one language."""
        return str(say(self.told, "en"))

    @property
    def level(self) -> Level:
        """How bad it is: error, warning or note."""
        return KINDS[self.kind]


def problem(
    kind: str,
    told: Any,
    *,
    file: str | None = None,
    key: str | None = None,
    expected: int | str | None = None,
    found: int | str | None = None,
    missing_bytes: int | None = None,
) -> Problem:
    """Make a row; what isn't known is left out."""
    return Problem(kind, file, key, expected, found, missing_bytes, told)


def from_error(error: CheckpointError, file: str) -> Problem:
    """The row of a file that could not be read."""
    return Problem(
        error.kind, file, None, error.expected, error.found, error.missing_bytes, error.told
    )


def causes(found: Iterable[Problem]) -> dict[str, Problem]:
    """Of each file that can't be used, the first thing that is wrong with it."""
    first: dict[str, Problem] = {}
    for one in found:
        if one.file is not None and one.kind in _SPOIL_A_FILE:
            first.setdefault(one.file, one)
    return first


def after_success(found: Iterable[Problem]) -> list[Problem]:
    """What is still worth saying where the library read every file: names that disagree.

    A sum alone proves little: nobody reads it, and published ones are wrong now and then.
    """
    listed = list(found)
    of_names = [one for one in listed if one.kind in _OF_NAMES]
    return of_names + [one for one in listed if of_names and one.kind == "total_size"]


def named(those: Iterable[str]) -> Sentence:
    """`a, b, c and 4 more`."""
    listed = list(those)
    shown, rest = names(*listed[:_MOST_NAMES]), len(listed) - _MOST_NAMES
    return phrase("folders.and_more", names=shown, number=rest) if rest > 0 else shown
