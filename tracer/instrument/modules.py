"""Which modules of a model are hooked, and when a model is met; what it is in while it runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

from tracer.instrument import rotations
from tracer.instrument.asking import vision
from tracer.instrument.hooks import AbsentFromCopies
from tracer.instrument.targets import STAND_IN
from tracer.recorder import Recorder

_MODEL_CLASS: Final = "PreTrainedModel"
_MEETING: Final = threading.RLock()
UNSEEN: Final = "modules inside a compiled forward are not seen"


def meet(recorder: Recorder, model: Any) -> None:
    """Hook a model for this recording, once; it may have been made before the recording began."""
    with _MEETING:  # another thread's forward waits until all hooks are there
        _meet(recorder, model)


def _meet(recorder: Recorder, model: Any) -> None:
    met: set[str] = recorder.notes.setdefault("met", set())
    name = recorder.models.of(model)
    if is_compiled(model):  # perhaps only since it was met
        _tell_compiled(recorder, name, name, "the model is compiled")
    if name in met:
        return
    met.add(name)
    rotations.count(model, is_model_class)
    from tracer.instrument import module_hooks  # which needs torch; a model brings it along

    handles: list[Any] = recorder.notes.setdefault("handles", [])
    if not handles:
        recorder.at_end.append(lambda: _remove(handles))
    if is_compiled(model):
        return
    vision.watch(recorder, model, handles)
    for path, module in selected(model, recorder.options.detail, recorder.options.layers):
        if is_compiled(module):
            _tell_compiled(recorder, name, f"{name} {path}", "it is compiled")
        else:
            watched = module_hooks.watch_module(
                recorder, name, path, module, by_torch=is_model(module)
            )
            handles.extend(watched)


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


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()


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
