"""Faults of the state that a model is run in."""

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault

IDS = torch.tensor([[11, 12, 13, 14, 15, 16]])


@fault("dropout_on")
def an_answer_in_training_mode(bench: Bench):
    model = bench.fresh("gpt2").train()
    with bench.recorded() as recording:
        model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=3, do_sample=False)
    return recording.trace


@clean("dropout_on", "gradients_on")
def a_step_of_training(bench: Bench):
    model = bench.fresh("gpt2").train()
    with bench.recorded() as recording:
        model(IDS, labels=IDS).loss.backward()
    return recording.trace


@fault("gradients_on")
def a_forward_with_gradients(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording:
        model(IDS)
    return recording.trace


@clean("gradients_on")
def a_forward_without_gradients(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording, torch.inference_mode():
        model(IDS)
    return recording.trace


@clean("gradients_on")
def a_forward_of_a_model_that_needs_none(bench: Bench):
    model = bench.fresh("llama").requires_grad_(False)
    with bench.recorded() as recording:
        model(IDS)
    return recording.trace
