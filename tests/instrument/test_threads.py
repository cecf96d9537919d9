"""Recordings and calls in several threads, begun and ended in any order."""

import contextlib
import threading

import pytest
import torch
from instrument.toys import generate, text_inputs
from transformers import AutoModelForCausalLM, TextIteratorStreamer
from transformers.generation import LogitsProcessor

import tracer
from tracer.demo import checkpoint_folder


def _run_in(name, work):
    """Do work in a thread of its own to its end; an exception in it comes out here."""
    failed = []

    def guarded():
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded, name=name)
    thread.start()
    thread.join(120)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def test_a_generate_in_a_thread_begun_inside_the_block_is_recorded(llama):
    answers = []
    with tracer.record(strict=True) as recording:
        _run_in("other", lambda: answers.append(generate(llama, text_inputs(), do_sample=False)))
    trace = recording.trace
    (call,) = trace["calls"].itertuples()
    assert (call.kind, call.thread, call.status) == ("generate", "other", "ok")
    assert set(trace["steps"]["thread"]) == {"other"}
    assert trace["choices"]["token_id"].tolist() == answers[0].sequences[0, 6:].tolist()
    assert "broken" not in set(trace.audit()["verdict"])


def test_a_streamer_read_by_another_thread_hears_the_same(seeing, seeing_inputs, processor):
    settings = {"do_sample": False, "max_new_tokens": 4}
    plain = generate(seeing, seeing_inputs, **settings)
    streamer = TextIteratorStreamer(processor.tokenizer, skip_prompt=True, timeout=60)
    with tracer.record(strict=True) as recording:
        thread = threading.Thread(
            target=lambda: generate(seeing, seeing_inputs, streamer=streamer, **settings),
            name="generating",
        )
        thread.start()
        text = "".join(streamer)
        thread.join(60)
    expected = processor.tokenizer.decode(plain.sequences[0, seeing_inputs["input_ids"].shape[1] :])
    assert text == expected
    trace = recording.trace
    generating = trace["calls"].query("kind == 'generate'")
    assert generating["thread"].tolist() == ["generating"]
    assert trace.rows("choices") == 4
    assert trace.rows("faults") == 0


class _Waiting(LogitsProcessor):
    """Stops at its second call until it is let go on."""

    def __init__(self):
        self.calls, self.reached, self.go_on = 0, threading.Event(), threading.Event()

    def __call__(self, input_ids, scores):
        self.calls += 1
        if self.calls == 2:
            self.reached.set()
            assert self.go_on.wait(60)
        return scores


def test_a_recording_may_end_while_a_generation_goes_on(llama, tmp_path):
    plain = generate(llama, text_inputs(), do_sample=False)
    waiting, answers = _Waiting(), []

    def work():
        answers.append(generate(llama, text_inputs(), do_sample=False, logits_processor=[waiting]))

    thread = threading.Thread(target=work, name="late")
    with tracer.record(tmp_path / "run", strict=True):
        thread.start()
        assert waiting.reached.wait(60)
    waiting.go_on.set()
    thread.join(60)
    assert torch.equal(answers[0].sequences, plain.sequences)
    trace = tracer.open_trace(tmp_path / "run")
    (call,) = trace["calls"].itertuples()
    assert (call.status, call.thread) == ("interrupted", "late")
    assert trace["steps"]["status"].tolist() == ["ok", "interrupted"]
    assert trace["events"]["seq"].is_unique


