"""Loads in several threads at once: what the library leaves behind is told, the lab adds nothing.

While a class builds itself the library changes things of the whole process and puts back what it
had found. Of two loads that overlap the later one puts the first one's changes back for good.
"""

import threading

import pytest
import torch
from instrument.overlapping import Built, put_right, two_at_once
from transformers import AutoModelForCausalLM

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, PUT_ASIDE
from tracer.schema import DEFAULT_DTYPE, SHARED_BY_THREADS

pytestmark = pytest.mark.generations

HEAD, BODY = "lm_head.weight", "transformer.wte.weight"


@pytest.fixture(autouse=True)
def _as_before():
    with put_right():
        yield


def _in_a_thread(work, name="other"):
    thread = threading.Thread(target=work, name=name)
    thread.start()
    return thread


def test_what_is_looked_at_has_the_names_that_the_doctor_knows():
    assert {*PUT_ASIDE, DEFAULT_DTYPE} == set(SHARED_BY_THREADS)


def test_what_the_lab_builds_anew_changes_no_other_thread(gpt2_folder):
    """With `verify_weights` the class is built again: parameters of another thread stay real."""
    builds, devices = [], []

    def elsewhere():
        devices.append(torch.nn.Linear(2, 2).weight.device.type)

    def built():
        builds.append(1)
        if len(builds) == 2:
            _in_a_thread(elsewhere).join(60)

    Built.when_built = staticmethod(built)
    with tracer.record(strict=True, verify_weights=True) as recording:
        Built.from_pretrained(gpt2_folder)
    assert devices == ["cpu"]
    trace = recording.trace
    assert trace.rows("faults") == 0
    assert set(trace["placements"]["verified"]) == {"equal"}


def test_a_load_that_leaves_the_process_changed_is_named(gpt2_folder):
    with tracer.record(strict=True) as recording:
        two_at_once(gpt2_folder)
    trace = recording.trace
    faults = trace["faults"][trace["faults"]["target"].isin(SHARED_BY_THREADS)]
    in_five = {"transformers.PreTrainedModel.tie_weights", "torch.linspace"}
    in_four = {"torch.nn.Module.register_parameter", "transformers.modeling_utils._init_weights"}
    assert set(faults["target"]) == (in_five if release() >= FIVE else in_four)
    assert faults["reason"].str.contains("overlapped in several threads").all()
    calls = trace["calls"].set_index("seq")
    assert set(calls.loc[faults["call"], "thread"]) == {"B"}
    found = {one.rule: one for one in tracer.doctor(trace)}
    assert found["loads_at_once"].values["count"] == 2
    assert found["process_changed"].severity == "fatal"


def test_a_later_load_without_values_is_told_by_what_was_left_behind(gpt2_folder):
    two_at_once(gpt2_folder)  # before anything is recorded
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(gpt2_folder)
    assert model.lm_head.weight.is_meta  # the library's own doing
    trace = recording.trace
    placed = trace["placements"].set_index("param")
    assert placed.loc[HEAD, "origin"] == "unwritten"
    assert placed.loc[BODY, "origin"] == ("checkpoint" if release() >= FIVE else "unwritten")
    faults = trace["faults"]
    assert faults["reason"].str.contains("began").any()
    rules = {one.rule for one in tracer.doctor(trace)}
    assert "process_changed" in rules
    assert "left_on_meta" not in rules  # which would name another cause


def test_a_default_dtype_that_stays_is_named(gpt2_folder):
    dtype = "dtype" if release() >= FIVE else "torch_dtype"
    with tracer.record(strict=True) as recording:
        two_at_once(gpt2_folder, A={dtype: torch.bfloat16}, B={dtype: torch.float32})
    assert torch.get_default_dtype() == torch.bfloat16  # the library's own doing
    faults = recording.trace["faults"].set_index("target")
    assert "bfloat16" in faults.loc[DEFAULT_DTYPE, "reason"]


def test_loads_one_after_the_other_in_threads_are_nothing_to_tell(gpt2_folder):
    with tracer.record(strict=True, verify_weights=True) as recording:
        for name in "AB":
            _in_a_thread(lambda: AutoModelForCausalLM.from_pretrained(gpt2_folder), name).join(60)
    trace = recording.trace
    assert trace.rows("faults") == 0
    assert not {one.rule for one in tracer.doctor(trace)} & {"loads_at_once", "process_changed"}


def test_a_class_is_not_built_anew_while_another_thread_loads(llama_folder, gpt2_folder):
    """Both would set the process's default dtype, so each would falsify the other."""
    inside, ended = threading.Event(), threading.Event()

    def wait():
        if threading.current_thread().name == "slow":
            inside.set()
            assert ended.wait(60)

    Built.when_built = staticmethod(wait)
    with tracer.record(strict=True, verify_weights=True) as recording:
        slow = _in_a_thread(lambda: Built.from_pretrained(gpt2_folder), "slow")
        assert inside.wait(60)
        AutoModelForCausalLM.from_pretrained(llama_folder)
        ended.set()
        slow.join(60)
    trace = recording.trace
    names = trace["models"].set_index("model")["class_name"]
    placed = trace["placements"]
    buffers = placed[
        (placed["kind"] == "buffer") & placed["model"].map(names).str.contains("Llama")
    ]
    assert len(buffers)
    assert buffers["verified_because"].str.contains("another thread was loading").all()
