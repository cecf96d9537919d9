"""A `.bin` of a training script: the state dict lies one level down, and the library looks past it.

It raises nothing: it reports the names on the outside as unexpected and fills the whole model with
random values.
"""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import tracer
from tracer.explain.sentences import phrase, say
from tracer.schema import NESTED_FILE

pytestmark = pytest.mark.generations


def _saved(source, folder, content):
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    torch.save(content, folder / "pytorch_model.bin")
    return folder


def _recorded(folder):
    with tracer.record(strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(folder)
    return recording.trace


@pytest.mark.parametrize("name", ["state_dict", "model"])
def test_a_state_dict_one_level_down_is_named(gpt2_folder, tmp_path, name):
    held = load_file(gpt2_folder / "model.safetensors")
    content = {name: held, "epoch": 3, "step": torch.tensor(7)}
    trace = _recorded(_saved(gpt2_folder, tmp_path, content))
    origins = trace["placements"].query("kind == 'parameter'")["origin"]
    assert set(origins) == {"initialised", "tied"}  # nothing came out of the file
    (fault,) = trace["faults"].itertuples()
    assert fault.target == "pytorch_model.bin"
    assert NESTED_FILE in fault.reason
    assert f"{len(held)} tensors" in fault.reason
    assert f"lie under {name}," in fault.reason
    file = trace["files"].set_index("path").loc["pytorch_model.bin"]
    assert file["read"]
    (found,) = [one for one in tracer.doctor(trace) if one.severity == "fatal"]
    assert found.rule == "weights_nested"  # the cause, not only that values are random
    problem = {one.kind: one for one in tracer.inspect(tmp_path).problems}["nested"]
    assert (problem.key, problem.found) == (name, len(held))


def test_one_level_is_as_it_should_be(gpt2_folder, tmp_path):
    held = load_file(gpt2_folder / "model.safetensors")
    trace = _recorded(_saved(gpt2_folder, tmp_path, held))
    assert trace.rows("faults") == 0
    assert "initialised" not in set(trace["placements"].query("kind == 'parameter'")["origin"])
    assert not any(one.kind == "nested" for one in tracer.inspect(tmp_path).problems)


def test_the_words_are_those_that_the_doctor_looks_for():
    told = phrase("folders.nested", file="a.bin", keys="model", number=1, first="weight")
    assert str(say(told, "en")).startswith(f"a.bin{NESTED_FILE}")
