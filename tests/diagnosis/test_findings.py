"""What the doctor answers: order, text, cards, JSON, exit codes, and what it could not tell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from diagnosis.faults import published
from synthetic import MANIFEST, coherent_rows, make_trace

import tracer
from tracer.cli import main
from tracer.demo import checkpoint_folder
from tracer.diagnosis import rules
from tracer.diagnosis.examine import doctor
from tracer.diagnosis.finding import Finding, Found, Untold, cells, shown_value
from tracer.diagnosis.findings import Findings

EVIL = '<img src=x onerror="alert(1)">\x1b[2J'
PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "folders"


def finding(rule="weights_initialised", severity="fatal", name=EVIL):
    values = {"model": name, "count": 3, "whole": 9, "share": "1.0 %", "first": name}
    rows = (cells("placements", {"param": name}, origin="initialised", size_bytes=2048),)
    return Finding(rule, severity, values, rows, "huggingface/transformers#1")


@pytest.fixture
def only(monkeypatch):
    """Let the doctor know these rules alone."""

    def know(*some):
        monkeypatch.setattr(rules, "RULES", [])
        for looks_at, look in some:
            rules.rule("weights_initialised", "warning", looks_at)(look)

    return know


def test_the_worst_comes_first():
    found = Findings([finding(severity="note"), finding(severity="fatal")])
    assert [one.severity for one in found] == ["fatal", "note"]
    assert found.frame()["severity"].tolist() == ["fatal", "note"]
    assert json.loads(found.frame()["evidence"][0])[0]["table"] == "placements"


def test_what_comes_from_a_stranger_is_escaped():
    found = Findings([finding()], subject=EVIL)
    page = found._repr_html_()
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\x1b" not in str(found)
    assert '<a href="https://github.com/huggingface/transformers/issues/1">' in page
    assert "2.05 kB" in page  # rows speak in units, as all tables do


def test_it_speaks_the_language_in_force():
    found = Findings([finding(name="m")])
    assert "fresh random values" in str(found)
    tracer.language("zh")
    try:
        assert "新的随机值" in str(found)
        assert "为什么重要" in found._repr_html_()
    finally:
        tracer.language("en")


def test_a_reason_in_a_sentence_is_told_in_the_language_asked_for():
    assert shown_value("reason", "one beam only", "zh") == "只有一个束"
    assert shown_value("reason", "one beam only") == "one beam only"
    assert shown_value("files", ["a", "b", "c", "d"], "zh") == "a, b, c 以及另外 1 个"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("missing_bytes", 2_000_000, "2.00 MB"), ("again_ns", 1_500_000_000, "1.50 s"),
        ("count", 12_345, "12,345"), ("pad_id", 151_643, "151643"), ("files", None, "-"),
        ("files", ["a", "b", "c", "d", "e"], "a, b, c and 2 more"), ("share", 0.25, "0.25"),
    ],
)  # fmt: skip
def test_values_are_shown_in_their_units(name, value, shown):
    assert shown_value(name, value) == shown


def test_a_rule_that_fails_hides_no_other(only):
    def fails(trace):
        raise ZeroDivisionError("of this test")
        yield

    only(("trace", fails), ("trace", lambda trace: [Found(finding(name="m").values)]))
    found = doctor(make_trace(coherent_rows()))
    assert [one.rule for one in found] == ["weights_initialised"]
    (question,) = found.undecided
    assert question.needs == "rule_failed"
    assert "ZeroDivisionError: of this test" in question.sentence
    assert "could not look" in str(found)


def test_what_it_can_not_tell_names_the_run_that_would(only):
    only(("trace", lambda trace: [Untold("verify_weights"), Untold("verify_weights")]))
    found = doctor(make_trace(coherent_rows()))
    assert (found, len(found.undecided)) == ([], 1)
    assert "verify_weights=True" in str(found)
    assert "verify_weights=True" in found._repr_html_()
    assert found.content()["undecided"][0]["needs"] == "verify_weights"


@pytest.mark.parametrize("lost", [{"dropped": ["steps"]}, {"lost": [{"table": "steps"}]}])
def test_tables_that_lost_rows_prove_nothing(only, lost):
    def asks(trace):
        return [Found(finding(name="m").values)] if len(trace["steps"]) >= 0 else []

    only(("trace", asks))
    rows = {name: part for name, part in coherent_rows().items() if name != "steps"}
    lost = {"lost": [{"table": "steps", "written": 3, "found": 0}]} if "lost" in lost else lost
    found = doctor(make_trace(rows, manifest=MANIFEST | lost))
    assert (found, [one.needs for one in found.undecided]) == ([], ["whole_tables"])


def test_a_folder_and_a_trace_are_looked_at_without_torch(tmp_path):
    script = (
        "import sys, tracer; tracer.doctor(sys.argv[1]); tracer.doctor(sys.argv[2]);"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    make_trace(coherent_rows()).save(tmp_path / "run.zip")
    subjects = [checkpoint_folder(), tmp_path / "run.zip"]
    done = subprocess.run(
        [sys.executable, "-c", script, *subjects], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_the_command_line_tells_by_its_exit_status(tmp_path, capsys):
    folder = checkpoint_folder()
    assert main(["doctor", str(folder)]) == 1
    assert "folder_pad_is_end" in capsys.readouterr().out
    assert main(["doctor", "--json", str(folder)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert {one["rule"] for one in told["findings"]} == {"folder_pad_is_end", "settings_shipped"}
    assert main(["doctor", str(tmp_path / "nothing")]) == 2
    assert "is no folder" in capsys.readouterr().err
    make_trace({}).save(tmp_path / "empty.zip")
    assert main(["doctor", str(tmp_path / "empty.zip")]) == 0
    (tmp_path / "note.txt").write_text("no trace", "utf-8")
    assert main(["doctor", str(tmp_path / "note.txt")]) == 2


def broken_subjects(place):
    """Paths at which the doctor can't look, each by what is wrong with it."""
    (place / "torn.zip").write_bytes(b"PK\x03\x04 torn")
    (place / "trace").mkdir()
    (place / "trace" / "manifest.json").write_text("{", "utf-8")
    (place / "circle").symlink_to("circle")
    os.mkfifo(place / "pipe")
    return {
        "a torn zip": "torn.zip", "a manifest that was cut": "trace", "a link to itself": "circle",
        "a pipe": "pipe", "nothing": "nothing", "a name that is too long": "a" * 5000,
    }  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_can_not_be_read_is_status_two_in_one_sentence(tmp_path, capsys):
    for what, name in broken_subjects(tmp_path).items():
        assert main(["doctor", str(tmp_path / name)]) == 2, what
        told = capsys.readouterr()
        assert (told.out, told.err.count("\n")) == ("", 1), what
        assert "Traceback" not in told.err


