"""The quantiser of a load: its name, its conversions, and what it gave values to by itself.

Since generation 5 its operations stand among the library's conversions (core_model_loading.py,
5.24). Some of them set what they make where no call is observed; before that generation a quantiser
sets everything itself, and nothing of it is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracer.instrument.loads.load_notes import Load
from tracer.instrument.loads.named_tensors import Named, named_tensors
from tracer.instrument.stages import Call, Observer, open_span
from tracer.instrument.targets import QUANTISER
from tracer.spans import ThreadState


def method_of(quantiser: Any) -> str:
    """Name of a quantiser's method, as configurations write it."""
    method = quantiser.quantization_config.quant_method
    return str(getattr(method, "value", method))


def kept_by(model: Any) -> str | None:
    """Method of the quantiser that a model keeps; None for one that is not kept quantised."""
    quantiser = getattr(model, QUANTISER, None)
    return None if quantiser is None else method_of(quantiser)


def conversions(state: ThreadState, call: Call) -> Observer:
    """`get_model_conversion_mapping`: a model that is unpacked as it is loaded forgets its own."""
    span = open_span(state, call)
    outcome = yield None
    load, quantiser = state.load, call.argument(2, "hf_quantizer")
    if load is not None and outcome.error is None and quantiser is not None:
        load.conversions, load.quantiser = list(outcome.result), method_of(quantiser)
    state.close(span, outcome.status)


def made_so_far(load: Load, model: Any) -> set[int]:
    """Identities of what has values already and came out of no file, where a quantiser is at work.

    Anything else that is to get values on the way is given new memory for them.
    """
    return set() if load.quantiser is None else {id(one.tensor) for one in unread(load, model)}


def unread(load: Load, model: Any) -> Iterator[Named]:
    """What is not on meta and was not set from a file."""
    for each in named_tensors(model, besides=load.placed):
        if each.tensor.device.type != "meta":
            yield each