def test_a_recording_begun_and_ended_inside_anothers_call_takes_nothing_from_it(llama, gpt2):
    """The inner one lives inside a logits processor of a call that the outer one records."""
    inner = []

    class Recording(LogitsProcessor):
        def __call__(self, input_ids, scores):
            if not inner:
                with tracer.record() as recording:
                    generate(gpt2, text_inputs(), do_sample=False)
                inner.append(recording.trace)
            return scores

    with tracer.record(detail="modules") as recording:
        generate(llama, text_inputs(), do_sample=False, logits_processor=[Recording()])
    trace = recording.trace
    outer_calls = trace["calls"][trace["calls"]["parent"] == -1]
    assert outer_calls["status"].tolist() == ["ok"]
    steps = trace["steps"][trace["steps"]["call"] == outer_calls["seq"].iloc[0]]
    assert len(steps) == 5
    modules = trace["modules"]
    per_step = modules[modules["model"] == outer_calls["model"].iloc[0]].groupby("step").size()
    assert per_step.nunique() == 1  # every module call of every step
    assert len(per_step) == 5
    assert inner[0].manifest["state"] == "complete"


@pytest.mark.parametrize("order", ["first in, first out", "first in, last out"])
def test_two_recordings_of_one_thread_end_in_any_order(llama, order):
    one, two = tracer.start(), tracer.start()
    generate(llama, text_inputs(), do_sample=False)
    ends = (one, two) if order == "first in, first out" else (two, one)
    ends[0].stop()
    generate(llama, text_inputs(), do_sample=False)
    ends[1].stop()
    traces = [one.trace, two.trace]
    assert sum(trace.rows("calls") for trace in traces) == 2
    assert ends[1].trace.rows("calls") >= 1
    for trace in traces:
        assert set(trace["calls"]["status"]) <= {"ok"}


def test_loader_workers_belong_to_the_load_that_sent_them(llama_folder, gpt2_folder, tmp_path):
    """Two recordings in two threads; one load after the other, for the library puts
    `tie_weights` aside while it builds a model, and two at once leave it so for good."""
    barrier, turn, names = threading.Barrier(2), threading.Lock(), {}

    def load(name, folder):
        with tracer.record(tmp_path / name, strict=True):
            barrier.wait(60)
            with turn:
                model = AutoModelForCausalLM.from_pretrained(folder)
            barrier.wait(60)
        names[name] = {key for key, _ in model.named_parameters()}

    jobs = {"llama": llama_folder, "gpt2": gpt2_folder}
    threads = [threading.Thread(target=load, args=job, name=job[0]) for job in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert set(names) == set(jobs)
    for name in jobs:
        trace = tracer.open_trace(tmp_path / name)
        loads = trace["tensor_loads"]
        assert len(loads) == trace.rows("checkpoint_tensors")
        assert set(loads["param"]) <= names[name]
        assert loads["call"].nunique() == 1
        assert set(trace["calls"]["thread"]) == {name}


def test_two_threads_on_one_model_with_a_recording_each(llama):
    plain = generate(llama, text_inputs(), do_sample=False)
    barrier, traces = threading.Barrier(2), {}

    def work(name):
        with contextlib.ExitStack() as stack:
            recording = stack.enter_context(tracer.record())
            barrier.wait(60)
            answer = generate(llama, text_inputs(), do_sample=False)
            barrier.wait(60)
        traces[name] = recording.trace
        assert torch.equal(answer.sequences, plain.sequences)

    threads = [threading.Thread(target=work, args=(name,), name=name) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(traces) == ["a", "b"]
    assert sum(trace.rows("choices") for trace in traces.values()) == 10
    for trace in traces.values():
        assert trace["events"]["seq"].is_unique
        assert set(trace["calls"]["status"]) <= {"ok"}


def test_a_load_in_a_thread_is_told_whole(tmp_path):
    from transformers import AutoModelForImageTextToText

    models = []
    with tracer.record(strict=True) as recording:
        _run_in(
            "loading",
            lambda: models.append(AutoModelForImageTextToText.from_pretrained(checkpoint_folder())),
        )
    trace = recording.trace
    assert trace.rows("tensor_loads") == trace.rows("checkpoint_tensors") > 0
    assert "broken" not in set(trace.audit()["verdict"])
    tensors = (*models[0].named_parameters(), *models[0].named_buffers())
    assert trace.rows("placements") == len(tensors)
