"""Rows that are made after the user's call: true whatever has happened in between."""

import shutil
import weakref

import pytest
import torch
from instrument.toys import generate, text_inputs
from transformers import AutoModelForCausalLM, Pipeline

import tracer
from tracer.instrument.installer import INSTALLER
from tracer.instrument.loads import placements
from tracer.journal import Journal
from tracer.ledger import Options
from tracer.recorder import Recorder
from tracer.trace import Trace

TABLES = ("models", "meta_params", "checkpoint_tensors", "tensor_loads", "placements")


def _fault(recorder, name="one"):
    recorder.add_fact("stops", 1, 1, token_id=1)
    recorder.fault(name, "said once")


def _closed(recorder):
    recorder.end()
    return Trace(recorder.sink.close({"schema_version": 1}))


def test_an_interrupt_leaves_a_lot_whole_for_the_next_time():
    recorder, interrupts = Recorder(Journal(None), Options(), strict=True), [KeyboardInterrupt()]

    def make():
        _fault(recorder)
        if interrupts:
            raise interrupts.pop()

    recorder.add_later("rows", make)
    with pytest.raises(KeyboardInterrupt):
        recorder.flush()
    trace = _closed(recorder)
    assert trace.rows("stops") == trace.rows("faults") == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_lot_that_fails_is_a_fault_and_the_others_are_made(strict):
    recorder = Recorder(Journal(None), Options(), strict=strict)

    def fail():
        raise ValueError("no rows")

    recorder.add_later("the lot", fail)
    recorder.add_later("the next", lambda: _fault(recorder))
    if strict:
        with pytest.raises(ValueError, match="no rows"):
            recorder.make_rows()
    trace = _closed(recorder)
    assert set(trace["faults"]["target"]) == {"the lot", "one"}
    assert trace.rows("stops") == 1


def _told(trace):
    """What the tables of a load say, without the times of one run."""
    return {
        table: trace[table].drop(
            columns=[name for name in trace[table] if name.endswith(("_ns", "_bytes", "_faults"))]
            + [name for name in ("seq", "thread", "worker") if name in trace[table]]
        )
        for table in TABLES
    }


@pytest.mark.generations
def test_what_happens_to_model_and_folder_after_the_call_changes_no_row(llama_folder, tmp_path):
    with tracer.record(strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(llama_folder)
    expected = _told(recording.trace)
    moved = tmp_path / llama_folder.name
    shutil.copytree(llama_folder, moved)
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(moved)
        model.half()
        model.lm_head = torch.nn.Linear(3, 2)
        shutil.rmtree(moved)
        parameter = weakref.ref(model.model.norm.weight)
        del model
        assert parameter() is None  # nothing waits with a tensor in its hands
    found = _told(recording.trace)
    assert recording.trace.rows("faults") == 0
    for table in TABLES:
        own = [frame.astype(str).replace({str(moved): str(llama_folder)}, regex=True)
               for frame in (found[table], expected[table])]  # fmt: skip
        columns = [name for name in own[0] if name != "stack"]
        key = "key" if table == "tensor_loads" else columns[0]
        one, other = (frame[columns].sort_values(key).reset_index(drop=True) for frame in own)
        assert one.equals(other), table


@pytest.mark.generations
def test_a_kill_after_the_next_writing_keeps_the_load(llama_folder, tmp_path):
    with tracer.record(tmp_path / "run", strict=True):
        model = AutoModelForCausalLM.from_pretrained(llama_folder)
        INSTALLER.recorders[-1]._last_flush -= 2_000_000_000  # the second in which rows may wait
        generate(model, text_inputs())
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
    killed, whole = tracer.open_trace(tmp_path / "killed"), tracer.open_trace(tmp_path / "run")
    for table in TABLES:
        assert killed.rows(table) == whole.rows(table) > 0


@pytest.mark.generations
def test_an_interrupt_while_the_rows_of_a_load_are_made_loses_none(
    llama_folder, tmp_path, monkeypatch
):
    describe, interrupts = placements.describe, []

    def interrupted(load):
        describe(load)
        if interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(placements, "describe", interrupted)
    with tracer.record(tmp_path / "whole", strict=True):
        AutoModelForCausalLM.from_pretrained(llama_folder)
    interrupts.append(KeyboardInterrupt())
    recording = tracer.start(tmp_path / "run", strict=True)
    AutoModelForCausalLM.from_pretrained(llama_folder)
    with pytest.raises(KeyboardInterrupt):
        recording.stop()
    trace, whole = recording.stop(), tracer.open_trace(tmp_path / "whole")
    for table in TABLES:
        assert trace.rows(table) == whole.rows(table) > 0
    audit = trace.audit()
    checks = audit["check"].str.split().str[0].isin(["1", "2", "3", "5"])
    assert set(audit[checks]["verdict"]) == {"holds"}


def test_a_model_made_before_is_met_inside_a_pipeline(llama):
    class Plain(Pipeline):
        def _sanitize_parameters(self, **_):
            return {}, {}, {}

        def preprocess(self, given):
            return text_inputs()

        def _forward(self, given):
            return self.model(**given)

        def postprocess(self, made):
            return made.logits.shape

    pipe = Plain(model=llama, tokenizer=None, device="cpu")
    with tracer.record(strict=True) as recording:
        pipe("anything")
    modules = recording.trace["modules"]
    assert {"", "model", "lm_head"} <= set(modules["path"])
    assert modules["path"].is_unique
