"""Any sequence of starting, stopping, loading, asking and failing keeps the promises."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)
from instrument.toys import World, generate, text_inputs
from transformers import AutoModelForCausalLM

import tracer
from tracer.instrument.installer import INSTALLER

SETTINGS = settings(
    max_examples=6, stateful_step_count=10, deadline=None, derandomize=True, database=None
)


class _Refusing:
    """A processor of the user that raises at its second call."""

    def __init__(self):
        self.calls = 0

    def __call__(self, input_ids, scores):
        self.calls += 1
        if self.calls == 2:
            raise LookupError("the user's own")
        return scores


class Session(RuleBasedStateMachine):
    """A user with models and recordings, each of them begun and ended when it pleases."""

    recordings = Bundle("recordings")
    folder = model = answer = None  # the test below puts them here

    def __init__(self):
        super().__init__()
        self.before = World.now()
        self.on = []

    @rule(target=recordings, detail=st.sampled_from(["stages", "layers", "modules"]))
    def start(self, detail):
        recording = tracer.start(detail=detail)
        self.on.append(recording)
        return recording

    @rule(recording=consumes(recordings))
    def stop(self, recording):
        trace = recording.stop()
        self.on.remove(recording)
        assert trace["events"]["seq"].is_unique
        assert set(trace["calls"]["status"]) <= {"ok", "error"}
        parents = trace["events"].loc[trace["events"]["parent"] >= 0, "parent"]
        assert set(parents) <= set(trace["events"]["seq"])
        assert not trace.rows("faults") or set(trace["faults"]["target"]) == {"routing"}

    @rule()
    def load(self):
        model = AutoModelForCausalLM.from_pretrained(self.folder)
        for name, tensor in self.model.state_dict().items():
            assert torch.equal(model.state_dict()[name], tensor)

    @rule(sample=st.booleans())
    def ask(self, sample):
        answer = generate(self.model, text_inputs(), do_sample=sample).sequences
        assert torch.equal(answer, self.answer[sample])

    @rule()
    def fail(self):
        with pytest.raises(LookupError, match="the user's own"):
            generate(self.model, text_inputs(), logits_processor=[_Refusing()])

    @rule()
    def forward(self):
        with torch.no_grad():
            assert self.model(**text_inputs()).logits.shape[-1] == 640

    @invariant()
    def attached_only_while_something_is_recorded(self):
        if not self.on:
            assert self.before.differences() == []
        assert len(INSTALLER.recorders) == len(self.on)

    def teardown(self):
        for recording in self.on:
            recording.stop()
        assert self.before.differences() == []


@pytest.fixture
def session(llama, llama_folder):
    """The machine, with a model and its right answers."""
    Session.folder, Session.model = llama_folder, llama
    Session.answer = {
        sample: generate(llama, text_inputs(), do_sample=sample).sequences
        for sample in (False, True)
    }
    return Session


def test_any_sequence_keeps_the_promises(session):
    run_state_machine_as_test(session, settings=SETTINGS)


@pytest.mark.slow
def test_many_sequences_keep_the_promises(session):
    many = settings(SETTINGS, max_examples=10, stateful_step_count=14)
    run_state_machine_as_test(session, settings=many)
