"""Settings in force against the library's own, over file, model, object and call together."""

import itertools
import json

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model
from transformers import GenerationConfig, LlamaForCausalLM

import tracer

# What is set in which place; the later one wins. Each value differs from all others.
VALUES = {
    "temperature": {"file": 0.31, "model": 0.41, "object": 0.51, "call": 0.61},
    "top_k": {"file": 31, "model": 32, "object": 33, "call": 34},
    "repetition_penalty": {"file": 1.11, "model": 1.21, "object": 1.31, "call": 1.41},
    "max_new_tokens": {"file": 1, "model": 2, "object": 3, "call": 4},
}
ORIGINS = {
    "file": "generation_config.json",
    "model": "model after load",
    "object": "config object",
    "call": "call",
}
GRID = [
    places for count in range(5) for places in itertools.combinations(ORIGINS, count)
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("grid")
    model = _model(0)
    model.generation_config = GenerationConfig(
        do_sample=True, eos_token_id=2, pad_token_id=0,
        **{name: one["file"] for name, one in VALUES.items()},
    )  # fmt: skip
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    path = tmp_path_factory.mktemp("bare")
    _model(0).save_pretrained(path)
    return path


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
@pytest.mark.parametrize("places", GRID, ids=lambda places: "+".join(places) or "nowhere")
def test_every_value_and_its_origin_are_the_librarys(folder, bare, places):
    def ways(place):
        return {name: one[place] for name, one in VALUES.items()} if place in places else {}

    with tracer.record(strict=True) as recording:
        model = LlamaForCausalLM.from_pretrained(folder if "file" in places else bare)
        for name, value in ways("model").items():
            setattr(model.generation_config, name, value)
        settings = {"do_sample": True, **ways("call")}
        if "object" in places:
            settings["generation_config"] = GenerationConfig(do_sample=True, **ways("object"))
        prepared = model._prepare_generation_config(**{"generation_config": None} | settings)[0]
        model.generate(ROWS[:1], attention_mask=torch.ones_like(ROWS[:1]), **settings)
    told = recording.trace["settings"].query("scope == 'generate'").set_index("setting")
    for name, value in VALUES.items():
        expected = getattr(prepared, name)
        if name in told.index:
            assert json.loads(told.loc[name, "effective"]) == expected, name
        else:
            assert expected is None, name
        if places:
            winner = [place for place in ORIGINS if place in places][-1]
            assert (expected, told.loc[name, "origin"]) == (value[winner], ORIGINS[winner])
    if not places:
        assert told.loc["max_length", "origin"] in ("derived", "library")
        assert json.loads(told.loc["max_length", "effective"]) == ROWS.shape[1] + 20
