"""What if: a recorded step chosen from with other settings, without the model.

Exact where the trace has whole rows of logits: the library's processors are run again over them, in
its order. With the settings of the run the result is the run's own. Everything before the step
stays as it was; what would have followed only the model can say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd

from tracer.analysis.generation import call_or_last
from tracer.analysis.processors import softmax
from tracer.analysis.raw_scores import decode
from tracer.analysis.replay import Link, chain_of, process, replayable_until
from tracer.trace import Trace


@dataclasses.dataclass(frozen=True, slots=True)
class _Setting:
    class_name: str
    parameter: str
    off: float  # the value with which the processor would do nothing


SETTINGS: Final[dict[str, _Setting]] = {
    "repetition_penalty": _Setting("RepetitionPenaltyLogitsProcessor", "penalty", 1.0),
    "temperature": _Setting("TemperatureLogitsWarper", "temperature", 1.0),
    "top_k": _Setting("TopKLogitsWarper", "top_k", 0),
    "top_p": _Setting("TopPLogitsWarper", "top_p", 1.0),
    "min_p": _Setting("MinPLogitsWarper", "min_p", 0.0),
}
"""Settings that can be changed after the fact, in the order in which the library applies them."""

_KEPT: Final = {"filter_value": float("-inf"), "min_tokens_to_keep": 1}
# What comes after those: others of sampling, then watermarking and normalising.
_LATER: Final = (
    "TypicalLogitsWarper",
    "EpsilonLogitsWarper",
    "EtaLogitsWarper",
    "WatermarkLogitsProcessor",
    "SynthIDTextWatermarkLogitsProcessor",
    "LogitNormalization",
)
_ORDER: Final = [setting.class_name for setting in SETTINGS.values()]


def what_if(
    trace: Trace, step: int, changes: Mapping[str, float] | None = None, call: int | None = None
) -> pd.DataFrame:
    """The distribution at a step, before the processors, as it was, and with other settings.

    Args:
        trace: A trace recorded with `logits=True`, of one sequence.
        step: Of the call; prefill is 0.
        changes: Settings of `SETTINGS` with their new values; those left out stay as they were.
        call: seq of the call; the last generate without.

    Returns:
        A row an id of the vocabulary: token_id, raw_probability, probability (as in the run),
        changed_probability. Empty where no logits of the step were recorded.
    """
    call = call_or_last(trace, call)
    kept = trace.arrow(
        "logits", ["dtype", "values"], [("call", "==", call), ("step", "==", step)]
    ).to_pylist()
    if not kept or kept[0]["values"] is None:
        return pd.DataFrame(columns=_COLUMNS)
    raw = decode(kept[0]["values"], kept[0]["dtype"])
    ids = ids_before(trace, step, call)
    chain = chain_of(trace, call)
    own = softmax(process(ids, raw, chain))
    changed = softmax(process(ids, raw, chain_with(chain, changes))) if changes else own
    return pd.DataFrame(
        {
            "token_id": range(len(raw)),
            "raw_probability": softmax(raw),
            "probability": own,
            "changed_probability": changed,
        }
    )


_COLUMNS: Final = ["token_id", "raw_probability", "probability", "changed_probability"]


def settings_of(trace: Trace, call: int | None = None) -> dict[str, float]:
    """The changeable settings as they were in a call; one that did nothing has that value."""
    links = {link.class_name: link for link in chain_of(trace, call)}
    return {
        name: float(links[setting.class_name].parameters.get(setting.parameter, setting.off))
        if setting.class_name in links
        else setting.off
        for name, setting in SETTINGS.items()
    }


def first_unknown(trace: Trace, call: int | None = None) -> str | None:
    """Class of the first processor that can't be run again, before which what-if ends."""
    chain = chain_of(trace, call)
    index = replayable_until(chain)
    return None if index is None else chain[index].class_name


def chain_with(chain: Sequence[Link], changes: Mapping[str, float]) -> list[Link]:
    """A chain with other settings: links changed, taken out, or put where the library has them."""
    changed = list(chain)
    for name, value in changes.items():
        setting = SETTINGS[name]
        at = next(
            (n for n, link in enumerate(changed) if link.class_name == setting.class_name), None
        )
        old = {} if at is None else dict(changed.pop(at).parameters)
        if value == setting.off:
            continue
        place = _place(changed, setting.class_name) if at is None else at
        typed = int(value) if name == "top_k" else float(value)
        changed.insert(place, Link(setting.class_name, _KEPT | old | {setting.parameter: typed}))
    return changed


def ids_before(trace: Trace, step: int, call: int | None = None) -> list[int]:
    """The sequence that the processors of a step were given, of a call with one sequence."""
    call = call_or_last(trace, call)
    columns = ["index", "token_id", "origin", "position"]
    tokens = trace.arrow("tokens", columns, [("call", "==", call)])
    prompt = [
        row["token_id"]
        for row in tokens.sort_by("index").to_pylist()
        if row["origin"] != "generated" and row["position"] is not None
    ]
    where = [("call", "==", call), ("step", "<", step)]
    chosen = trace.arrow("choices", ["step", "token_id"], where).sort_by("step")
    return [*prompt, *chosen["token_id"].to_pylist()]


def _place(chain: Sequence[Link], class_name: str) -> int:
    later = {*_ORDER[_ORDER.index(class_name) + 1 :], *_LATER}
    return next((n for n, link in enumerate(chain) if link.class_name in later), len(chain))
