"""The two hooks of a module: the lab's hot path, run for every module of every forward.

Between two modules the weights of one go through the processor's caches, so what a hook touches is
cold each time: what counts is how many things it looks at, and how much memory it takes anew. It
takes two clock readings; what many calls have in common (call path, shapes, dtype, device) is kept
once and compared, and looked up when it changes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

import torch

from tracer.instrument import measure, module_arguments
from tracer.instrument.hooks import InertInCopies
from tracer.recorder import Recorder
from tracer.rows import Circumstances, Frame, ModuleSlot
from tracer.spans import ThreadState

# Of this file, not of each module: one that every call finds where the call before it did.
_ident: Final = threading.get_ident
_is_traced: Final = torch.compiler.is_dynamo_compiling
_Tensor: Final = torch.Tensor

_NOTHING: Final = Circumstances()

_Known = tuple[Any, int, Any, Any, Any, Circumstances]
"""Place, slot of the module around, dtype of the output, shapes of input and output, and what calls
like that share."""
_Called = tuple[Any, tuple[Any, ...], dict[str, Any], Any]
"""A module, what it was given by position and by keyword, and what it made."""


def hook_module(recorder: Recorder, model: str, path: str, module: Any) -> Iterator[Any]:
    """Place the two hooks of a module; yields a handle for each, as it is placed."""
    slot = ModuleSlot(model, path, type(module).__name__)
    slot.source = recorder.places.source(type(module).forward)
    hooks = ModuleHooks(recorder, recorder.add_slot(slot))
    with_values = recorder.options.values
    leave = ModuleHooks.leave_with_values if with_values else ModuleHooks.leave
    # The function and its object: to call a bound method would be one more step.
    yield module.register_forward_pre_hook(InertInCopies(ModuleHooks.enter, hooks))
    # `always_call` and keywords cost nothing in torch; without the first an error would stay open.
    leaving = InertInCopies(leave, hooks)
    yield module.register_forward_hook(leaving, with_kwargs=True, always_call=True)


class ModuleHooks:
    """The hooks of one module; what they need stands side by side, not in scattered cells."""

    __slots__ = ("clock", "known", "last", "listening", "next_seq", "recorder", "slot")

    def __init__(self, recorder: Recorder, slot: int) -> None:
        self.recorder = recorder
        self.slot = slot
        self.listening = recorder.listening
        self.clock = recorder.clock
        self.next_seq = recorder.next_seq
        self.known: dict[Any, Circumstances] = {}
        # A place that no call was made from.
        self.last: _Known = (self, -1, None, None, None, _NOTHING)

    def enter(self, module: Any, args: tuple[Any, ...]) -> None:
        """The module is called."""
        if _is_traced():
            return
        state = self.listening.get(_ident())
        if state is None:
            return
        seq = self.next_seq()
        state.frames.append((seq, state.top, self.slot, self.clock()))
        state.top = seq

    def leave(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """The module has returned, or failed: torch then calls with None."""
        if _is_traced():
            return
        end = self.clock()
        state = self.listening.get(_ident())
        if state is None or not (frames := state.frames):
            return
        frame = frames.pop()
        if frame[2] != self.slot:
            ours = _unwind(state, frame, self.slot)
            if ours is None:
                return
            frame = ours
        seq, parent, slot, start = frame
        state.top = parent
        try:
            given = args[0] if args else None
            if given.__class__ is not _Tensor:
                given = first_tensor(given if args else kwargs)
            made = output if output.__class__ is _Tensor else first_tensor(output)
            if given is None or made is None:
                self._without_tensors(
                    state, frame, end, given, made, (module, args, kwargs, output)
                )
                return
            above = frames[-1][2] if frames else -1
            took, gave, dtype, last = given.shape, made.shape, made.dtype, self.last
            if (
                last[0] is not state.place
                or last[1] != above
                or last[2] is not dtype
                or last[3] != took
                or last[4] != gave
            ):
                called = module, args, kwargs, output
                alike = self._circumstances(state, above, made, seq, called)
                shared = alike.with_shapes(took, gave)
                # Where nobody says whence the model was called, each call is looked at.
                last = self.last = (state.place or self, above, dtype, took, gave, shared)
            state.rows.append((seq, parent, slot, start, state.context, end, last[5]))
        except Exception as error:  # a hook that raises would abort the user's forward
            self._failed(error)

    def leave_with_values(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """The same, and statistics of what the module made."""
        if _is_traced():
            return
        state = self.listening.get(_ident())
        if state is None:
            return
        before = len(state.rows)
        self.leave(module, args, kwargs, output)
        try:
            made = first_tensor(output)
            if len(state.rows) > before and made is not None and not made.is_meta:
                state.values[state.rows[-1][0]] = _statistics(made)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.recorder.fault("module hook", f"the recorder failed: {error!r}", error)
        if self.recorder.strict:
            raise error

    def _circumstances(
        self,
        state: ThreadState,
        above: int,
        made: Any,
        seq: int,
        called: _Called,
        status: str = "ok",
    ) -> Circumstances:
        """What a call shares with others from the same place; its path is walked for the first."""
        dtype = None if made is None else made.dtype
        key = (state.place, above, dtype, status)
        if key not in self.known:
            module, args, kwargs, output = called
            arguments = module_arguments.describe(module, args, kwargs)
            state.arguments[seq] = arguments, module_arguments.of(output)
        found = None if state.place is None else self.known.get(key)
        if found is None:
            found = self.known[key] = Circumstances(
                self.recorder.places.stack(sys._getframe(2), state.reached),
                measure.dtype_name(dtype),
                None if made is None else measure.device_name(made.device),
                status,
            )
        return found

    def _without_tensors(
        self, state: ThreadState, frame: Frame, end: int, given: Any, made: Any, called: _Called
    ) -> None:
        """The row of a call that was given no tensor or made none, perhaps because it failed."""
        # On an exception torch calls the hook while the exception is being handled.
        failed = called[3] is None and sys.exc_info()[0] is not None
        above = state.frames[-1][2] if state.frames else -1
        status = "error" if failed else "ok"
        found = self._circumstances(state, above, made, frame[0], called, status)
        took, gave = (None if one is None else one.shape for one in (given, made))
        state.rows.append((*frame, state.context, end, found.with_shapes(took, gave)))


def _unwind(state: ThreadState, frame: Frame, slot: int) -> Frame | None:
    """Calls above ours never ended (an interrupt passed through them): write them off."""
    state.frames.append(frame)
    for depth in range(len(state.frames) - 1, -1, -1):
        if state.frames[depth][2] == slot:
            state.cut_frames(depth + 1)
            return state.frames.pop()
    return None


def first_tensor(value: Any) -> Any:
    """The first tensor of a tuple, dict or model output; None without one."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return value if isinstance(value, _Tensor) else None
    for one in value:
        # By class first: to ask torch whether something is an instance goes a long way round.
        if one.__class__ is _Tensor or isinstance(one, _Tensor):
            return one
    return None


def _statistics(tensor: Any) -> tuple[float, float, float, int]:
    """Mean, standard deviation, largest magnitude, non-finite values; in float32, read at once."""
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
