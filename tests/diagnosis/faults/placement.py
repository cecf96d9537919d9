"""Faults of where parameters lie."""

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault
from transformers import AutoModelForCausalLM

IDS = torch.tensor([[11, 12, 13, 14]])
LAYER_ON_DISK = {
    "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk",
    "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu",
}  # fmt: skip


def asked(bench: Bench, **given):
    """The trace of a load and an answer."""
    with bench.recorded() as recording:
        model = AutoModelForCausalLM.from_pretrained(
            bench.folder("llama", max_shard_size="9KB"), offload_folder=str(bench.new()), **given
        )
        model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=2, do_sample=False)
    return recording.trace


@fault("offloaded_unasked")
def layers_that_auto_puts_on_the_disk(bench: Bench):
    return asked(bench, device_map="auto", max_memory={"cpu": 16_000})


@clean("offloaded_unasked")
def a_layer_on_the_disk_as_the_user_wrote(bench: Bench):
    return asked(bench, device_map=LAYER_ON_DISK)


@clean("offloaded_unasked")
def auto_with_room_enough(bench: Bench):
    return asked(bench, device_map="auto")
