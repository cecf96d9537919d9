"""Code imported while recording: how long it took, and which targets wait for it.

A finder at the head of `sys.meta_path` asks the other finders, then times the module's execution.
Only outermost imports of a thread become spans; what they import in turn is counted in them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from tracer.spans import ACTIVE, Span, ThreadState

if TYPE_CHECKING:
    from tracer.instrument.installer import Installer

WATCHED: Final = (
    *("transformers", "accelerate", "huggingface_hub", "qwen_vl_utils"),
    *("torchvision", "peft", "torch"),
)
"""Packages whose imports are spans wherever they happen; others only inside a recorded call."""


class _TimedLoader(importlib.abc.Loader):
    """Runs a module through its own loader and puts that loader back before it runs."""

    def __init__(self, inner: Any, finder: _ImportFinder) -> None:
        self._inner = inner
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        made: ModuleType | None = self._inner.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module as its own loader does, timed."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        with self._finder.timed(module.__name__):
            self._inner.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _ImportFinder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it wraps what the other finders find."""

    def __init__(self, installer: Installer) -> None:
        self._installer = installer
        self._depth = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of the first other finder, its loader wrapped."""
        inside = threading.get_ident() in ACTIVE
        if not inside and fullname.partition(".")[0] not in WATCHED:
            return None
        # Looking for the file belongs to the import: on a slow disk it is the larger part.
        self._depth.search = (fullname, time.perf_counter_ns())
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _TimedLoader(spec.loader, self)
                return spec
        return None

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time one module's execution, then bind the targets that waited for it."""
        depth, boundary = self._depth, self._installer.boundary
        depth.level = getattr(depth, "level", 0) + 1
        opened = None
        if depth.level == 1:
            depth.modules = 0
            with boundary("imports"):
                opened = self._open(name)
        depth.modules += 1
        status = "error"
        try:
            yield
            status = "ok"
        finally:
            depth.level -= 1
            if opened is not None:
                state, span = opened
                with boundary("imports"):
                    state.close(span, status, summary={"modules": depth.modules})
        with boundary("imports"), opened[0].own_time() if opened is not None else nullcontext():
            self._installer.bind_imported(name, is_outermost=depth.level == 0)

    def _open(self, name: str) -> tuple[ThreadState, Span] | None:
        state = ACTIVE.get(threading.get_ident())
        if state is None:
            recorder = self._installer.route()
            if recorder is None:
                return None
            state = recorder.thread_state()
        if state.spans and state.spans[-1].stage == "recorder":
            return None  # what the lab needs for its own work is its own time
        span = state.open("spans", "import", name, function=name)
        searched, started = getattr(self._depth, "search", ("", 0))
        if searched == name:
            span.start = started
        return state, span


@contextmanager
def watched(installer: Installer) -> Iterator[None]:
    """Watch imports until the end of the block."""
    finder = _ImportFinder(installer)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
