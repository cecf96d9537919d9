"""However a recording ends, everything that it patched is as it was, and only that."""

import sys
import threading
import types

import pytest
import torch
from instrument.toys import MODELS, World, generate, hook_count, is_ours, text_inputs
from transformers import AutoModelForCausalLM
from transformers.generation.utils import GenerationMixin
from transformers.modeling_utils import PreTrainedModel

import tracer
from tracer.instrument.installer import INSTALLER

pytestmark = pytest.mark.generations


def _is_patched() -> bool:
    return is_ours(vars(PreTrainedModel)["from_pretrained"])


def test_patches_are_there_inside_and_gone_after(llama):
    before = World.now()
    with tracer.record(strict=True):
        assert _is_patched()
        generate(llama, text_inputs())
        assert before.differences()
    assert before.differences() == []


def test_an_exception_in_the_block_comes_out_as_it_was(llama):
    before, error = World.now(), RuntimeError("the user's own")
    recording = tracer.record(strict=True)

    def fail():
        generate(llama, text_inputs())
        raise error

    with pytest.raises(RuntimeError) as caught, recording:
        fail()
    assert caught.value is error
    assert before.differences() == []
    assert recording.trace.manifest["ended"] == "RuntimeError: the user's own"
    assert recording.trace.rows("steps") == 5


class _Sealed(types.ModuleType):
    """A module that lets nothing be set once it is sealed."""

    is_sealed = False

    def __setattr__(self, name, value):
        if self.is_sealed:
            raise TypeError(f"{name} of a sealed module can't be set")
        super().__setattr__(name, value)


@pytest.fixture
def sealed(monkeypatch):
    """qwen_vl_utils' module swapped for one that can be read and not written."""
    name = "qwen_vl_utils.vision_process"
    real = __import__(name, fromlist=["fetch_image"])
    copy = _Sealed(name)
    vars(copy).update(vars(real), is_sealed=True)
    monkeypatch.setitem(sys.modules, name, copy)
    return copy


def test_a_patch_that_fails_half_way_leaves_none_in_place(sealed):
    before = World.now()
    with (
        pytest.raises(TypeError, match="sealed module can't be set"),
        tracer.record(strict=True),
    ):
        pytest.fail("the block must not run")
    assert before.differences() == []


def test_a_target_that_cannot_be_patched_is_a_fault_and_the_rest_is_recorded(sealed, llama):
    with tracer.record() as recording:
        generate(llama, text_inputs())
    faults = recording.trace["faults"]
    assert "qwen_vl_utils.vision_process.fetch_image" in set(faults["target"])
    assert faults["traceback"].str.contains("sealed module can't be set").any()
    assert recording.trace.rows("steps") == 5


def test_a_load_after_a_recording_works_as_before(llama_folder):
    with tracer.record(strict=True):
        AutoModelForCausalLM.from_pretrained(llama_folder)
    model = AutoModelForCausalLM.from_pretrained(llama_folder)
    assert hook_count(model) == 0
    assert type(model).from_pretrained.__func__ is vars(PreTrainedModel)["from_pretrained"].__func__


def test_of_nested_recordings_the_inner_end_leaves_the_outer_on(llama, gpt2):
    before = World.now()
    with tracer.record(strict=True) as outer:
        generate(llama, text_inputs())
        with tracer.record(strict=True) as inner:
            generate(gpt2, text_inputs())
        assert _is_patched()
        generate(llama, text_inputs(), max_new_tokens=2)
    assert before.differences() == []
    assert outer.trace["calls"]["name"].tolist() == ["LlamaForCausalLM.generate"] * 2
    assert inner.trace["calls"]["name"].tolist() == ["GPT2LMHeadModel.generate"]
    assert outer.trace.rows("steps") == 7
    assert outer.trace["faults"]["target"].tolist() == ["routing"]  # what it did not get
    assert inner.trace.rows("faults") == 0
    assert inner.trace.rows("faults") == 0


def _record_in_turns(model, inputs, turns, begun, others_begun, may_end, ended, traces):
    with tracer.record(strict=True) as recording:
        begun.set()
        others_begun.wait(60)
        generate(model, inputs)
        may_end.wait(60)
    traces[turns] = recording.trace
    ended.set()


