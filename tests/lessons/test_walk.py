"""The walk as printed fails where it fails, one row an error, and answers when repaired."""

import ast

import pytest

import tracer
from tracer.lessons import walk
from tracer.lessons.attempts import attempt, error_of, outcomes
from tracer.lessons.pitfalls import (
    cast_losses,
    continue_ids,
    forward_in_each_mode,
    times_by_mode,
    tiny,
)

LIGHT = {"detail": "stages", "top_k": 0}


@pytest.fixture(scope="module")
def attempted(text_folder):
    """The traces of all attempts, by name."""
    recordings = {}

    def record(name):
        recordings[name] = tracer.record(**LIGHT)
        return recordings[name]

    names = walk.run_walk(record, text_folder, new_tokens=2)
    assert names == list(recordings)
    return {name: recording.trace for name, recording in recordings.items()}


def test_the_text_is_python_and_so_is_the_repaired_one():
    for text in (walk.as_printed(), walk.repaired()):
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        assert [one.name for one in functions] == ["init_model_and_tokenizer", "generate_response"]


def test_no_lost_word_is_left_when_all_is_repaired():
    for lost in (".pad_ ", ".eos_\n", "pad__id", "eos__id", "hf_device_map"):
        assert lost in walk.as_printed()
        assert lost not in walk.repaired()


def test_every_error_is_a_row_and_the_last_attempt_answers(attempted):
    frame = walk.failures(attempted.values())
    kinds = frame["error"].str.partition(":")[0].tolist()
    assert kinds == ["AttributeError"] * 4 + ["ValueError", "none"]
    assert frame["line"].tolist()[:5] == [18, 29, 69, 70, 69]
    assert frame["repaired_to"].iloc[4] == "pad_token_id=tokenizer.pad_token_id,"
    assert frame["code"].iloc[:5].ne(frame["repaired_to"].iloc[:5]).all()
    assert attempted["printed-5"].rows("choices") == 2


def test_attempts_are_found_by_their_names_until_one_answers(attempted):
    found = list(walk.attempts(attempted.__getitem__))
    assert found == list(attempted.values())


def test_kept_attempts_give_the_same_rows(attempted, tmp_path):
    kept = walk.keep_attempts(attempted.values(), tmp_path, "5.0-")
    opened = [tracer.open_trace(path) for path in kept]
    assert walk.failures(opened).equals(walk.failures(attempted.values()))
    assert max(path.stat().st_size for path in kept) < 60_000


def test_an_attempt_keeps_its_error_and_passes_nothing_on():
    recording = tracer.record(**LIGHT)
    assert attempt(recording, int, "x") is None
    assert error_of(recording.trace).startswith("ValueError: invalid literal")
    (row,) = outcomes({"one": recording.trace}).to_dict("records")
    assert row["outcome"] == "ValueError"
    assert "invalid literal" in row["error"]


def test_an_attempt_that_ends_well_gives_its_result():
    recording = tracer.record(**LIGHT)
    assert attempt(recording, int, "7") == 7
    assert error_of(recording.trace) is None


@pytest.mark.parametrize(("kind", "outcome"), [("gpt2", "IndexError"), ("llama", "completed")])
def test_a_prompt_that_is_too_long_ends_by_the_kind_of_model(kind, outcome):
    recording = tracer.record(**LIGHT)
    attempt(recording, continue_ids, tiny(kind), 40)
    assert outcomes({kind: recording.trace})["outcome"].tolist() == [outcome]


def test_forwards_are_timed_by_mode_and_compared_within_a_round(speaker):
    with tracer.record(**LIGHT) as recording:
        forward_in_each_mode(*speaker, repeats=3)
    frame = times_by_mode(recording.trace).set_index("grad_mode")
    assert frame["forwards"].tolist() == [3, 3, 3]
    assert frame.loc["no_grad", "beside_no_grad"] == 1
    assert (frame["fastest_ns"] <= frame["median_ns"]).all()
    assert (frame["lowest_ratio"] <= frame["highest_ratio"]).all()


def test_values_that_a_cast_can_not_hold_are_counted(text_folder, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    from tracer.lessons.text_model import with_extremes

    folder = with_extremes(text_folder, tmp_path / "extreme")
    with tracer.record(detail="stages", verify_weights=True) as recording:
        for dtype in (torch.float32, torch.float16):
            AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    lost = cast_losses(recording.trace).set_index("dtype")
    assert lost.loc["float16", ["new_infinities", "new_zeros"]].tolist() == [1, 1]
    assert lost.loc["float32", ["new_infinities", "new_zeros"]].tolist() == [0, 0]
