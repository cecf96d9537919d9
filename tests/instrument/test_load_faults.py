"""Something goes wrong inside a real load: exactly the audit's check for it is broken."""

import json
import threading

import pytest
import torch
from instrument.gguf_files import write_llama
from transformers import AutoModelForCausalLM, LlamaForCausalLM, modeling_utils

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations
NORM = "model.norm.weight"


TIME = "5 explained time"


def _broken(trace):
    audit = trace.audit().set_index("check")
    bad = audit[audit["verdict"] == "broken"]
    return {check: json.loads(text) for check, text in bad["evidence"].items()}


def _broken_but_time(trace):
    """Without the check that a busy machine may break."""
    return {check: found for check, found in _broken(trace).items() if check != TIME}


def _audited(folder, **options):
    with tracer.record(strict=True, verify_weights=True) as recording:
        AutoModelForCausalLM.from_pretrained(folder, **options)
    return _broken_but_time(recording.trace), recording.trace


@pytest.mark.skipif(release() < FIVE, reason="generation 4 reads in the loop that is observed")
def test_a_read_that_goes_past_the_lab_breaks_the_first_check(llama_folder, monkeypatch):
    from transformers import core_model_loading

    with tracer.record(strict=True) as recording:
        watched = core_model_loading._materialize_copy

        def strangers(tensor, device=None, dtype=None):
            is_norm = tensor.get_shape() == [32]
            return tensor[...] if is_norm else watched(tensor, device, dtype)

        with monkeypatch.context() as patch:
            patch.setattr(core_model_loading, "_materialize_copy", strangers)
            AutoModelForCausalLM.from_pretrained(llama_folder)
    found = _broken_but_time(recording.trace)
    assert list(found) == ["1 reads = fates"]
    assert len(found["1 reads = fates"]) == 5  # two norms a layer and the last
    assert all("norm.weight" in name for name in found["1 reads = fates"])


def _set_wrongly(monkeypatch, wrong):
    """Let the library set the last norm in a way of the test's own, as the lab looks on."""
    if release() >= FIVE:
        from transformers import core_model_loading as library

        name, place = "set_param_for_module", 1
    else:
        library, name, place = modeling_utils, "_load_parameter_into_model", 1
    original = getattr(library, name)

    def set_one(*args, **kwargs):
        if args[place] != NORM:
            return original(*args, **kwargs)
        return wrong(original, *args, **kwargs)

    monkeypatch.setattr(library, name, set_one)


@pytest.mark.skipif(release() < FIVE, reason="generation 4 fills what is missing first")
def test_what_is_read_and_not_set_is_no_checkpoint_value(llama_folder, monkeypatch):
    _set_wrongly(monkeypatch, lambda original, *args, **kwargs: None)
    found, trace = _audited(llama_folder)
    row = trace["placements"].set_index("param").loc[NORM]
    assert row["origin"] == "initialised"
    fates = trace["checkpoint_tensors"].set_index("key")["fate"]
    assert fates[fates != "loaded"].to_dict() == {NORM: "skipped"}
    assert not [check for check in found if not check.startswith("4 ")]


class Lost(LlamaForCausalLM):
    """A class of the user's that gives up a parameter's values as its load ends."""

    def eval(self):
        self.model.norm.to("meta")
        return super().eval()


def test_a_parameter_without_values_breaks_the_second_check(llama_folder):
    with tracer.record(strict=True) as recording:
        Lost.from_pretrained(llama_folder)
    trace = recording.trace
    found = _broken_but_time(trace)
    assert set(found) == {"2 none left on meta", "2 none unwritten"}
    assert found["2 none left on meta"] == [f"model-1: {NORM}"]
    row = trace["placements"].set_index("param").loc[NORM]
    assert (row["origin"], row["residence"]) == ("unwritten", "meta")


def test_bytes_behind_the_last_tensor_break_the_third_check(tmp_path):
    pytest.importorskip("gguf")
    write_llama(tmp_path / "toy.gguf")
    with (tmp_path / "toy.gguf").open("ab") as file:
        file.write(bytes(64))
    assert _audited(tmp_path, gguf_file="toy.gguf")[0] == {"3 bytes of a file": ["toy.gguf"]}


def test_another_value_than_the_files_breaks_the_fourth_check(llama_folder, monkeypatch):
    def wrong(original, model, name, tensor, *args, **kwargs):
        values = tensor if isinstance(tensor, torch.Tensor) else tensor[0]
        return original(model, name, values + 1, *args, **kwargs)

    _set_wrongly(monkeypatch, wrong)
    found, _ = _audited(llama_folder)
    assert list(found) == ["4 values = sources"]
    (said,) = found["4 values = sources"]
    assert said.startswith(f"model-1: {NORM}: ")


def test_time_that_no_step_takes_breaks_the_fifth_check(llama_folder, monkeypatch):
    answer = LlamaForCausalLM.can_generate()

    def slow(cls):
        threading.Event().wait(0.5)  # blocked, not waiting for a processor
        return answer

    monkeypatch.setattr(LlamaForCausalLM, "can_generate", classmethod(slow))
    others, trace = _audited(llama_folder)
    found = _broken(trace)
    assert (list(found), others) == ([TIME], {})
    calls = trace["calls"].set_index("seq")["name"]
    assert "LlamaForCausalLM.from_pretrained" in [calls[seq] for seq in found[TIME]]


def test_a_healthy_load_breaks_none(llama_folder):
    assert _audited(llama_folder)[0] == {}


def test_a_load_in_inference_mode_is_told_like_any_other(llama_folder):
    """Torch counts no writes into what it makes there."""
    with tracer.record(strict=True) as plain:
        AutoModelForCausalLM.from_pretrained(llama_folder)
    with torch.inference_mode(), tracer.record(strict=True, verify_weights=True) as recording:
        AutoModelForCausalLM.from_pretrained(llama_folder)
    traces = plain.trace, recording.trace
    origins = [trace["placements"].set_index("param")["origin"].to_dict() for trace in traces]
    assert origins[0] == origins[1]
    assert _broken_but_time(recording.trace) == {}