@pytest.mark.parametrize("first", [0, 1])
def test_two_threads_may_end_their_recordings_in_any_order(llama, gpt2, first):
    before = World.now()
    begun, may_end = [threading.Event() for _ in "ab"], [threading.Event() for _ in "ab"]
    ended, traces = [threading.Event() for _ in "ab"], {}
    threads = [
        threading.Thread(
            target=_record_in_turns,
            args=(
                model, text_inputs(), turn, begun[turn], begun[1 - turn], may_end[turn],
                ended[turn], traces,
            ),
        )
        for turn, model in enumerate((llama, gpt2))
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for turn in (first, 1 - first):
        may_end[turn].set()
        assert ended[turn].wait(120)
    for thread in threads:
        thread.join()
    assert before.differences() == []
    names = [traces[turn]["calls"]["name"].tolist() for turn in (0, 1)]
    assert names == [["LlamaForCausalLM.generate"], ["GPT2LMHeadModel.generate"]]
    assert [traces[turn].rows("steps") for turn in (0, 1)] == [5, 5]


def _wrapped(function, calls):
    def theirs(*args, **kwargs):
        calls.append(function)
        return function(*args, **kwargs)

    return theirs


def test_a_strangers_patch_over_ours_stays_and_ours_below_is_inert(llama):
    raw, calls = vars(GenerationMixin)["generate"], []
    try:
        with tracer.record(strict=True) as recording:
            theirs = GenerationMixin.generate = _wrapped(vars(GenerationMixin)["generate"], calls)
        assert vars(GenerationMixin)["generate"] is theirs
        plain = generate(llama, text_inputs(), do_sample=False)
        assert calls
        assert is_ours(calls[0])
        with tracer.record(strict=True) as later:
            recorded = generate(llama, text_inputs(), do_sample=False)
        assert vars(GenerationMixin)["generate"] is theirs
    finally:
        GenerationMixin.generate = raw
    assert torch.equal(plain.sequences, recorded.sequences)
    faults = recording.trace["faults"]
    assert faults["target"].tolist() == ["GenerationMixin.generate"]
    assert "theirs stays" in faults["reason"].iloc[0]
    assert later.trace["calls"]["kind"].tolist() == ["generate"]
    assert later.trace.rows("faults") == 0


def test_a_wrapper_that_a_stranger_kept_does_nothing_after_the_block(llama):
    with tracer.record(strict=True) as recording:
        kept = GenerationMixin.generate
    output = kept(llama, **text_inputs(), max_new_tokens=2)
    assert output.shape[1] == text_inputs()["input_ids"].shape[1] + 2
    assert recording.trace.rows("calls") == 0
    assert not INSTALLER.recorders


def test_a_users_own_hook_stays_and_ours_go(llama):
    def theirs(module, args):
        return None

    handle = llama.register_forward_pre_hook(theirs)
    count = hook_count(llama)
    with tracer.record(strict=True):
        generate(llama, text_inputs())
        assert hook_count(llama) > count
    assert hook_count(llama) == count
    handle.remove()
    assert llama in MODELS  # so the guard counts its hooks again after this test


def test_an_event_that_belongs_to_no_one_recording_is_a_fault_in_each(llama):
    with tracer.record(strict=True) as outer, tracer.record(strict=True) as inner:
        thread = threading.Thread(target=generate, args=(llama, text_inputs()))
        thread.start()
        thread.join()
    for trace in (outer.trace, inner.trace):
        assert trace.rows("calls") == 0
        assert trace["faults"]["target"].tolist() == ["routing"]


def test_a_known_models_event_in_another_thread_goes_to_its_recording(llama, gpt2):
    with tracer.record(strict=True) as outer:
        generate(llama, text_inputs(), max_new_tokens=1)
        with tracer.record(strict=True) as inner:
            generate(gpt2, text_inputs(), max_new_tokens=1)
            thread = threading.Thread(target=generate, args=(llama, text_inputs()), name="asker")
            thread.start()
            thread.join()
    assert outer.trace["calls"].sort_values("seq")["thread"].tolist() == ["MainThread", "asker"]
    assert inner.trace["calls"]["name"].tolist() == ["GPT2LMHeadModel.generate"]
    assert outer.trace["faults"]["target"].tolist() == ["routing"]  # what it did not get
    assert inner.trace.rows("faults") == 0
