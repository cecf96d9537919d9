"""One installer in the process: the first recording attaches, the last detaches.

Places the patches of `targets.py`, binds those of modules that are imported later, routes each
event to a recording, and undoes everything. Observers live in the sibling files.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from tracer.instrument import building, imports, messages, patching
from tracer.instrument.loads import load_notes
from tracer.instrument.observation import Observation, Reentry
from tracer.instrument.stages import Call, Observer
from tracer.instrument.targets import TARGETS, Target, Version
from tracer.recorder import Recorder
from tracer.spans import ACTIVE

_OWN_STAGES: Final = ("recorder", "verify")
_OF_MODULE: Final[dict[str, list[Target]]] = {}
for _target in TARGETS:
    _OF_MODULE.setdefault(_target.module, []).append(_target)

_COPIES: Final = [target for target in TARGETS if target.is_copy]


class Installer:
    """What is attached, for whom, and how an event finds its recording."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []
        self.inside: set[Reentry] = set()
        self._lock = threading.RLock()
        self.meeting = threading.RLock()  # held while the modules of a model are hooked
        self._undo = ExitStack()
        self._attached: list[Installer] = []  # of this attachment: emptied when it ends
        self._placed: dict[tuple[int, str], patching.Placed] = {}

    def subscribe(self, recorder: Recorder) -> None:
        """Attach if this is the first recording; a failure leaves nothing attached."""
        with self._lock:
            self.recorders.append(recorder)
            if len(self.recorders) == 1:
                try:
                    self._attach()
                except BaseException:
                    self.recorders.clear()
                    self._detach()
                    raise

    def _detach(self) -> None:
        try:
            self._undo.close()
        except BaseException:  # what an interrupt kept from being undone; again does nothing
            self._undo.close()
            for placed in list(self._placed.values()):
                self._put_back(placed)
            raise
        finally:
            self.inside.clear()
            self._placed.clear()

    def unsubscribe(self, recorder: Recorder) -> None:
        """Detach if this was the last recording."""
        with self._lock:
            if recorder not in self.recorders:
                return
            try:
                if len(self.recorders) == 1:
                    self._detach()
            finally:
                _remove_handles(recorder)
                self.recorders.remove(recorder)
                for load in list(load_notes.JOBS.values()):
                    if load.state.recorder is recorder:  # a load that an interrupt cut off
                        load_notes.forget_jobs(load)

    def forget(self) -> None:
        """In a forked child: the recording goes on in the parent, here all of it is undone."""
        self._lock = threading.RLock()  # another thread may have held it
        self.meeting = threading.RLock()
        building.renew_lock()
        recorders, self.recorders = self.recorders, []
        for recorder in recorders:
            recorder.abandon()
            _remove_handles(recorder)
        self.inside.clear()
        ACTIVE.clear()
        load_notes.JOBS.clear()
        self._attached.clear()  # a wrapper that runs now is inert
        placed, self._undo = self._undo, ExitStack()
        placed.close()
        self._placed.clear()

    def _attach(self) -> None:
        for target in TARGETS:
            _named(target.observe)  # now: later it would be an import inside an import
        self._undo = ExitStack()
        self.inside.clear()  # which an interrupt may have kept the last end from doing
        self._placed.clear()
        self._attached = [self]
        self._undo.callback(self._attached.clear)
        self._undo.enter_context(messages.listening(self))
        self._undo.enter_context(imports.watched(self))
        for target in TARGETS:
            if target.module in sys.modules:
                self._bind(target)

    def bind_imported(self, module: str, is_outermost: bool) -> None:
        """A module has just been imported: place the targets that wait for it.

        Heirs that override a target are looked for once for all that an import brought in.
        """
        with self._lock:
            if not self.recorders:
                return
            for target in _OF_MODULE.get(module, ()):
                self._bind(target, is_whole=True)
            if is_outermost:
                for target in TARGETS:
                    if target.every_subclass and target.module in sys.modules:
                        self._bind(target)

    def _bind(self, target: Target, is_whole: bool = False) -> None:
        if target.owner.startswith("transformers") and not target.is_for(release()):
            return
        for recorder in self.recorders[:1]:
            with recorder.guard(target.name):
                self._place(target, is_whole)

    def _place(self, target: Target, is_whole: bool) -> None:
        """Patch a target; `is_whole`: its module has run to its end, whatever its spec says."""
        module = sys.modules[target.module]
        class_name = target.owner.partition(":")[2]
        owner = getattr(module, class_name, None) if class_name else module
        if target.is_copy and target.attribute not in vars(owner):
            return  # to ask for it would import what nobody has asked for
        if owner is None or not hasattr(owner, target.attribute):
            is_importing = getattr(getattr(module, "__spec__", None), "_initializing", False)
            if is_whole or not is_importing:
                self.fault(target.name, f"{target.owner} has no {target.attribute} in this version")
            return
        found = _named(target.observe)
        wrap = found(target.name) if target.is_lean else self._observing(target, found)
        for one in _owners(owner, target):
            self.place(one, target.attribute, wrap)

    def _observing(self, target: Target, observe: Callable[..., Observer]) -> patching.Wrap:
        begin = functools.partial(self._begin, target, observe)
        failed = functools.partial(self.failed, target.name)
        return patching.observing(begin, failed, tracing_test())

    def observed(self, target: Target, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose calls are observed as those of a target are; nothing is placed."""
        return self._observing(target, _named(target.observe))(function, self._while_attached())

    def place(self, owner: Any, attribute: str, wrap: patching.Wrap) -> None:
        """Place one patch for as long as anything is recorded; again does nothing."""
        key = (id(owner), attribute)
        if key in self._placed:
            return
        placed = patching.prepare(owner, attribute, wrap, self._while_attached())
        self._placed[key] = placed
        self._undo.callback(self._take_away, placed)  # first: Ctrl-C may come right after placing
        patching.put(placed)

    def _while_attached(self) -> patching.IsOn:
        """A wrapper that a stranger kept must not wake up when a later recording attaches.

        Asked at every layer and tensor, so it is a list's own length, not a function of Python.
        """
        return self._attached.__len__

    def _take_away(self, placed: patching.Placed) -> None:
        try:
            self._put_back(placed)
        except BaseException as error:
            self._put_back(placed)
            if not isinstance(error, Exception):  # Ctrl-C is the user's
                raise
            reason = "taking the patch away failed and was tried again"
            self.fault(_patch_name(placed), reason, error)

    def _put_back(self, placed: patching.Placed) -> None:
        is_ours = patching.undo(placed)
        for owner in (sys.modules[one.owner] for one in _COPIES if one.owner in sys.modules):
            if vars(owner).get(placed.attribute) is placed.ours:  # taken over while it was ours
                setattr(owner, placed.attribute, getattr(placed.owner, placed.attribute))
        if not is_ours:
            self.fault(
                _patch_name(placed),
                "patched by somebody else meanwhile: theirs stays, ours is inert",
            )

    def _begin(
        self,
        target: Target,
        observe: Callable[..., Observer],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Observation | None:
        state = ACTIVE.get(threading.get_ident())
        if state is None and target.route == "root":
            recorder = self.route(args)
            state = recorder.thread_state() if recorder else None
            self._tell_passed_over(recorder)
        elif state is None and target.route == "job":
            state = load_notes.job_state(args)
        if state is None or not state.recorder.is_live:
            return None
        if state.spans and state.spans[-1].stage in _OWN_STAGES:
            return None  # the lab's own use of the library
        reentry = None
        if target.every_subclass and args:
            reentry = (target.observe + target.attribute, id(args[0]), threading.get_ident())
        if reentry is not None and reentry in self.inside:
            return None
        call = Call(target, function, args, kwargs)
        return Observation(state, call, observe, reentry, self.inside)

    def _tell_passed_over(self, chosen: Recorder | None) -> None:
        """A recording of this thread that does not get a call of it says so."""
        ident = threading.get_ident()
        for recorder in self.recorders:
            if recorder is not chosen and recorder.notes.get("thread") == ident:
                recorder.fault(
                    "routing",
                    "calls of this thread went to another recording that is on: the newest one, "
                    "or the one that knows the model",
                )

    def route(self, args: tuple[Any, ...] = ()) -> Recorder | None:
        """Whose event this is: its model's recording, else its thread's, else the newest one's."""
        live = [recorder for recorder in self.recorders if recorder.is_live]
        if args and not isinstance(args[0], type):
            for recorder in live:
                if _knows(recorder, args[0]):
                    return recorder
        ident = threading.get_ident()
        own = [recorder for recorder in live if recorder.notes.get("thread") == ident]
        if own:
            return own[-1]
        if len(live) > 1:
            for recorder in live:
                recorder.fault("routing", "an event of another thread could not be attributed")
            return None
        return live[0] if live else None

    def failed(self, name: str, error: Exception) -> None:
        """The lab failed before it knew whose event it was; strict recordings raise it."""
        for recorder in list(self.recorders):
            recorder.failed(name, error)

    @contextmanager
    def boundary(self, name: str) -> Iterator[None]:
        """The error boundary round work of no recording in particular."""
        try:
            yield
        except Exception as error:
            self.failed(name, error)

    def fault(self, target: str, reason: str, error: Exception | None = None) -> None:
        """A fault that concerns every recording."""
        for recorder in self.recorders:
            recorder.fault(target, reason, error)


def _remove_handles(recorder: Recorder) -> None:
    """Take away what models still tell a recording, should an interrupt have cut off its end."""
    for handle in list(recorder.notes.get("handles", ())):
        handle.remove()


def _patch_name(placed: patching.Placed) -> str:
    return f"{getattr(placed.owner, '__name__', placed.owner)}.{placed.attribute}"


def _knows(recorder: Recorder, thing: Any) -> bool:
    try:
        return recorder.models.knows(thing)
    except TypeError:  # not weakly referable or not hashable: no model
        return False


def _named(name: str) -> Callable[..., Any]:
    """A function of instrument/, as `targets.py` names it: by room, file and name."""
    file, _, function = name.rpartition(".")
    found: Callable[..., Any] = getattr(
        importlib.import_module(f"tracer.instrument.{file}"), function
    )
    return found


def _owners(owner: Any, target: Target) -> Iterator[Any]:
    # Any class can be called; only one that says how, itself or through a base, has a `__call__`.
    bases = owner.__mro__ if inspect.isclass(owner) else (owner,)
    if any(target.attribute in vars(base) for base in bases):
        yield owner
    if target.every_subclass and inspect.isclass(owner):
        waiting = list(owner.__subclasses__())
        while waiting:
            heir = waiting.pop()
            waiting.extend(heir.__subclasses__())
            if target.attribute in vars(heir):
                yield heir


def tracing_test() -> Callable[[], bool]:
    """What tells whether torch.compile traces now; asked before anything that it can't trace."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)  # none in a half-made torch
    return (lambda: False) if compiler is None else compiler.is_dynamo_compiling


def release() -> Version:
    """Major and minor version of the transformers that is loaded; (0, 0) before it is imported."""
    version = getattr(sys.modules.get("transformers"), "__version__", "0.0")
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


INSTALLER: Final = Installer()
if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=INSTALLER.forget)
