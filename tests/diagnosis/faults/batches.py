"""Faults of batches: rows that answer otherwise than alone."""

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault

LONG, SHORT = [11, 12, 13, 14, 15, 16], [21, 22, 23, 24]


def _both(bench: Bench, side):
    pads = [0] * (len(LONG) - len(SHORT))
    short = [*pads, *SHORT] if side == "left" else [*SHORT, *pads]
    model, ids = bench.model("llama"), torch.tensor([LONG, short])
    given = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    with bench.recorded() as recording:
        model.generate(ids, attention_mask=(ids != 0).long(), **given)
        alone = torch.tensor([SHORT])
        model.generate(alone, attention_mask=torch.ones_like(alone), **given)
    return recording.trace


@fault("batch_row_differs", also=("padding_on_the_right",))
def a_row_padded_on_the_wrong_side_and_alone(bench: Bench):
    return _both(bench, "right")


@clean("batch_row_differs")
def a_row_padded_on_the_right_side_and_alone(bench: Bench):
    return _both(bench, "left")
