"""What the user's code raises comes through as it is, and the trace up to there is kept."""

import shutil

import pytest
import torch
from instrument.toys import World, generate, text_inputs
from transformers import AutoModelForCausalLM
from transformers.generation import LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations

ERRORS = [ValueError("the user's own"), KeyboardInterrupt(), SystemExit(3)]
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda one: type(one).__name__)


class _Failing:
    """Raises its error at the third call."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def fail(self):
        self.calls += 1
        if self.calls == 3:
            raise self.error


class _FailingProcessor(_Failing):
    def __call__(self, ids, scores):
        self.fail()
        return scores


class _FailingCriterion(_Failing, StoppingCriteria):
    def __call__(self, ids, scores, **kwargs):
        self.fail()
        return torch.zeros(len(ids), dtype=torch.bool)


def _status(error):
    return "error" if isinstance(error, Exception) else "interrupted"


def _statuses(trace):
    return trace["steps"].sort_values("step")["status"].tolist()


def _record_failure(model, error, tmp_path, **settings):
    """Record a generate() that fails, assert what all such failures share, open it again."""
    before = World.now()
    with pytest.raises(type(error)) as caught, tracer.record(tmp_path / "run", strict=True):
        generate(model, text_inputs(), **settings)
    assert caught.value is error
    assert before.differences() == []
    trace = tracer.open_trace(tmp_path / "run")
    (call,) = trace["calls"].itertuples()
    assert (call.kind, call.status) == ("generate", _status(error))
    assert call.duration_ns > 0
    assert trace.rows("faults") == 0
    assert trace.manifest["ended"].startswith(type(error).__name__)
    assert trace["events"]["seq"].is_unique
    return trace


@each_error
def test_an_exception_in_a_forward_passes(llama, tmp_path, error):
    failing = _Failing(error)
    handle = llama.model.layers[1].register_forward_pre_hook(lambda module, args: failing.fail())
    try:
        trace = _record_failure(llama, error, tmp_path)
    finally:
        handle.remove()
    assert _statuses(trace) == ["ok", "ok", _status(error)]
    modules = trace["modules"]
    lost = modules[modules["status"] != "ok"]
    assert {"", "model"} <= set(lost["path"])
    assert (lost["step"] == 2).all()
    assert trace.rows("choices") == 2


@each_error
@pytest.mark.parametrize("effects", [True, False])
def test_an_exception_in_a_logits_processor_passes(llama, tmp_path, error, effects):
    own = LogitsProcessorList([_FailingProcessor(error)])
    trace = _record_failure(llama, error, tmp_path, logits_processor=own)
    assert trace.rows("choices") == 2
    assert _statuses(trace) == ["ok", "ok", _status(error)]
    assert trace["chain"]["class_name"].str.contains("_FailingProcessor").any()


@each_error
def test_an_exception_in_a_stopping_criterion_passes(llama, tmp_path, error):
    own = StoppingCriteriaList([_FailingCriterion(error)])
    trace = _record_failure(llama, error, tmp_path, stopping_criteria=own)
    assert _statuses(trace) == ["ok", "ok", _status(error)]
    assert trace.rows("choices") >= 2


class _FailingStreamer(_Failing):
    def put(self, value):
        self.fail()

    def end(self):
        """Hears the end of an answer that never comes."""


@each_error
def test_an_exception_in_a_streamer_passes(llama, tmp_path, error):
    """It is given the prompt first, then the first token, then fails at the second."""
    before = World.now()
    with pytest.raises(type(error)) as caught, tracer.record(tmp_path / "run", strict=True):
        llama.generate(
            **{name: ids[:1] for name, ids in text_inputs().items()},
            max_new_tokens=5,
            streamer=_FailingStreamer(error),
        )
    assert caught.value is error
    assert before.differences() == []
    trace = tracer.open_trace(tmp_path / "run")
    # Since generation 5 it is given a token once the step that chose it is over.
    assert _statuses(trace) == ["ok", "ok" if release() >= FIVE else _status(error)]
    assert trace.rows("faults") == 0
    assert trace["calls"]["status"].tolist() == [_status(error)]


def test_an_exception_that_the_user_catches_leaves_the_recording_sound(llama):
    error = ValueError("the user's own")
    with tracer.record(strict=True) as recording:
        with pytest.raises(ValueError, match="the user's own"):
            generate(llama, text_inputs(), logits_processor=[_FailingProcessor(error)])
        generate(llama, text_inputs())
    trace = recording.trace
    assert trace["calls"].sort_values("seq")["status"].tolist() == ["error", "ok"]
    assert trace["calls"]["parent"].tolist() == [-1, -1]
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []


def test_a_forward_of_the_user_that_fails_is_a_call_with_an_error(llama):
    with tracer.record(strict=True) as recording, pytest.raises(IndexError):
        llama(input_ids=torch.tensor([[10_000]]))
    (call,) = recording.trace["calls"].itertuples()
    assert (call.kind, call.status) == ("forward", "error")
    modules = recording.trace["modules"].set_index("path")
    assert modules.loc["model.embed_tokens", "status"] == "error"


def _damage(folder, tmp_path, how):
    copy = tmp_path / "模型 copy"
    shutil.copytree(folder, copy)
    shard = sorted(copy.glob("*.safetensors"))[1]
    if how == "missing":
        shard.unlink()
    elif how == "truncated":
        shard.write_bytes(shard.read_bytes()[:-100])
    elif how == "pointer":
        shard.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    else:
        shard.write_bytes(b"")
    return copy, shard.name


@pytest.mark.parametrize("how", ["missing", "truncated", "pointer", "empty"])
def test_a_damaged_checkpoint_fails_as_the_library_fails_and_the_file_is_named(
    llama_folder, tmp_path, how
):
    folder, shard = _damage(llama_folder, tmp_path, how)
    with pytest.raises(Exception) as plain:  # noqa: PT011 - whatever the library says
        AutoModelForCausalLM.from_pretrained(folder)
    before = World.now()
    with (
        pytest.raises(type(plain.value)) as caught,
        tracer.record(tmp_path / "run", strict=True),
    ):
        AutoModelForCausalLM.from_pretrained(folder)
    assert str(caught.value) == str(plain.value)
    assert before.differences() == []
    trace = tracer.open_trace(tmp_path / "run")
    faults = trace["faults"]
    assert (faults["target"].str.contains(shard) | faults["reason"].str.contains(shard)).any()
    assert "error" in set(trace["calls"]["status"])
    assert trace["events"]["duration_ns"].notna().any()


def test_a_good_load_after_a_failed_one_is_told_whole(llama_folder, tmp_path):
    folder, _ = _damage(llama_folder, tmp_path, "truncated")
    with tracer.record(strict=True) as recording:
        with pytest.raises(Exception):  # noqa: B017, PT011
            AutoModelForCausalLM.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(llama_folder)
    placed = recording.trace["placements"]
    names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    assert set(placed["param"]) == names
    assert len(placed) == len(names)
