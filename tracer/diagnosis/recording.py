"""Rules on the recording itself: modules that it could not see, kernels, its own cost."""

from __future__ import annotations

import json
from typing import Any, Final

from tracer.diagnosis.finding import Found, Severity, cells, rows_of
from tracer.diagnosis.placed import model_title
from tracer.diagnosis.rules import Answers, rule
from tracer.trace import Trace

_COMPILED: Final = "pytorch/pytorch#117758, pytorch/pytorch#115750"
_EAGER: Final = "huggingface/transformers#30978, huggingface/transformers#31990"
_BUDGET_SHARE: Final = 0.1
_BUDGET_NS: Final = 1_000_000_000
_TOY_VALUES: Final = 10_000_000
_TOY_BUDGET_NS: Final = 30_000_000_000
"""A share matters where somebody waits for it: for a second of a real model's run. A toy's forward
is so short that any look at it is a large share, and a busy machine makes seconds of it; there only
the wait itself counts, of half a minute or more."""


@rule("modules_hidden", "note", "trace", _COMPILED)
def modules_hidden(trace: Trace) -> Answers:
    """Compiled forwards, inside which no module was seen."""
    if trace.manifest.get("options", {}).get("detail") == "stages":
        return
    calls, faults = trace["calls"], trace["faults"]
    faults = faults[faults["reason"].fillna("").str.contains("compiled", regex=False)]
    # One layer may be compiled alone; its fault names the model first, then the layer.
    in_parts = calls["model"].isin(faults["target"].str.split(" ").str[0])
    in_parts &= calls["kind"].isin(["generate", "forward"])
    compiled = calls[calls["compiled"].fillna(False).astype(bool) | in_parts]
    for model, own in compiled.groupby("model", sort=False, dropna=False):
        yield Found(
            {"model": model_title(trace, model), "count": len(own)},
            rows_of("calls", own, "name", "compiled", "duration_ns")
            + rows_of("faults", faults, "target", "reason"),
        )


@rule("eager_attention", "note", "trace", _EAGER)
def eager_attention(trace: Trace) -> Answers:
    """The eager kernel runs although nothing in the recording took its weights."""
    settings = trace["settings"]
    chosen = settings[
        (settings["setting"] == "attn_implementation") & (settings["effective"] == '"eager"')
    ]
    calls = trace["calls"]
    for row in chosen.itertuples():
        runs = calls[(calls["model"] == row.model) & calls["kind"].isin(["generate", "forward"])]
        # A class without another kernel has eager by default, and a forward's outputs are not told.
        if row.origin == "library" or runs.empty or (runs["kind"] == "forward").any():
            continue
        outputs = settings[(settings["setting"] == "output_attentions")]
        outputs = outputs[outputs["call"].isin(runs["seq"])]
        if outputs["effective"].map(_is_true).any():
            continue
        severity: Severity = "note" if row.origin == "call" else "warning"
        yield Found(
            {"model": model_title(trace, row.model), "origin": row.origin, "count": len(runs)},
            rows_of("settings", chosen[chosen["model"] == row.model], "effective", "origin")
            + rows_of("settings", outputs, "effective", "origin"),
            severity,
        )


@rule("recorder_costly", "warning", "trace")
def recorder_costly(trace: Trace) -> Answers:
    """A recording that took a good part of the run for itself."""
    cost = trace.manifest.get("recorder") or {}
    share, own = cost.get("share"), cost.get("own_spans_ns") or 0
    own += (cost.get("module_calls") or 0) * (cost.get("module_call_ns") or 0)
    options = trace.manifest.get("options", {})
    asked = [name for name in ("values", "logits", "verify_weights") if options.get(name)]
    is_toy = not (trace["models"]["parameters"].fillna(0) >= _TOY_VALUES).any()
    least = _TOY_BUDGET_NS if is_toy else _BUDGET_NS
    if share is None or share < _BUDGET_SHARE or own < least:
        return
    yield Found(
        {
            "share": f"{100 * share:.0f} %",
            "own_ns": own,
            "detail": options.get("detail"),
            "options": asked or None,
        },
        (cells("manifest", {"field": "recorder"}, **cost),),
    )


def _is_true(text: Any) -> bool:
    return isinstance(text, str) and json.loads(text) is True
