"""Faults of the recording: modules that it can't see, a kernel, its own cost."""

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault
from synthetic import MANIFEST, make_trace
from transformers import AutoModelForCausalLM

IDS = torch.tensor([[11, 12, 13, 14]])
ASK = {"max_new_tokens": 2, "do_sample": False, "return_dict_in_generate": True}


@fault("modules_hidden")
def a_compiled_forward(bench: Bench):
    model = bench.fresh("llama")
    model.forward = torch.compile(model.forward, backend="eager")
    with bench.recorded() as recording:
        model.generate(IDS, attention_mask=torch.ones_like(IDS), **ASK)
    return recording.trace


@fault("modules_hidden")
def a_compiled_layer(bench: Bench):
    model = bench.fresh("llama")
    model.model.layers[0].compile(backend="eager")
    with bench.recorded(detail="modules") as recording:
        model.generate(IDS, attention_mask=torch.ones_like(IDS), **ASK)
    return recording.trace


@clean("modules_hidden")
def a_forward_as_it_is(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording:
        model.generate(IDS, attention_mask=torch.ones_like(IDS), **ASK)
    return recording.trace


def with_eager(bench: Bench, **given):
    """A load that asks for the eager kernel, and an answer."""
    with bench.recorded() as recording:
        model = AutoModelForCausalLM.from_pretrained(
            bench.folder("llama"), attn_implementation="eager"
        )
        model.generate(IDS, attention_mask=torch.ones_like(IDS), **ASK, **given)
    return recording.trace


@fault("eager_attention")
def a_slow_kernel_for_nothing(bench: Bench):
    return with_eager(bench)


@clean("eager_attention")
def a_slow_kernel_for_its_weights(bench: Bench):
    return with_eager(bench, output_attentions=True)


def costing(share: float, seconds: float = 40, parameters: int = 0, **options):
    """A trace of a recorder with this share; it would take minutes to be so slow for real."""
    cost = {"own_spans_ns": int(seconds * 1e9), "module_calls": 0, "module_call_ns": None}
    settings = {"recorder": cost | {"share": share}, "options": {"detail": "layers"} | options}
    models = {"models": [{"event": 0, "rank": 0, "model": "model-1", "parameters": parameters}]}
    return make_trace(models if parameters else {}, manifest=MANIFEST | settings)


@fault("recorder_costly")
def a_recorder_that_takes_a_third(bench: Bench):
    return costing(0.33, detail="modules", values=True)


@clean("recorder_costly")
def a_recorder_that_takes_a_hundredth(bench: Bench):
    return costing(0.01, detail="modules", values=True)


@fault("recorder_costly")
def a_real_model_that_waits_two_seconds_for_its_recorder(bench: Bench):
    return costing(0.33, seconds=2, parameters=135_000_000)


@clean("recorder_costly")
def a_real_models_recorder_that_nobody_waits_for(bench: Bench):
    return costing(0.33, seconds=0.5, parameters=135_000_000)


@clean("recorder_costly")
def a_toy_so_quick_that_any_look_at_it_takes_a_third(bench: Bench):
    return costing(0.33, seconds=8, verify_weights=True)
