"""Faults of dtypes: wider than the file, narrower by configuration, out of range."""

import torch
from diagnosis.bench import Bench, rewritten
from diagnosis.cases import clean, dtype_as, fault
from diagnosis.faults.weights import loaded
from safetensors.torch import load_file, save_file

from tracer.lessons.text_model import with_extremes


@fault("dtype_doubled")
def a_bf16_file_as_float32(bench: Bench):
    return loaded(bench, bench.chat(), **dtype_as(torch.float32))


@fault("dtype_doubled", generations=(4,))
def a_bf16_file_as_the_library_likes(bench: Bench):
    return loaded(bench, bench.chat())


@clean("dtype_doubled", "dtype_by_config", "cast_lost_values")
def a_bf16_file_as_it_is(bench: Bench):
    return loaded(bench, bench.chat(), verify=True, **dtype_as(torch.bfloat16))


@clean("dtype_by_config", "cast_lost_values")
def a_float32_file_asked_for_in_bf16(bench: Bench):
    return loaded(bench, bench.folder("llama"), verify=True, **dtype_as(torch.bfloat16))


@fault("dtype_by_config")
def a_configuration_that_asks_for_float16(bench: Bench):
    folder = bench.copy(bench.folder("llama"))
    rewritten(
        folder / "config.json", lambda config: config.update(torch_dtype="float16", dtype=None)
    )
    return loaded(bench, folder, **dtype_as("auto"))


@fault("cast_lost_values")
def values_that_float16_can_not_hold(bench: Bench):
    folder = with_extremes(bench.chat(), bench.new() / "extremes")
    return loaded(bench, folder, verify=True, **dtype_as(torch.float16))


def with_tiny_values(bench: Bench):
    """A Llama's folder with a norm whose values are below all that float16 knows."""
    folder = bench.copy(bench.folder("llama"))
    path = folder / "model.safetensors"
    held = load_file(path)
    held["model.norm.weight"] = torch.full_like(held["model.norm.weight"], 1e-9)
    save_file(held, path, metadata={"format": "pt"})
    return folder


@fault("cast_lost_values")
def values_that_float16_makes_zero(bench: Bench):
    return loaded(bench, with_tiny_values(bench), verify=True, **dtype_as(torch.float16))
