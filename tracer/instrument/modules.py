"""Module calls: forward hooks on the modules that the chosen detail names, and user forwards.

The two hooks are the lab's hot path: clock readings and seven integers a call. What many calls
have in common (shapes, source, call path) is described once, when it is first seen.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from tracer.instrument import measure, memory, model_state
from tracer.instrument.answering import loops
from tracer.instrument.asking import fed, vision
from tracer.instrument.hooks import InertInCopies
from tracer.instrument.installer import INSTALLER, tracing_test
from tracer.instrument.patching import IsOn, Wrap
from tracer.instrument.stages import Call, Observer, open_call
from tracer.instrument.targets import ROPE_INDEX_METHOD, ROTARY_FUNCTIONS, TARGETS
from tracer.recorder import Recorder
from tracer.rows import ModuleSlot, Signature, shape_text
from tracer.spans import ACTIVE, ThreadState

Hook = Callable[..., None]
_MODEL_CLASS: Final = "PreTrainedModel"
_MEETING: Final = threading.RLock()
_UNSEEN: Final = "modules inside a compiled forward are not seen"
_FORWARD: Final = next(one for one in TARGETS if one.observe == "modules.forward_call")


def meet(recorder: Recorder, model: Any) -> None:
    """Hook a model for this recording, once; it may have been made before the recording began."""
    with _MEETING:  # another thread's forward waits until all hooks are there
        _meet(recorder, model)


def _meet(recorder: Recorder, model: Any) -> None:
    met: set[str] = recorder.notes.setdefault("met", set())
    name = recorder.models.of(model)
    if is_compiled(model):  # perhaps only since it was met
        recorder.fault(name, f"the model is compiled: {_UNSEEN}")
    if name in met:
        return
    met.add(name)
    _count_rotations(model)
    handles: list[Any] = recorder.notes.setdefault("handles", [])
    if not handles:
        recorder.at_end.append(lambda: _remove(handles))
    if is_compiled(model):
        return
    vision.watch(recorder, model, handles)
    for path, module in selected(model, recorder.options.detail, recorder.options.layers):
        if is_compiled(module):
            recorder.fault(f"{name} {path}", f"it is compiled: {_UNSEEN}")
        else:
            handles.extend(hook_module(recorder, name, path, module))


def is_compiled(model: Any) -> bool:
    """Whether `model.compile()` was called, or its forward replaced by a compiled one."""
    forward = getattr(model, "forward", None)
    return getattr(model, "_compiled_call_impl", None) is not None or hasattr(
        forward, "_torchdynamo_orig_callable"
    )


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
    return next((int(part) for part in path.split(".") if part.isdigit()), None)


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
            if _is_model(child) or any(_is_list(part) for part in child.children()):
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


def _is_model(module: Any) -> bool:
    return _is_model_class(type(module))


def _is_model_class(kind: type) -> bool:
    return any(base.__name__ == _MODEL_CLASS for base in kind.__mro__)


def hook_module(recorder: Recorder, model: str, path: str, module: Any) -> Iterator[Any]:
    """Place the two hooks of a module; yields a handle for each, as it is placed."""
    slot = ModuleSlot(model, path, type(module).__name__)
    slot.source = recorder.places.source(type(module).forward)
    enter, leave = _hot_hooks(recorder, recorder.add_slot(slot))
    yield module.register_forward_pre_hook(enter)
    yield module.register_forward_hook(leave, with_kwargs=True, always_call=True)


def _hot_hooks(recorder: Recorder, slot: int) -> tuple[Hook, Hook]:
    """The hooks of one module. Names are bound locally: each look-up counts here."""
    tensor_class = sys.modules["torch"].Tensor
    listening, ident = recorder.listening.get, threading.get_ident
    clock, next_seq = recorder.clock, recorder.next_seq
    known: dict[Any, int] = {}
    keep_values = recorder.options.values
    is_traced = tracing_test()

    def enter(module: Any, args: tuple[Any, ...]) -> None:
        if is_traced():
            return
        state = listening(ident())
        if state is None:
            return
        seq = next_seq()
        state.frames.append((seq, state.top, slot, clock()))
        state.top = seq

    def leave(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if is_traced():
            return
        end = clock()
        state = listening(ident())
        if state is None or not state.frames:
            return
        frames = state.frames
        seq, parent, owner, start = frames.pop()
        if owner != slot:
            frames.append((seq, parent, owner, start))
            if not _unwind(state, slot):
                return
            seq, parent, _, start = frames.pop()
        state.top = parent
        try:
            given: Any = args[0] if args else kwargs
            given = given if given.__class__ is tensor_class else _first(given, tensor_class)
            made = output if output.__class__ is tensor_class else _first(output, tensor_class)
            above = frames[-1][2] if frames else -1
            # One flat key: hashing nested tuples would cost as much as the rest of the hook.
            if given is None or made is None:
                key: Any = (above, _shape(given), _shape(made))
            else:
                key = (above, given.shape, made.shape, made.dtype)
            signature = known.get(key)
            if signature is None:
                signature = known[key] = _describe(recorder, given, made, output)
            state.rows.extend((seq, parent, state.context, start, end - start, slot, signature))
            if keep_values and made is not None and not made.is_meta:
                state.values[seq] = _statistics(made)
        except Exception as error:  # a hook that raises would abort the user's forward
            recorder.fault("module hook", f"the recorder failed: {error!r}", error)
            if recorder.strict:
                raise

    return InertInCopies(enter), InertInCopies(leave)


def _shape(tensor: Any) -> Any:
    return None if tensor is None else tensor.shape


def _unwind(state: ThreadState, slot: int) -> bool:
    """Calls above ours never ended (an interrupt passed through them): write them off."""
    for depth in range(len(state.frames) - 1, -1, -1):
        if state.frames[depth][2] == slot:
            state.cut_frames(depth + 1)
            return True
    return False


def _first(value: Any, tensor_class: type) -> Any:
    """The first tensor of a tuple, dict or model output; None without one."""
    if isinstance(value, tensor_class):
        return value
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return None
    return next((one for one in value if isinstance(one, tensor_class)), None)


def _describe(recorder: Recorder, given: Any, made: Any, output: Any) -> int:
    # On an exception torch calls the hook with None while the exception is being handled.
    failed = output is None and sys.exc_info()[0] is not None
    return recorder.add_signature(
        Signature(
            None if given is None else shape_text(tuple(given.shape)),
            None if made is None else shape_text(tuple(made.shape)),
            None if made is None else measure.dtype_name(made.dtype),
            None if made is None else measure.device_name(made.device),
            recorder.places.stack(sys._getframe(2)),
            "error" if failed else "ok",
        )
    )


def _statistics(tensor: Any) -> tuple[float, float, float, int]:
    """Mean, standard deviation, largest magnitude, non-finite values; in float32, read at once."""
    torch = sys.modules["torch"]
    values = tensor.detach().float()
    finite = torch.isfinite(values)
    kept = values[finite]
    if kept.numel() == 0:
        return float("nan"), float("nan"), float("nan"), int(values.numel())
    return (
        float(kept.mean()),
        float(kept.std(correction=0)),
        float(kept.abs().max()),
        int(values.numel() - kept.numel()),
    )


def _count_rotations(model: Any) -> None:
    """Count the functions that rotate and the method that computes three-axis positions."""
    for kind in {type(module) for module in model.modules()}:
        if not _is_model_class(kind):
            continue
        home = sys.modules.get(kind.__module__)
        for name, what in ROTARY_FUNCTIONS.items():
            if home is not None and callable(vars(home).get(name)):
                INSTALLER.place(home, name, _counter(what))
        for owner in kind.__mro__:
            if ROPE_INDEX_METHOD in vars(owner):
                INSTALLER.place(owner, ROPE_INDEX_METHOD, _counter("rope_index_calls"))


def _counter(what: str) -> Wrap:
    is_traced = tracing_test()

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if is_traced():
                return original(*args, **kwargs)
            state = ACTIVE.get(threading.get_ident())
            if state is not None and is_on():
                state.counts[what] = state.counts.get(what, 0) + 1
            return original(*args, **kwargs)

        return counted

    return wrap


def forward_call(state: ThreadState, call: Call) -> Observer:
    """`PreTrainedModel.__call__`: a step of generate, a forward of the user, or an inner model."""
    model = call.args[0]
    run = state.run
    if run is not None:
        memory.first_forward(state, run.name, ended=False)  # an encoder runs ahead of the rest
    if run is not None and run.awaits_forward(model):
        run.forward_began()
        outcome = yield None
        run.forward_ended(outcome)
        memory.first_forward(state, run.name, ended=True)
        return
    if state.spans or state.frames:
        yield None
        return
    yield from _user_forward(state, call, model)


def _user_forward(
    state: ThreadState, call: Call, model: Any, *, compiled: bool | None = None
) -> Observer:
    recorder = state.recorder
    meet(recorder, model)
    now: dict[str, Any] = {}
    with recorder.guard("state of the model"):
        now = model_state.of(model)
    span = open_call(
        state,
        call,
        f"{type(model).__name__}.forward",
        "forward",
        model=recorder.models.of(model),
        grad_mode=grad_mode(),
        **now,
        compiled=is_compiled(model) if compiled is None else compiled,
    )
    name = recorder.models.of(model)
    memory.first_forward(state, name, ended=False)
    step = None
    with recorder.guard("steps"):
        step = loops.begin(state, call, model, span)
    fed.note(state, span.seq, model, loops.given_to(model, call))
    outcome = yield None
    if step is not None:
        loops.end(state, step, outcome)
    memory.first_forward(state, name, ended=True)
    state.close(span, outcome.status, keeps_graph=model_state.keeps_graph(outcome.result))
    recorder.flush_if_due(state)


def compiled_by_generate(state: ThreadState, call: Call) -> Observer:
    """`get_compiled_call`: what it gives is called in place of the model, past every wrapper."""
    model, run = call.args[0], state.run
    outcome = yield None
    if outcome.error is not None or run is None or model is not run.model:
        return
    run.is_compiled = True
    run.span.columns["compiled"] = True
    state.recorder.fault(run.name, f"generate() runs it compiled: {_UNSEEN}")
    compiled = outcome.result

    def as_a_call(_: Any, *args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    outcome.result = functools.partial(INSTALLER.observed(_FORWARD, as_a_call), model)


def compiled_by_the_user(state: ThreadState, call: Call) -> Observer:
    """A module that `torch.compile` gave: what happens in it is traced past every wrapper."""
    module = call.args[0]._orig_mod
    state.recorder.fault(type(module).__name__, f"it runs compiled: {_UNSEEN}")
    if state.spans or state.frames or not _is_model(module):
        yield None
        return
    yield from _user_forward(state, call, module, compiled=True)


def grad_mode() -> str:
    """Gradient mode of this thread, as torch tells it."""
    torch = sys.modules["torch"]
    if torch.is_inference_mode_enabled():
        return "inference_mode"
    return "grad" if torch.is_grad_enabled() else "no_grad"
