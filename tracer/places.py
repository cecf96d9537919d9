"""Where code stands: the library function that ran, and the Python path that led to it.

Frames and code objects become short keys while recording; files are read and text is made only
when the recording closes.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

_LAB: Final = str(Path(__file__).parent)
# The lab's own frames say nothing about the library; the demo is a user of it like any other.
_OWN_ROOMS: Final = (
    f"{_LAB}/instrument/",
    f"{_LAB}/recorder.py",
    f"{_LAB}/session.py",
    f"{_LAB}/places.py",
)
# How the user's code was started: the same for every event, so left out of call paths.
_STARTERS: Final = (
    "IPython", "ipykernel", "tornado", "asyncio", "runpy", "_pytest", "pluggy", "pytest",
    "nbclient", "importlib", "threading",
)  # fmt: skip


_LINES: Final[dict[tuple[int, int], tuple[CodeType, int]]] = {}
"""Identity of a code and instruction to the code, which keeps its identity, and the line: found
once in a process, since it takes a walk through the code's table of lines."""

Reached = tuple[int, int, str]
"""A frame that runs now (identity, instruction), and the key of the call path that ends in it."""


class Places:
    """Interned source and stack keys of one recording."""

    def __init__(self) -> None:
        # By identity: a code object hashes and compares all that is in it, anew each time.
        self._codes: dict[int, CodeType] = {}
        self._is_ours: dict[int, bool] = {}
        self._functions: dict[int, tuple[Any, str | None]] = {}
        self._sources: dict[int, str] = {}
        self._met: dict[tuple[int | str, ...], str] = {}
        self._stacks: dict[tuple[int, ...], str] = {}
        self._numbers = itertools.count(1)

    def source(self, function: Any) -> str | None:
        """Key of the function behind decorators and wrappers; None for functions without code."""
        known = self._functions.get(id(function))
        if known is not None:
            return known[1]
        name = self._name_source(function)
        if not inspect.ismethod(function):  # which would keep its object, a model perhaps
            self._functions[id(function)] = (function, name)
        return name

    def _name_source(self, function: Any) -> str | None:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if not isinstance(code, CodeType):
            return None
        self._codes[id(code)] = code
        name = f"{relative_path(code.co_filename)}:{code.co_firstlineno}"
        return self._sources.setdefault(id(code), name)

    def stack(self, frame: FrameType | None, reached: Reached | None = None) -> str:
        """Key of the call path that ends in this frame, the lab's own frames left out.

        Args:
            frame: Where the path ends.
            reached: A frame further out whose own path is known, so that it is not walked again.
        """
        # By instruction: working out a frame's line means reading its code's line table from the
        # start, and nearly every path was met before.
        path: list[int | str] = []
        is_ours = self._is_ours
        known_from = 0 if reached is None else reached[0]
        at: FrameType | None = frame
        while at is not None:
            if id(at) == known_from and reached is not None and at.f_lasti == reached[1]:
                path.append(reached[2])
                break
            identity = id(at.f_code)
            ours = is_ours.get(identity)
            if ours is None:
                ours = self._remember(at.f_code)
            if not ours:
                path.append(identity)
                path.append(at.f_lasti)
            at = at.f_back
        key = tuple(path)
        known = self._met.get(key)
        if known is None:
            known = self._met[key] = self._name_stack(frame)
        return known

    def _name_stack(self, frame: FrameType | None) -> str:
        lines: list[int] = []  # code and line, innermost first
        while frame is not None:
            if not self._is_ours[id(frame.f_code)]:
                lines += (id(frame.f_code), _line(frame))
            frame = frame.f_back
        key = tuple(lines)
        # Two threads may meet a path at once: the first name stands.
        return self._stacks.setdefault(key, f"stack-{next(self._numbers)}")

    def _remember(self, code: CodeType) -> bool:
        self._codes[id(code)] = code  # keeps it, so that its identity stays its own
        ours = self._is_ours[id(code)] = code.co_filename.startswith(_OWN_ROOMS)
        return ours

    def reach(self, frame: FrameType | None, stack: str | None) -> Reached | None:
        """Note the library's or the user's frame that stands above this one, by its path's key."""
        caller = self.caller(frame)
        return None if caller is None or stack is None else (id(caller), caller.f_lasti, stack)

    def caller(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame that is not the lab's own."""
        while frame is not None:
            ours = self._is_ours.get(id(frame.f_code))
            if not (self._remember(frame.f_code) if ours is None else ours):
                break
            frame = frame.f_back
        return frame

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of `stacks` and `sources`; reads the source files."""
        stacks = [
            {"stack": name, "frames": [_describe(*step) for step in _worth_showing(steps)]}
            for steps, name in ((self._steps(key), name) for key, name in self._stacks.items())
        ]
        sources = {}
        for identity, name in self._sources.items():
            code = self._codes[identity]
            sources[name] = {
                "source": name,
                "function": code.co_qualname,
                "first_line": code.co_firstlineno,
                "text": _text(code, code.co_filename),
            }
        return {"stacks": stacks, "sources": list(sources.values())}

    def _steps(self, key: tuple[int, ...]) -> tuple[tuple[CodeType, int], ...]:
        """The path behind a stack's key: code and line of each frame, innermost first."""
        codes = (self._codes[identity] for identity in key[::2])
        return tuple(zip(codes, key[1::2], strict=True))


@functools.cache
def relative_path(filename: str) -> str:
    """Path from the package on; of a file outside packages the name alone, never its folder."""
    path = Path(filename)
    roots = sysconfig.get_paths()
    for name in ("purelib", "platlib", "stdlib"):
        root = roots.get(name)
        if root and path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    for marker in ("site-packages", "dist-packages"):
        if marker in path.parts:
            return "/".join(path.parts[path.parts.index(marker) + 1 :])
    if path.is_relative_to(_LAB):
        return path.relative_to(Path(_LAB).parent).as_posix()
    return _package_path(path)


def _package_path(path: Path) -> str:
    """A package that stands outside site-packages (editable, PYTHONPATH) keeps its own folders."""
    parts = [path.name]
    for folder in path.parents:
        if not (folder / "__init__.py").exists():
            break
        parts.append(folder.name)
    return "/".join(reversed(parts))


def _line(frame: FrameType) -> int:
    key = id(frame.f_code), frame.f_lasti
    known = _LINES.get(key)
    if known is None:
        known = _LINES[key] = frame.f_code, frame.f_lineno
    return known[1]


def _worth_showing(path: tuple[tuple[CodeType, int], ...]) -> list[tuple[CodeType, int]]:
    outermost_first = list(reversed(path))
    last_starter = -1
    for index, (code, _) in enumerate(outermost_first):
        if relative_path(code.co_filename).split("/")[0].removesuffix(".py") in _STARTERS:
            last_starter = index
        elif last_starter >= 0 and index - last_starter > 3:
            break
    return outermost_first[last_starter + 1 :] or outermost_first


def _describe(code: CodeType, line: int) -> str:
    return f"{relative_path(code.co_filename)}:{line} {code.co_qualname}"


@functools.lru_cache(maxsize=2048)
def _text(code: CodeType, file: str) -> str | None:
    # To find a function's end its lines are taken apart, which costs more than a small recording;
    # the next one meets the same functions. Equal code may stand in two files.
    lines = linecache.getlines(file)
    if not lines:
        return None
    return "".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))
