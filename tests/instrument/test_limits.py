"""Less on purpose: redacted text, and detail given up over a limit of bytes."""

from pathlib import Path

import pytest
from instrument.toys import ask, generate, text_inputs

import tracer
from tracer.schema import PRIVATE_COLUMNS

SECRETS = ["What is at the top left?", "You are a helpful assistant."]


def test_redacted_traces_hold_no_text_and_no_ids(processor, seeing, tmp_path):
    with tracer.record(tmp_path / "run", strict=True, redact_text=True, logits=False) as recording:
        text, inputs = ask(processor)
        output = seeing.generate(**inputs, max_new_tokens=4, do_sample=False)
        processor.batch_decode(output)
    raw = {path: path.read_bytes() for path in Path(tmp_path).rglob("*") if path.is_file()}
    assert len(raw) > 5
    for secret in (*SECRETS, text):
        assert not [path.name for path, content in raw.items() if secret.encode() in content]
    trace = recording.trace
    for table, columns in PRIVATE_COLUMNS.items():
        assert trace[table][sorted(columns)].isna().all(axis=None), table
    assert trace.rows("tokens") == output.shape[1]
    assert trace["tokens"]["kind"].notna().all()
    assert trace.rows("choices") == 4


def test_redacted_csv_holds_no_word_of_the_prompt(processor, seeing, tmp_path):
    with tracer.record(strict=True, redact_text=True) as recording:
        _, inputs = ask(processor)
        seeing.generate(**inputs, max_new_tokens=2, do_sample=False)
    recording.trace.to_csv(tmp_path / "csv")
    for path in (tmp_path / "csv").iterdir():
        content = path.read_text("utf-8")
        assert not any(secret in content for secret in SECRETS), path.name


def test_the_words_of_an_exception_are_redacted_too(llama, tmp_path):
    with (
        pytest.raises(ValueError, match="bank"),
        tracer.record(tmp_path / "run", strict=True, redact_text=True),
    ):
        raise ValueError("could not answer 'my bank account'")
    assert tracer.open_trace(tmp_path / "run").manifest["ended"] == "ValueError"
    assert "bank" not in (tmp_path / "run" / "manifest.json").read_text("utf-8")


def test_words_and_ids_among_the_settings_are_redacted_too(processor, seeing, tmp_path):
    words = {"stop_strings": ["my bank account"], "tokenizer": processor.tokenizer}
    with tracer.record(strict=True, redact_text=True) as recording:
        _, inputs = ask(processor)
        seeing.generate(**inputs, max_new_tokens=2, do_sample=False, **words)
    recording.trace.to_csv(tmp_path / "csv")
    for path in (tmp_path / "csv").iterdir():
        assert "bank" not in path.read_text("utf-8"), path.name


DROPPED_IN_TURN = ["logits", "modules", "candidates", "effects", "stops", "cache_layers"]


def test_over_max_bytes_detail_goes_in_order_and_choices_stay(llama, tmp_path):
    options = {"logits": True, "detail": "modules", "top_k": 640, "max_bytes": 1}
    with tracer.record(tmp_path / "run", strict=True, **options) as recording:
        for _ in range(12):
            output = generate(llama, text_inputs(), do_sample=False, max_new_tokens=8)
    trace = recording.trace
    dropped = trace.manifest["dropped"]
    assert dropped[0] == "logits"
    assert dropped == DROPPED_IN_TURN[: len(dropped)]
    faults = trace["faults"].sort_values("seq")
    assert faults["reason"].str.contains("max_bytes=1 reached: not recorded from seq").all()
    assert ", ".join(faults["target"]).split(", ") == dropped
    assert trace.rows("choices") == trace.rows("steps") == 12 * len(output.scores)
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []


def test_a_limit_that_is_not_reached_drops_nothing(llama):
    with tracer.record(strict=True, logits=True, max_bytes=50_000_000) as recording:
        generate(llama, text_inputs())
    assert recording.trace.manifest["dropped"] == []
    assert recording.trace.rows("logits") == 5
