"""Which modules of a model are hooked, and when a model is met; what it is in while it runs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any, Final

from tracer.instrument import rotations
from tracer.instrument.asking import vision
from tracer.instrument.hooks import AbsentFromCopies, every_module
from tracer.instrument.installer import INSTALLER
from tracer.instrument.targets import STAND_IN
from tracer.recorder import Recorder

_MODEL_CLASS: Final = "PreTrainedModel"
UNSEEN: Final = "modules inside a compiled forward are not seen"


def meet(recorder: Recorder, model: Any) -> None:
    """Hook a model for this recording; it may have been made before the recording began.

    Asked again at every outermost call: what was put into the model meanwhile is hooked too.
    """
    met: dict[str, Meeting] = recorder.notes.setdefault("met", {})
    name = recorder.models.of(model)
    with INSTALLER.meeting:  # another thread's forward waits until all hooks are there
        if is_compiled(model):  # perhaps only since it was met
            _tell_compiled(recorder, name, name, "the model is compiled")
        if name not in met:
            meeting = met[name] = Meeting(recorder, name)
            handles(recorder).append(meeting)
        met[name].look(model)


def handles(recorder: Recorder) -> list[Any]:
    """What is to be removed from models when the recording ends."""
    kept: list[Any] | None = recorder.notes.get("handles")
    if kept is None:
        kept = recorder.notes["handles"] = []
        recorder.at_end.append(functools.partial(_remove, kept))
    return kept


def _remove(kept: list[Any]) -> None:
    while kept:
        kept[-1].remove()
        del kept[-1]


class Meeting:
    """One model that a recording has met: which of its modules are watched, and since when."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._name = name
        self._watched: dict[int, Any] = {}  # by the module's identity
        self._seen: list[int] = []
        self._eyes: list[Any] | None = None  # hooks on what sees; None until they are all there

    def look(self, model: Any) -> None:
        """Watch what is not watched yet, and nothing that has left the model."""
        if self._seen and self._seen == _standing(model):
            return
        is_first, recorder = not self._seen, self._recorder
        rotations.count(model, is_model_class)
        if not is_compiled(model):
            self._watch_eyes(model)
            wanted = selected(model, recorder.options.detail, recorder.options.layers)
            self._watch(dict((id(module), (path, module)) for path, module in wanted))
        if is_first or not is_compiled(model):
            self._seen = _standing(model)

    def _watch_eyes(self, model: Any) -> None:
        if self._eyes is None:
            placed: list[Any] = []
            try:
                vision.watch(self._recorder, model, placed)
                self._eyes = placed
            finally:
                if self._eyes is None:
                    _remove(placed)

    def _watch(self, wanted: dict[int, tuple[str, Any]]) -> None:
        for identity, watched in list(self._watched.items()):
            path, module = wanted.get(identity, (None, None))
            if module is None or watched.module() is not module or watched.path != path:
                watched.remove()
                del self._watched[identity]
        for path, module in wanted.values():
            with self._recorder.guard(f"{self._name} {path}"):
                self._watch_one(path, module)

    def _watch_one(self, path: str, module: Any) -> None:
        from tracer.instrument import watching  # which needs torch; a model brings it along

        recorder, target = self._recorder, f"{self._name} {path}"
        watched = self._watched.get(id(module))
        if watched is not None and watched.is_in_place:
            return
        if watched is not None and not watched.remove():
            _tell_lost(recorder, target)
        if is_compiled(module):
            self._watched.pop(id(module), None)
            _tell_compiled(recorder, self._name, target, "it is compiled")
            return
        watched = self._watched[id(module)] = watching.Watched(path, module)
        watched.place(recorder, self._name, by_torch=is_model(module))

    def remove(self) -> None:
        """Take all away; what somebody else put in the place of a stand-in stays, and is told."""
        for watched in self._watched.values():
            if not watched.remove():
                _tell_lost(self._recorder, f"{self._name} {watched.path}")
        _remove(self._eyes or [])


def _standing(model: Any) -> list[int]:
    """What a model is made of and what stands in for calls in it, as identities: to be compared."""
    modules = list(every_module(model))
    return [*map(id, modules), *[id(vars(one).get(STAND_IN)) for one in modules]]


def _tell_lost(recorder: Recorder, target: str) -> None:
    recorder.fault(
        target,
        "what told of its calls was taken away (`_compiled_call_impl` was set): calls since the "
        "model's last call before that began may be missing",
    )


def _tell_compiled(recorder: Recorder, model: str, target: str, what: str) -> None:
    recorder.notes.setdefault("compiled", set()).add(model)
    recorder.fault(target, f"{what}: {UNSEEN}")


def is_compiled(model: Any) -> bool:
    """Whether `model.compile()` was called, or its forward replaced by a compiled one."""
    forward = getattr(model, "forward", None)
    stands_in = getattr(model, STAND_IN, None)
    return (stands_in is not None and not is_stand_in(stands_in)) or hasattr(
        forward, "_torchdynamo_orig_callable"
    )


def is_stand_in(function: Any) -> bool:
    """Whether what stands in for a module's call is a recording's, of this one or of another."""
    return type(function) is AbsentFromCopies


def selected(
    model: Any, detail: str, layers: tuple[int, ...] | None = None
) -> Iterator[tuple[str, Any]]:
    """Modules that a level of detail hooks, by path; the model itself has the path ''."""
    if detail == "stages":
        return
    if detail == "modules":
        chosen = list(model.named_modules())
    else:
        chosen = [("", model), *_main_parts("", model)]
    for path, module in chosen:
        number = _layer_number(path)
        if layers is None or number is None or number in layers:
            yield path, module


def _layer_number(path: str) -> int | None:
    for part in path.split("."):
        if part.isdigit():
            return int(part)
    return None


def _main_parts(path: str, module: Any) -> Iterator[tuple[str, Any]]:
    """Sub-models, embeddings, rotary modules, norms, head; each layer with its larger parts."""
    for name, child in module.named_children():
        below = f"{path}.{name}" if path else name
        if _is_list(child):
            for number, layer in child.named_children():
                yield f"{below}.{number}", layer
                yield from _large_parts(f"{below}.{number}", layer)
        else:
            yield below, child
            if is_model(child) or any(_is_list(part) for part in child.children()):
                yield from _main_parts(below, child)


def _large_parts(path: str, layer: Any) -> Iterator[tuple[str, Any]]:
    """Attention, MLP and the like: children with children. Single norms and linears are not."""
    for name, child in layer.named_children():
        below = f"{path}.{name}"
        if _is_list(child):
            yield from ((f"{below}.{number}", part) for number, part in child.named_children())
        elif next(child.children(), None) is not None:
            yield below, child


def _is_list(module: Any) -> bool:
    return type(module).__name__ == "ModuleList"


def is_model(module: Any) -> bool:
    """Whether a module is a model of the library, perhaps inside another."""
    return is_model_class(type(module))


def is_model_class(kind: type) -> bool:
    """Whether a class is that of a model of the library."""
    return any(base.__name__ == _MODEL_CLASS for base in kind.__mro__)


def grad_mode() -> str:
    """Gradient mode of this thread, as torch tells it."""
    torch = sys.modules["torch"]
    if torch.is_inference_mode_enabled():
        return "inference_mode"
    return "grad" if torch.is_grad_enabled() else "no_grad"
