"""Rules on tied parameters, on those without values, and on values compared with the file."""

from __future__ import annotations

import re
from typing import Final

from tracer.diagnosis.at_once import emptied_loads
from tracer.diagnosis.finding import Found, Untold, rows_of
from tracer.diagnosis.placed import model_title, other_names, placed_by_model
from tracer.diagnosis.rules import Answers, rule
from tracer.trace import Trace

_TIES: Final = "huggingface/transformers#3799, huggingface/transformers#26173"
_OWN_STORAGE: Final = "yet it has its own storage"
_THEN_TIED: Final = re.compile(r"then tied to (\S+)")


@rule("weights_differ", "fatal", "trace")
def weights_differ(trace: Trace) -> Answers:
    """Live values that are not those of the file, as the recording compared them."""
    for model, placed in placed_by_model(trace):
        different = placed[placed["verified"] == "different"]
        if len(different):
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(different),
                    "compared": int(placed["verified"].isin(["equal", "different"]).sum()),
                    "first": different["param"].iloc[0],
                },
                rows_of("placements", different, "verified", "verified_because", "sources"),
            )
        elif not placed["verified"].isin(["equal"]).any():
            yield Untold("verify_weights")


@rule("ties_undone", "warning", "trace", _TIES)
def ties_undone(trace: Trace) -> Answers:
    """Parameters that the class ties, and that have a storage each."""
    for model, placed in placed_by_model(trace):
        apart = placed[placed["because"].fillna("").str.contains(_OWN_STORAGE, regex=False)]
        if len(apart):
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(apart),
                    "first": apart["param"].iloc[0],
                },
                rows_of("placements", apart, "origin", "because", "sources"),
            )


@rule("tie_overwrote", "warning", "trace", _TIES)
def tie_overwrote(trace: Trace) -> Answers:
    """A tensor of the file that was set and then lost, since its parameter was tied to another."""
    held = trace["checkpoint_tensors"]
    held = held[held["because"].fillna("").str.contains("then tied to ", regex=False)]
    for model, own in held.groupby("model", sort=False):
        targets = own["because"].str.extract(_THEN_TIED)[0]
        placed = trace["placements"]
        placed = placed[(placed["model"] == model) & placed["param"].isin(own["key"])]
        if (placed["verified"] == "equal").all() and len(placed) == len(own):
            continue  # both names held the same values: nothing was lost
        if not placed["verified"].isin(["equal", "different"]).any():
            yield Untold("verify_weights")
            continue
        yield Found(
            {
                "model": model_title(trace, model),
                "count": len(own),
                "first": own["key"].iloc[0],
                "target": targets.iloc[0],
            },
            rows_of("checkpoint_tensors", own, "fate", "because")
            + rows_of("placements", placed, "origin", "verified", "verified_because"),
        )


@rule("left_on_meta", "fatal", "trace", "huggingface/transformers#38870")
def left_on_meta(trace: Trace) -> Answers:
    """Parameters and buffers without data that are not offloaded either."""
    explained = emptied_loads(trace)
    for model, placed in placed_by_model(trace):
        empty = placed[(placed["residence"] == "meta") & ~placed["call"].isin(explained)]
        if len(empty):
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(empty),
                    "whole": len(placed),
                    "first": empty["param"].iloc[0],
                },
                rows_of("placements", empty, "kind", "origin", "because", "residence"),
            )


@rule("buffers_unwritten", "fatal", "trace", "huggingface/transformers#48892")
def buffers_unwritten(trace: Trace) -> Answers:
    """Tensors with memory that nobody wrote: finite, wrong, and different in each run."""
    for model, placed in placed_by_model(trace):
        garbage = placed[(placed["origin"] == "unwritten") & (placed["residence"] != "meta")]
        # Release 4.51 leaves some that are missing so: another name explains them better.
        garbage = garbage[~garbage["param"].isin(other_names(trace, model, placed).pairs)]
        if len(garbage):
            yield Found(
                {
                    "model": model_title(trace, model),
                    "count": len(garbage),
                    "first": garbage["param"].iloc[0],
                },
                rows_of("placements", garbage, "kind", "origin", "because", "shape"),
            )
