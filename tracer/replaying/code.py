"""The code of a run: library functions that ran, and the Python paths that led to them.

All of it was recorded as text; no file of this machine is opened, no code imported.
"""

from __future__ import annotations

import bisect
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracer.trace import Trace

_FRAME: Final = re.compile(r"(?P<file>.*):(?P<line>\d+) (?P<function>.*)", re.DOTALL)
_LIBRARIES: Final = ("transformers", "accelerate", "torch", "tracer")


class Code:
    """Sources and call paths of one trace."""

    def __init__(self, trace: Trace) -> None:
        rows = trace.arrow("sources").to_pylist()
        self.sources = {row["source"]: _source(row) for row in rows if row["source"]}
        stacks = trace.arrow("stacks")
        self._frames = dict(
            zip(stacks["stack"].to_pylist(), stacks["frames"].to_pylist(), strict=True)
        )
        self._stacks: dict[str, list[dict[str, Any]]] = {}
        self._by_file: dict[str, list[tuple[int, str]]] = {}
        for key, source in self.sources.items():
            if source["first_line"] is not None:
                self._by_file.setdefault(source["file"], []).append((source["first_line"], key))
        for functions in self._by_file.values():
            functions.sort()

    @property
    def stack_keys(self) -> list[str]:
        """Keys of all call paths."""
        return list(self._frames)

    def stack(self, key: str) -> list[dict[str, Any]]:
        """The frames of a call path from the outermost in; empty for a key that isn't there."""
        if key not in self._stacks:
            self._stacks[key] = self._read_stack(key)
        return self._stacks[key]

    def _read_stack(self, key: str) -> list[dict[str, Any]]:
        try:
            texts = json.loads(self._frames.get(key) or "[]")
        except ValueError:
            texts = []
        return [self._frame(str(text)) for text in texts] if isinstance(texts, list) else []

    def lines_of(self, key: str) -> range:
        """The lines that a source takes in its file."""
        source = self.sources.get(key)
        if source is None or source["first_line"] is None:
            return range(0)
        first = source["first_line"]
        return range(first, first + len(source["lines"]))

    def _frame(self, text: str) -> dict[str, Any]:
        found = _FRAME.fullmatch(text)
        if found is None:
            return {"file": "", "line": None, "function": text, "origin": "other", "source": None}
        file, line = found["file"], int(found["line"])
        return {
            "file": file,
            "line": line,
            "function": found["function"],
            "origin": origin_of(file),
            "source": self._covering(file, line),
        }

    def _covering(self, file: str, line: int) -> str | None:
        """The innermost recorded function that holds a line; None where none was recorded."""
        functions = self._by_file.get(file, [])
        for _, key in reversed(functions[: bisect.bisect_right(functions, (line, "\U0010ffff"))]):
            if line in self.lines_of(key):
                return key
        return None


def origin_of(file: str) -> str:
    """Whose code a frame is, by the package that its file stands in."""
    first = file.split("/")[0]
    if first in _LIBRARIES:
        return first
    if file.startswith("<frozen") or first.removesuffix(".py") in sys.stdlib_module_names:
        return "python"
    return "other" if "/" in file else "user"


def _source(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "file": row["source"].rpartition(":")[0],
        "function": row["function"] or "",
        "first_line": row["first_line"],
        "lines": (row["text"] or "").splitlines(),
    }