def test_a_crash_is_status_two_and_says_what_happened(tmp_path, capsys, monkeypatch):
    def crashes(path):
        raise ZeroDivisionError("of this test")

    monkeypatch.setattr(tracer, "doctor", crashes)
    assert main(["doctor", str(tmp_path)]) == 2
    assert "ZeroDivisionError: of this test" in capsys.readouterr().err


def test_json_tells_all_that_the_text_tells(capsys):
    folder = checkpoint_folder()
    main(["doctor", "--json", str(folder)])
    told = json.loads(capsys.readouterr().out)
    found = doctor(folder)
    assert told == found.content()
    assert told["subject"] == str(folder)
    for one, row in zip(found, told["findings"], strict=True):
        assert (row["title"], row["fix"]) == (one.title, one.fix)
        assert len(row["evidence"]) == len(one.evidence) > 0
    assert {one["rule"] for one in told["undecided"]} == {one.rule for one in found.undecided}
    assert all(one["sentence"] and one["title"] for one in told["undecided"])


def test_a_folder_says_what_only_a_load_or_a_run_can_tell(tmp_path):
    needs = {one.rule: one.needs for one in doctor(checkpoint_folder()).undecided}
    assert needs["weights_initialised"] == "built_model"
    assert needs["weights_differ"] == "verified_load"
    assert needs["template_missing"] == "recorded_answer"
    told = str(doctor(checkpoint_folder()))
    # One line for all that the same look would tell.
    assert told.count("tracer.inspect(folder).model()`") == 1
    # Of a folder that no load comes through, the files are the first question.
    (tmp_path / "config.json").write_text("{}", "utf-8")
    assert doctor(tmp_path).undecided == []


def test_a_rule_that_could_not_look_is_no_clean_bill(only, tmp_path, capsys):
    only(("trace", lambda trace: 1 / 0))
    make_trace({}).save(tmp_path / "empty.zip")
    assert main(["doctor", str(tmp_path / "empty.zip")]) == 2
    assert "could not look" in capsys.readouterr().out


def test_what_is_no_subject_is_refused_in_one_sentence():
    with pytest.raises(tracer.TracerError, match="can't look at a dict"):
        doctor({})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Devstral-Small-2507", {"file_absent", "folder_without_tokenizer"}),
        ("WizardLM-2-8x22B", {"file_pointer", "folder_without_template"}),
        ("granite-3.1-1b-a400m-instruct", {"file_pointer", "folder_pad_is_end"}),
        (
            "Qwen2.5-VL-7B-Instruct",
            {"folder_incomplete", "folder_pad_is_end", "settings_shipped"},
        ),
    ],
)
def test_published_folders_get_what_they_deserve(name, expected):
    if not (PUBLISHED / name).is_dir():
        pytest.skip(f"the published folder {name} is not on this machine")
    found = {one.rule for one in doctor(PUBLISHED / name)}
    # Whether the weights have room depends on the machine.
    assert found - {"memory_too_small"} == expected


def test_no_value_of_another_kind_stops_a_rule(bench):
    looked = 0
    for name, folder in published.odd_folders(bench):
        found = doctor(folder)
        assert [one for one in found.undecided if one.needs == "rule_failed"] == [], name
        assert found.content()
        looked += 1
    assert looked > 50
