"""What a platform does not give is missing from the trace, never 0, and nothing else changes."""

from pathlib import Path

import pytest
import torch
from instrument.toys import generate, text_inputs
from transformers import AutoModelForCausalLM

import tracer
from tracer import clocks
from tracer.instrument import measure

LINUX_ONLY = {
    "tensor_loads": ["rss_bytes", "minor_faults", "major_faults", "disk_bytes"],
    "memory": ["rss_bytes", "anonymous_bytes", "file_bytes", "disk_bytes", "minor_faults"],
    "calls": ["waited_ns", "gap_waited_ns"],
}


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A platform without /proc and without the counters of a thread."""
    for name in ("_STATUS", "_IO"):
        monkeypatch.setattr(measure, name, Path(tmp_path / "none"))
    monkeypatch.setattr(measure, "_PAGES", str(tmp_path / "none"))
    monkeypatch.setattr(measure, "resource", None)
    monkeypatch.setattr(clocks, "_SCHEDULE", Path(tmp_path / "none"))


def _load_and_ask(folder):
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(folder)
        answer = generate(model, text_inputs())
    return answer, recording.trace


def test_columns_that_need_linux_are_missing_elsewhere_and_the_rest_is_there(
    bare, llama, llama_folder
):
    plain = generate(llama, text_inputs())
    answer, trace = _load_and_ask(llama_folder)
    assert torch.equal(answer.sequences, plain.sequences)
    for table, columns in LINUX_ONLY.items():
        assert trace.rows(table) > 0
        assert trace[table][columns].isna().all(axis=None), table
    assert trace["tensor_loads"]["read_ns"].notna().all()
    assert trace.rows("faults") == 0
    verdicts = trace.audit().set_index("check")["verdict"].drop("5 explained time")
    assert "broken" not in set(verdicts)
    assert "tensors" in trace.summary()


def test_missing_columns_stay_missing_in_csv(bare, llama_folder, tmp_path):
    _, trace = _load_and_ask(llama_folder)
    trace.to_csv(tmp_path / "csv")
    again = tracer.read_csv(tmp_path / "csv")
    for table, columns in LINUX_ONLY.items():
        assert again[table][columns].isna().all(axis=None), table


def test_each_counter_goes_missing_by_itself(llama_folder, monkeypatch):
    """As on macOS, which counts faults of the process and not of a thread."""
    if not hasattr(measure.resource, "RUSAGE_THREAD"):
        pytest.skip("this platform is one of them")
    monkeypatch.delattr(measure.resource, "RUSAGE_THREAD")
    _, trace = _load_and_ask(llama_folder)
    assert trace["tensor_loads"][["minor_faults", "major_faults"]].isna().all(axis=None)
    assert (trace["memory"]["rss_bytes"] > 0).all()
