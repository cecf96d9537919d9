"""Loads in several threads at once, and what they leave changed in the process.

While a class builds itself the library puts stand-ins into torch and into its own classes, for all
threads, and then puts back what it had found. Of two loads that overlap the second finds the
first one's stand-ins, puts them back, and they stay: later models have no values, or no ties.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tracer.instrument import building
from tracer.instrument.loads.load_notes import Load
from tracer.instrument.measure import dtype_name
from tracer.instrument.targets import PUT_ASIDE
from tracer.schema import DEFAULT_DTYPE
from tracer.spans import ThreadState

_QUIET = "process_when_quiet"


def begin(state: ThreadState, load: Load) -> Load | None:
    """Make a load the thread's innermost one; gives the one round it, if there is one."""
    recorder = state.recorder
    with building.LOCK:  # the lab builds no class meanwhile
        outer: Load | None = state.load
        state.load = load
        if outer is None and not building.others_load():
            recorder.notes[_QUIET] = now = _process()
            for name, stand_in in now.items():
                if name != DEFAULT_DTYPE:
                    recorder.fault(name, _found(load, name, stand_in))
    return outer


def end(state: ThreadState, load: Load, outer: Load | None) -> None:
    """Give the thread back to the load round this one; of the last one tell what it left."""
    state.load = outer
    before = state.recorder.notes.get(_QUIET)
    if outer is not None or before is None or building.others_load():
        return
    for name, value in _process().items():
        if before.get(name) != value:
            state.recorder.fault(name, _left(load, name, value, before.get(name)))


def _process() -> dict[str, str]:
    """What is changed in the process now, and its default dtype."""
    torch = sys.modules["torch"]
    return {DEFAULT_DTYPE: str(dtype_name(torch.get_default_dtype())), **dict(_stand_ins())}


def _stand_ins() -> Iterator[tuple[str, str]]:
    for name, one in PUT_ASIDE.items():
        value: Any = sys.modules.get(one.module)
        for step in one.path.split("."):
            value = getattr(value, step, None)
        said = value is False if one.stand_in == "False" else getattr(value, "__qualname__", "")
        if said is True or (said and str(said).endswith(one.stand_in)):
            yield name, one.stand_in


def _found(load: Load, name: str, stand_in: str) -> str:
    return (
        f"it was {stand_in} as the load of call {load.call} began: {PUT_ASIDE[name].effect}. Loads "
        "that overlap in several threads leave it so for good; a block of the user's own round the "
        "load, such as init_empty_weights(), does while it lasts"
    )


def _left(load: Load, name: str, value: str, before: str | None) -> str:
    if name == DEFAULT_DTYPE:
        what = f"it was {before} and is {value} since the load of call {load.call}"
    else:
        effect = PUT_ASIDE[name].effect
        what = f"the load of call {load.call} ended and left it as {value}: {effect}"
    return f"{what}. Loads overlapped in several threads; each put back what another had set"
