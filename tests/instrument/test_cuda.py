"""On a GPU: its own time by events, and not one synchronisation more than without a recording."""

import warnings

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model

import tracer
from tracer.instrument.answering import device_time
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture
def placed():
    """A model on the GPU, and ids beside it."""
    return _model(0).cuda(), ROWS[:1].cuda()


def _generate(model, ids):
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, min_new_tokens=5, do_sample=True
    )


def _synchronisations(work):
    """How often the host waited for the device, as torch itself counts."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(one.message) for one in said)


@on_gpu
def test_a_step_has_a_time_on_its_device(placed):
    model, ids = placed
    with tracer.record(strict=True) as recording, torch.no_grad():
        _generate(model, ids)
        name = "cache" if release() >= FIVE else "past_key_values"
        cache = model(ids, use_cache=True)[name]
        model(ids[:, :1], **{name: cache}, use_cache=True)
    steps = recording.trace["steps"]
    assert (steps["device_ns"] > 0).all()
    assert recording.trace.rows("faults") == 0
    assert set(recording.trace["modules"]["device"].dropna()) == {"cuda:0"}


@on_gpu
@pytest.mark.parametrize("detail", ["stages", "layers"])
def test_until_a_step_is_resolved_nothing_waits_for_the_device(placed, detail):
    """Between two of the library's own waits there is none of the lab's: module calls add none."""
    model, ids = placed
    with torch.no_grad():
        model(ids, use_cache=False)
        plain = _synchronisations(lambda: model(ids, use_cache=False))
        with tracer.record(strict=True, detail=detail):
            model(ids, use_cache=False)
            recorded = _synchronisations(lambda: model(ids, use_cache=False))
    assert recorded == plain


@on_gpu
def test_the_answer_is_the_same(placed):
    model, ids = placed
    torch.manual_seed(3)
    plain = _generate(model, ids)
    torch.manual_seed(3)
    with tracer.record(strict=True):
        recorded = _generate(model, ids)
    assert torch.equal(recorded, plain)


class _Queue:
    """Stands in for a device: events come to pass when it is told to go on, a millisecond each."""

    def __init__(self):
        self.time, self.done = 0.0, 0

    def event(self, enable_timing):
        assert enable_timing
        return _Event(self)


class _Event:
    def __init__(self, queue):
        self.queue, self.place = queue, None

    def record(self, stream):
        self.queue.time += 1.0
        self.place = self.queue.time

    def query(self):
        return self.place <= self.queue.done

    def elapsed_time(self, later):
        return later.place - self.place


def test_events_are_read_only_once_they_have_come(monkeypatch, llama):
    queue = _Queue()
    monkeypatch.setattr(torch.cuda, "Event", queue.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    timer = device_time.begin(llama, torch.device("cuda", 0))
    timer.end()
    assert timer.read() is None
    queue.done = 2
    assert timer.read() == 1_000_000
    assert device_time.begin(llama, torch.device("cpu")) is None
    monkeypatch.setattr(llama, "hf_device_map", {"model": 0, "lm_head": 1}, raising=False)
    assert device_time.begin(llama, torch.device("cuda", 0)) is None
