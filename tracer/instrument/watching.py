"""Where the lab stands to be told of a module's calls, and how it is taken away again.

With a hook of torch's own a call takes torch's long way round, which costs more than all that is
told of it. But first torch looks for a stand-in of the call, where `module.compile()` puts one:
where that place is free, the lab's stand-in is put there, and calls the module with whatever hooks
it has. Models of the library keep torch's hooks, since others ask them for a stand-in to learn
whether they are compiled; so do modules whose place is taken.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch

from tracer.instrument.hooks import AbsentFromCopies, InertInCopies
from tracer.instrument.module_hooks import ModuleWatch
from tracer.instrument.targets import STAND_IN
from tracer.recorder import Recorder
from tracer.rows import ModuleSlot

_COPYING: Final = {
    name: getattr(torch.nn.Module, name, None)
    for name in ("__copy__", "__deepcopy__", "__getstate__", "__reduce__", "__reduce_ex__")
}
_NO_PLACE: Final = object()
"""Of a module whose class has no place for a stand-in."""


def has_free_place(module: Any) -> bool:
    """Whether torch will look for a stand-in of the module's call, and there is none yet."""
    kind = type(module)
    is_asked = kind.__call__ is torch.nn.Module.__call__
    # A class that copies itself may copy the stand-in too, which each call would have to find out.
    is_plain = all(getattr(kind, name, None) is usual for name, usual in _COPYING.items())
    is_plain = is_plain or issubclass(kind, torch.jit.ScriptModule)  # which takes no hooks
    return is_asked and is_plain and getattr(module, STAND_IN, _NO_PLACE) is None


def watch_module(
    recorder: Recorder, model: str, path: str, module: Any, *, by_torch: bool
) -> Watched:
    """Be told of a module's calls until what this gives is removed; see `Watched.place`."""
    watched = Watched(path, module)
    watched.place(recorder, model, by_torch=by_torch)
    return watched


class Watched:
    """One module whose calls are told, until it is removed.

    Attributes:
        path: The module's path in its model.
        module: Gives the module, as long as it exists.
    """

    __slots__ = ("_hooks", "_stand_in", "_was_there", "_watch", "module", "path")

    def __init__(self, path: str, module: Any) -> None:
        self.path = path
        self.module: Callable[[], Any] = weakref.ref(module)
        self._watch: ModuleWatch | None = None
        self._stand_in: Any = None
        self._was_there: bool | None = None  # as it was to be taken away
        self._hooks: list[Any] = []

    def place(self, recorder: Recorder, model: str, *, by_torch: bool) -> None:
        """Be told of the module's calls.

        Args:
            recorder: The recording that is told.
            model: The model's short id.
            by_torch: With torch's hooks, even where its place for a stand-in is free.
        """
        module = self.module()
        slot = ModuleSlot(model, self.path, type(module).__name__)
        slot.source = recorder.places.source(getattr(type(module), "forward", None))
        watch = self._watch = ModuleWatch(recorder, recorder.add_slot(slot), module)
        if not by_torch and has_free_place(module):
            self._stand_in = watch.stand_in = AbsentFromCopies(ModuleWatch.called, watch)
            vars(module)[STAND_IN] = self._stand_in
            return
        # The function and its object: to call a bound method would be one more step.
        before = InertInCopies(ModuleWatch.enter, watch)
        self._hooks.append(module.register_forward_pre_hook(before))
        # `always_call` and keywords cost nothing in torch; without the first an error stays open.
        after = InertInCopies(ModuleWatch.leave, watch)
        self._hooks.append(module.register_forward_hook(after, with_kwargs=True, always_call=True))

    @property
    def is_in_place(self) -> bool:
        """Whether nobody has taken the stand-in away."""
        if self._stand_in is None:
            return len(self._hooks) == 2
        return vars(self.module()).get(STAND_IN) is self._stand_in

    def remove(self) -> bool:
        """Take it away, whatever of it was placed; False where somebody else had done so before.

        Again, after an interrupt, goes on with what is left and gives the same answer.
        """
        for hook in self._hooks:
            hook.remove()
        if self._watch is not None:
            self._watch.stand_in = None  # whoever has it still is a copy, or a stranger
        module = self.module()
        if module is None or self._stand_in is None:
            return True
        is_there = vars(module).get(STAND_IN) is self._stand_in
        if self._was_there is None:
            self._was_there = is_there
        if is_there:
            del vars(module)[STAND_IN]
        return self._was_there
