"""The main job, run for real on the embedded model: what it prints is there and is true."""

import re
from pathlib import Path

import pytest

import tracer
from tracer.analysis.answer import answer_text, answer_tokens
from tracer.demo.story import QUESTION, SCENE, describe, tell_story


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("story") / "demo"


@pytest.fixture(scope="module")
def story(folder: Path) -> str:
    return tell_story(folder)


@pytest.fixture(scope="module")
def trace(story: str) -> tracer.Trace:
    return tracer.open_trace(named(story, "Trace"))


def named(story: str, what: str) -> Path:
    """The path that a story names at its end."""
    return Path(re.search(rf"^{what}\s+(\S.*)$", story, re.MULTILINE)[1])


def test_the_paths_that_it_names_hold_trace_and_csv(story, folder, trace):
    assert named(story, "Trace") == folder
    csv = named(story, "CSV")
    assert csv.name == "demo-csv"
    assert tracer.read_csv(csv).equals(trace)


def test_a_second_run_is_numbered_and_leaves_the_first_alone(story, folder):
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    again = tell_story(folder)
    assert named(again, "Trace").name == "demo-2"
    assert named(again, "CSV").name == "demo-2-csv"
    assert sorted(path.stat().st_mtime_ns for path in folder.rglob("*")) == before


def test_it_can_be_told_again_from_the_trace_alone(story, trace):
    assert story.startswith(describe(trace, f"Picture   {SCENE}\nQuestion  {QUESTION}"))


def test_question_answer_and_every_token_are_told(story, trace):
    assert SCENE in story
    assert QUESTION in story
    tokens = answer_tokens(trace)
    table = story.partition("The answer, token by token\n")[2].partition("\n\n")[0]
    assert len(table.splitlines()) == len(tokens) + 1
    assert len(answer_text(trace)) == 1


def test_stages_come_with_counts_bytes_and_time(story, trace):
    table = story.partition("Stages (")[2].partition("\n\n")[0]
    assert {"events", "total", "size"} <= set(table.splitlines()[1].split())
    lines = [line.split() for line in table.splitlines()[2:]]
    assert {"tensor_load", "prefill", "decode", "encode", "template"} <= {line[0] for line in lines}
    loaded = trace.read("tensor_loads", ["size_bytes"])["size_bytes"].sum()
    assert loaded == trace["checkpoint_tensors"]["size_bytes"].sum()


def test_ten_tensors_are_told_the_slowest_first(story, trace):
    table = story.partition("The ten slowest tensors\n")[2].partition("\n\n")[0]
    told = [line.split()[0] for line in table.splitlines()[1:]]
    loads = trace["tensor_loads"].set_index("key")["duration_ns"]
    assert len(told) == 10
    assert loads[told].is_monotonic_decreasing
    assert loads[told].min() == loads.nlargest(10).min()


def test_every_check_of_the_audit_is_told_with_its_verdict(story, trace):
    told = story.partition("Audit: ")[2].splitlines()
    assert told[0].startswith(f"{len(trace.audit())} checks, ")
    assert sum(line.lstrip().startswith(("holds", "broken", "not ")) for line in told) == len(
        trace.audit()
    )


def test_the_weights_were_compared_with_the_files(trace):
    assert set(trace["placements"].loc[lambda rows: rows["kind"] == "parameter", "verified"]) == {
        "equal"
    }


def test_no_line_is_wider_than_a_wide_terminal(story):
    assert max(map(len, story.splitlines()[:-2])) <= 130
