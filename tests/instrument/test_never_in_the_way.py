"""A fault of the recorder costs rows, never the user's answer; threads do not mix."""

import functools
import threading

import pytest
import torch
from instrument.toys import generate, text_inputs
from transformers.generation import LogitsProcessor

import tracer


class _Slotted:
    """A processor without attributes of its own."""

    __slots__ = ()

    def __call__(self, input_ids, scores):
        return scores * 0.5


class _Hostile:
    """Looks like a tensor and fails when it is asked for its size."""

    def numel(self):
        raise RuntimeError("asked for its size")


class _Guarded(LogitsProcessor):
    def __init__(self):
        self.hostile = _Hostile()

    def __call__(self, input_ids, scores):
        return scores * 0.5


def _halve(input_ids, scores):
    return scores * 0.5


CALLABLES = {
    "without attributes": _Slotted(),
    "function": _halve,
    "partial": functools.partial(_halve),
    "bound method": _Slotted().__call__,
}


@pytest.mark.parametrize("own", CALLABLES.values(), ids=CALLABLES)
def test_any_callable_may_be_a_processor(llama, own):
    plain = generate(llama, text_inputs(), logits_processor=[own])
    with tracer.record(strict=True) as recording:
        recorded = generate(llama, text_inputs(), logits_processor=[own])
    assert torch.equal(recorded.sequences, plain.sequences)
    assert recording.trace.rows("choices") == 5


def test_a_failure_of_the_recorder_is_a_fault_and_the_answer_stays(llama):
    plain = generate(llama, text_inputs(), logits_processor=[_Guarded()], do_sample=True)
    with tracer.record() as recording:
        recorded = generate(llama, text_inputs(), logits_processor=[_Guarded()], do_sample=True)
    assert torch.equal(recorded.sequences, plain.sequences)
    faults = recording.trace["faults"]
    assert faults["traceback"].str.contains("asked for its size").any()
    assert recording.trace.rows("steps") == 5
    assert recording.trace["calls"]["status"].tolist() == ["ok"]


def test_a_strict_recording_raises_the_recorders_own_failure(llama):
    with (
        pytest.raises(RuntimeError, match="asked for its size"),
        tracer.record(strict=True),
    ):
        generate(llama, text_inputs(), logits_processor=[_Guarded()])


def test_calls_that_run_at_once_in_two_threads_are_told_apart(llama, gpt2):
    plain = {model: generate(model, text_inputs(), do_sample=False) for model in (llama, gpt2)}
    answers, barrier = {}, threading.Barrier(3)

    def work(number, model):
        barrier.wait(60)
        answers[number] = generate(model, text_inputs(), do_sample=False)

    jobs = {"one": llama, "two": llama, "three": gpt2}
    with tracer.record(strict=True, detail="modules") as recording:
        threads = [threading.Thread(target=work, args=job, name=job[0]) for job in jobs.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = recording.trace
    for name, model in jobs.items():
        assert torch.equal(answers[name].sequences, plain[model].sequences)
        (call,) = trace["calls"].query("thread == @name").itertuples()
        for table in ("steps", "modules"):
            rows = trace[table]
            mine = rows[rows["call"] == call.seq]
            assert set(mine["thread"]) == {name}
            assert set(mine["model"]) == {call.model}
        assert (trace["choices"]["call"] == call.seq).sum() == 5
        prompt = text_inputs()["input_ids"].shape[1]
        assert (trace["tokens"]["call"] == call.seq).sum() == prompt + 5
    per_call = trace["modules"].groupby("call").size()
    assert per_call.nunique() == 2  # two calls of one model, one of another
    assert trace.rows("faults") == 0
