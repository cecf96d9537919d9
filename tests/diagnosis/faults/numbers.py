"""Faults of numbers."""

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault

IDS = torch.tensor([[11, 12, 13, 14, 15, 16]])
GREEDY = {"max_new_tokens": 3, "do_sample": False}


def _spoilt(bench: Bench, value, **options):
    model = bench.fresh("llama")
    if value is not None:
        with torch.no_grad():
            model.model.layers[1].mlp.down_proj.weight[0, 0] = value
    with bench.recorded(**options) as recording:
        model.generate(IDS, attention_mask=torch.ones_like(IDS), **GREEDY)
    return recording.trace


@fault("nonfinite_module", "nonfinite_scores")
def a_weight_that_is_no_number_with_values(bench: Bench):
    return _spoilt(bench, float("nan"), values=True)


@fault("nonfinite_scores")
def a_weight_that_is_no_number(bench: Bench):
    return _spoilt(bench, float("nan"))


@clean("nonfinite_module", "nonfinite_scores")
def weights_that_are_numbers(bench: Bench):
    return _spoilt(bench, None, values=True)
