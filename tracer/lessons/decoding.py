"""One recorded answer under other settings: what each of its steps would have been chosen from.

Every step keeps the ids that it really had, so this tells what a setting does to a distribution,
not which answer another run would give. Used by `05_decode`. No torch here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tracer.analysis.replay import Link, chain_of, replay
from tracer.trace import Trace


def changed_chain(trace: Trace, **parameters: Mapping[str, Any] | None) -> list[Link]:
    """The chain of the last call with processors changed, taken out or added.

    Args:
        trace: A trace with a generate call.
        **parameters: By the class of a processor the parameters to set, or None to take it out;
            one that did not run comes last.
    """
    given = dict(parameters)
    chain = []
    for link in chain_of(trace):
        if link.class_name not in given:
            chain.append(link)
            continue
        change = given.pop(link.class_name)
        if change is not None:
            values = {**link.parameters, **change}
            chain.append(dataclasses.replace(link, parameters=values))
    added = [Link(name, dict(change)) for name, change in given.items() if change is not None]
    return [*chain, *added]


def what_if(trace: Trace, chains: Mapping[str, list[Link]]) -> pd.DataFrame:
    """Each chain run over the recorded logits of the last call.

    Args:
        trace: A trace with a generate call, recorded with `logits=True` for measured scores.
        chains: By a name of one's own.

    Returns:
        One row a chain: chain, steps, same_best (steps whose likeliest token is the one that was
        chosen), probability (of the tokens that were chosen, mean), least_probability, and basis
        (measured, or estimated on recorded candidates).
    """
    rows = []
    for name, chain in chains.items():
        steps = replay(trace, chain=chain)
        shares = np.exp(steps["replayed_logprob"].astype(float))
        rows.append(
            {
                "chain": name,
                "steps": len(steps),
                "same_best": int((steps["replayed_id"] == steps["token_id"]).sum()),
                "probability": shares.mean(),
                "least_probability": shares.min(),
                "basis": ", ".join(sorted(set(steps["basis"]))),
            }
        )
    columns = ["chain", "steps", "same_best", "probability", "least_probability", "basis"]
    return pd.DataFrame(rows, columns=columns)
