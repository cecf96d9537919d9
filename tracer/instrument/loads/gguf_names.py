"""Tensors of a GGUF file, which the library unpacks whole and under names of its own.

Its reader asks for a table of names (`get_gguf_hf_weights_map`, modeling_gguf_pytorch_utils.py,
4.51.3 to 5.24.0) and unpacks by it; what it turns round on the way is not observed. Architectures
that generation 5 reads lazily keep the file's names and need none of this.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from tracer.checkpoint import Header
from tracer.formats.entries import DTYPES
from tracer.instrument.installer import release
from tracer.instrument.loads.load_notes import Load, Plan
from tracer.instrument.loads.seen import Seen, told
from tracer.instrument.stages import Call, Observer, span
from tracer.instrument.targets import FIVE
from tracer.spans import Span, ThreadState

_EXPERT: Final = re.compile(r"experts\.\d+\.")
CUT: Final = "Split"
NO_PLACE: Final = "the library's table of GGUF names has no parameter for it"


@told
def mapped(load: Load, seen: Seen) -> None:
    """`get_gguf_hf_weights_map`: it asks itself for each part; the whole's table comes last."""
    load.gguf_names = dict(seen.result)


def open_build(state: ThreadState, owner: Any, what: str) -> Span:
    """A span of a class that builds a model; what asks the model first will close it."""
    return state.open(
        "spans",
        "meta_init",
        f"{owner.__name__} {what}",
        function=f"{owner.__name__}.__init__",
        source=state.recorder.places.source(owner.__init__),
        stack=state.recorder.places.stack(sys._getframe()),
    )


def files_found(load: Load) -> None:
    """In generation 4 a model is now built on meta for nothing but its parameters' names."""
    is_first = load.built_class is not None and load.model is None and load.names_span is None
    if load.arguments.get("gguf_file") and is_first and release() < FIVE:
        load.names_span = open_build(load.state, load.built_class, "built on meta for its names")


def unpacked(state: ThreadState, call: Call) -> Observer:
    """`load_gguf_checkpoint`: the file parsed, for configuration or tokenizer, names or weights."""
    load = state.load
    if load is not None and load.names_span is not None:
        state.close(load.names_span)
        load.names_span = None
    yield from span(state, call)


def match(load: Load, header: Header) -> None:
    """Which of the file's tensors went into each source that the library made of them."""
    names = load.gguf_names
    for key in header.tensors:
        name = target_of(names, key)
        if name is not None:
            load.packed.setdefault(name, []).append(key)


def target_of(names: Mapping[str, str], key: str) -> str | None:
    """The name under which the library unpacks a tensor; of merged experts without a suffix."""
    return names.get(key) or names.get(key.removesuffix(".weight"))


def in_file(load: Load, key: str) -> list[str]:
    """The tensors of the file that a source was made of: one of its own name, but for GGUF."""
    if not load.packed:
        return [key]
    # Generation 4 cuts a file's experts, which are one tensor, into one for each.
    return load.packed.get(key) or load.packed.get(_EXPERT.sub("experts.", key)) or [key]


def plan(load: Load, key: str, made: Plan) -> None:
    """Note where a source goes, for each tensor of the file that it was made of."""
    keys = in_file(load, key)
    header = load.headers.get(load.file_of.get(keys[0], "")) if load.packed else None
    for one in keys:
        known = load.plans.get(one)
        if header is not None and one in header.tensors:
            steps = _unpacking(header, keys)
            if known is not None and known.param != made.param:
                load.parts.setdefault(known.param, [known.param]).append(made.param)
                known.operations = [step for step in known.operations if step != CUT] + [CUT]
                continue
            load.plans[one] = Plan(made.param, None, "GGUF's names", [*steps, *made.operations])
        else:
            load.plans[one] = made


def _unpacking(header: Header, keys: list[str]) -> list[str]:
    """What is known to be done with a file's tensors: blocks are unpacked, several merged."""
    codes = dict.fromkeys(header.tensors[key].dtype for key in keys)
    steps = [f"Dequantize({code})" for code in codes if code not in DTYPES]
    return steps if len(keys) == 1 else [*steps, "Merge"]
