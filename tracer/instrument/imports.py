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

from tracer.instrument.stages import Outcome
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
        outer = getattr(depth, "level", 0)
        state = mark = span = None
        try:
            depth.level = outer + 1
            if outer == 0:
                depth.modules = 0
                with boundary("imports"):
                    state = self._state()
                    mark = None if state is None else state.mark()
                    span = None if state is None else self._open(state, name)
            depth.modules += 1
            yield
            if state is not None and span is not None:
                with boundary("imports"):
                    state.close(span, summary={"modules": depth.modules})
        except BaseException as error:
            if state is not None and mark is not None:
                if span is not None:
                    span.columns["summary"] = {"modules": depth.modules}
                state.cut_back(mark, Outcome(None, error).status)
            raise
        finally:
            depth.level = outer
        with boundary("imports"), nullcontext() if state is None else state.own_time():
            self._installer.bind_imported(name, is_outermost=outer == 0)

    def _state(self) -> ThreadState | None:
        """Whose import this is; nobody's where the lab needs it for its own work."""
        state = ACTIVE.get(threading.get_ident())
        if state is None:
            recorder = self._installer.route()
            return None if recorder is None else recorder.thread_state()
        is_own = state.spans and state.spans[-1].stage == "recorder"
        return None if is_own else state

    def _open(self, state: ThreadState, name: str) -> Span:
        span = state.open("spans", "import", name, function=name)
        searched, started = getattr(self._depth, "search", ("", 0))
        if searched == name:
            span.start = started
        return span


@contextmanager
def watched(installer: Installer) -> Iterator[None]:
    """Watch imports until the end of the block."""
    finder = _ImportFinder(installer)
    try:
        sys.meta_path.insert(0, finder)
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
