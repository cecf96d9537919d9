"""What the recorder says that it costs beside what it costs: the manifest against paired runs.

    python -m benchmarks self_report [--quick]

On the demo model, whose steps are so short that the recorder's share is far above the noise.
"""

from __future__ import annotations

import functools
from typing import Any

from transformers import AutoModelForImageTextToText

import tracer
from benchmarks.figures import Figure, figure
from benchmarks.generating import DETAILS, NEW_TOKENS, answering
from benchmarks.pairs import timed
from tracer.demo import checkpoint_folder

ROUNDS = 9
NAMES = ("stages", "layers", "effects", "modules")
TOO_MUCH = 1.5


def measure(quick: bool) -> list[Figure]:
    """For each detail the share told, the share measured, and the one over the other."""
    model = AutoModelForImageTextToText.from_pretrained(checkpoint_folder())
    rounds, tokens = (1, 2) if quick else (ROUNDS, NEW_TOKENS)
    answer = answering(model, tokens)
    found: list[Figure] = []
    for name in NAMES:
        found += _of_detail(name, answer, DETAILS[name][0], rounds)
    return found


def _of_detail(name: str, answer: Any, options: dict[str, Any], rounds: int) -> list[Figure]:
    told, real = [], []
    for _ in range(rounds):
        alone = timed(answer)[1]
        recording = tracer.record(**options)
        recorded = timed(answer, functools.partial(_in, recording))[1]
        told.append(recording.trace.manifest["recorder"]["share"])
        real.append(max(0.0, 1 - alone / recorded))
    factors = [_factor(one, other) for one, other in zip(told, real, strict=True)]
    return [
        figure(f"self-report, {name}, told", "share", told),
        figure(f"self-report, {name}, measured", "share", real),
        figure(f"self-report, {name}, apart by", "x", factors, budget=TOO_MUCH),
    ]


def _in(recording: Any) -> Any:
    return recording


def _factor(one: float, other: float) -> float:
    """How many times the larger is the smaller; a share below a thousandth counts as that."""
    low, high = sorted((max(one, 1e-3), max(other, 1e-3)))
    return high / low
