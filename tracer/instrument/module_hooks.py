"""What is told of each module's call: the lab's hot path, run for every module of every forward.

Between two modules the weights of one go through the processor's caches, so what is touched here is
cold each time: what counts is how many things are looked at, and how much memory is taken anew. A
call takes two clock readings and leaves one tuple; what calls from one place have in common is kept
once and looked up when the place changes; all else waits until rows are written.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch

from tracer.instrument import graphs, measure, module_arguments
from tracer.instrument.hooks import AbsentFromCopies
from tracer.instrument.targets import STAND_IN
from tracer.recorder import Recorder
from tracer.rows import INTERRUPTED, Circumstances, Frame
from tracer.spans import ThreadState

# Of this file, not of each module: one that every call finds where the call before it did.
_ident: Final = threading.get_ident
_is_traced: Final = torch.compiler.is_dynamo_compiling
_graph_of_trace: Final = torch._C._get_tracing_state
_Tensor: Final = torch.Tensor

_NOTHING: Final = Circumstances()
_FAILED: Final = object()
"""What a call made that raised an exception."""
_CALL_OF_TORCH: Final = torch.nn.Module.__call__.__code__
_holders: Final = sys.getrefcount


class ModuleWatch:
    """What the calls of one module need, side by side, not in scattered cells."""

    __slots__ = (
        *("recorder", "slot", "module", "listening", "clock", "next_seq", "values"),
        *("known", "last", "stand_in"),
    )

    def __init__(self, recorder: Recorder, slot: int, module: Any) -> None:
        self.recorder = recorder
        self.slot = slot
        self.module: Callable[[], Any] = weakref.ref(
            module
        )  # its own stand-in must not keep it alive
        self.listening = recorder.listening
        self.clock = recorder.clock
        self.next_seq = recorder.next_seq
        self.values = recorder.options.values
        self.known: dict[Any, Circumstances] = {}
        # Place and slot of the module around at the last call, and what calls from there share;
        # at first a place that no call is made from.
        self.last: tuple[Any, int, Circumstances] = (self, -1, _NOTHING)
        self.stand_in: Any = None

    def called(self, *args: Any, **kwargs: Any) -> Any:
        """What stands in for the module's call: does what torch would, and tells of it."""
        if _is_traced():
            return self.module()._call_impl(*args, **kwargs)
        module = self.module()
        if module is None or _holders(self.stand_in) != _USUAL_HOLDERS:
            module = self._called_module()
            if module is not self.module():
                return module._call_impl(*args, **kwargs)
        call = module._call_impl  # asked for each time: somebody may have changed it
        if (state := self.listening.get(_ident())) is None:
            return call(*args, **kwargs)
        if _graph_of_trace() is not None:
            self._tell_traced()
            return call(*args, **kwargs)
        seq = self.next_seq()
        frame = (seq, state.top, self.slot, self.clock())
        state.frames.append(frame)
        state.top = seq
        try:
            output = call(*args, **kwargs)
        except Exception:  # what is no Exception leaves its frame to the span that it ends
            self.ended(state, frame, self.clock(), args, kwargs, _FAILED)
            raise
        self.ended(state, frame, self.clock(), args, kwargs, output)
        return output

    def _called_module(self) -> Any:
        """The module that is called, which may not be the one that this stands in for.

        Who copies a module by copying its attributes copies the stand-in too; out of such a copy it
        is taken here, before the copy calls itself.
        """
        caller = sys._getframe(2)
        if caller.f_code is not _CALL_OF_TORCH:
            return self.module()
        called = caller.f_locals["self"]
        stand_in = vars(called).get(STAND_IN)
        is_ours = type(stand_in) is AbsentFromCopies and stand_in.args[0] is self
        if is_ours and called is not self.module():
            del vars(called)[STAND_IN]
        return called

    def _tell_traced(self) -> None:
        """Sizes are tensors of the graph now: to ask for one would write into the user's graph."""
        self.recorder.fault("torch.jit.trace", "calls of modules are not told while it traces them")

    def enter(self, module: Any, args: tuple[Any, ...]) -> None:
        """Torch's hook before a call."""
        if _is_traced():
            return
        state = self.listening.get(_ident())
        if state is None:
            return
        if _graph_of_trace() is not None:
            self._tell_traced()
            return
        seq = self.next_seq()
        state.frames.append((seq, state.top, self.slot, self.clock()))
        state.top = seq

    def leave(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Torch's hook after a call, or while the exception is handled that ended it."""
        if _is_traced():
            return
        end = self.clock()
        state = self.listening.get(_ident())
        if state is None:
            return
        made = _FAILED if output is None and sys.exc_info()[0] is not None else output
        for frame in reversed(state.frames):
            if frame[2] == self.slot:
                self.ended(state, frame, end, args, kwargs, made)
                return

    def ended(
        self,
        state: ThreadState,
        frame: Frame,
        end: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        """The row of a call that has ended, well or not."""
        frames = state.frames
        try:
            if not (frames and frames[-1] is frame) and not _unwind(state, frame):
                return
            frames.pop()
            seq, state.top = frame[:2]
            given = args[0] if args else None
            if given.__class__ is not _Tensor:
                given = first_tensor(given if args else kwargs)
            made = output if output.__class__ is _Tensor else first_tensor(output)
            above = frames[-1][2] if frames else -1
            last = self.last
            if last[0] is not state.place or last[1] != above or given is None or made is None:
                last = self._look(state, above, seq, args, kwargs, made, output)
            took = None if given is None else given.shape
            gave, dtype = (None, None) if made is None else (made.shape, made.dtype)
            # One pair for equal ones: what many rows keep, Python's collector would walk through.
            try:
                shapes = state.shapes.setdefault((took, gave), (took, gave))
            except TypeError:  # an export's sizes are symbols, which have no number
                shapes = (None, None)
            state.rows.append((frame, state.context, end, shapes, dtype, last[2]))
            if self.values and made is not None:
                self._tell_values(state, seq, made)
        except BaseException as error:
            _cut_short(state, frame)
            if not isinstance(error, Exception):  # Ctrl-C is the user's
                raise
            self.recorder.failed("module hook", error)  # raised, it would abort the forward

    def _tell_values(self, state: ThreadState, seq: int, made: Any) -> None:
        if graphs.is_drawn():
            self.recorder.fault("values of modules", graphs.UNREAD)
        elif not graphs.is_without_values(made):
            with graphs.unseen():
                state.values[seq] = _statistics(made)

    def _look(
        self,
        state: ThreadState,
        above: int,
        seq: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        made: Any,
        output: Any,
    ) -> tuple[Any, int, Circumstances]:
        """What a call shares with others from the same place; its path is walked for the first."""
        status = "error" if output is _FAILED else "ok"
        key = (state.place, above, made is None, status)
        if key not in self.known:
            arguments = module_arguments.describe(self.module(), args, kwargs)
            returned = None if output is _FAILED else output
            state.arguments[seq] = arguments, module_arguments.of(returned)
        # Where nobody says whence the model was called, each call is looked at.
        found = None if state.place is None else self.known.get(key)
        if found is None:
            stack = self.recorder.places.stack(sys._getframe(2), state.reached)
            device = None if made is None else measure.device_name(made.device)
            found = self.known[key] = Circumstances(stack, device, status)
        last = (state.place or self, above, found)
        if made is not None and status == "ok":
            self.last = last
        return last


def _cut_short(state: ThreadState, frame: Frame) -> None:
    """A call whose row was not finished is told as one whose end nobody saw."""
    if _unwind(state, frame):
        state.frames.pop()
    state.top = frame[1]
    if not state.rows or state.rows[-1][0] is not frame:
        state.rows.append((frame, state.context, None, (None, None), None, INTERRUPTED))


def _unwind(state: ThreadState, frame: Frame) -> bool:
    """Write off the calls above ours, through which an interrupt passed; False if ours is gone."""
    for depth in range(len(state.frames) - 1, -1, -1):
        if state.frames[depth] is frame:
            state.cut_frames(depth + 1)
            return True
    return False


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


def _usual_holders() -> int:
    """How often a stand-in is referred to while it is called, if its module has no copy."""
    counts: list[int] = []

    class Probe:
        """Asks as `ModuleWatch` does."""

        __slots__ = ("stand_in",)
        stand_in: Any

        def called(self) -> None:
            counts.append(_holders(self.stand_in))

    module, probe = torch.nn.Module(), Probe()
    stand_in = probe.stand_in = AbsentFromCopies(Probe.called, probe)
    vars(module)[STAND_IN] = stand_in
    module()
    return counts[0]


_USUAL_HOLDERS: Final = _usual_holders()
"""More of them mean that a copy of the module's attributes has it too, or a stranger."""
