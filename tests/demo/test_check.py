"""Promises of the examination: an honest table, a telling exit status, the same on generations."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracer.demo.card import model_card, write_results
from tracer.demo.check import (
    NEEDED,
    Result,
    differences,
    exam,
    examine,
    exit_status,
    in_batches,
    main,
    table,
)
from tracer.demo.examples import draw
from tracer.demo.questions import Question

ROOT = Path(__file__).resolve().parents[2]
# Folders made by `pip install --no-deps --target FOLDER "transformers==4.57.6" ...`.
GENERATIONS = [each for each in os.environ.get("TRACER_GENERATIONS", "").split(os.pathsep) if each]


def results(kind, language, right, wrong):
    question = Question(kind, language, "What?", "This.")
    return [Result(question, "This.")] * right + [Result(question, "That.")] * wrong


def test_the_table_gives_shares_of_exact_answers_and_names_the_lowest_last():
    lines, lowest = table(results("count", "en", 9, 1) + results("side", "zh", 1, 3))
    assert lines[-1] == "lowest: side in Chinese, 25.0% exact (needed: 97%)"
    assert lowest == 0.25
    (count,) = [line for line in lines if line.startswith("count")]
    assert count.split() == ["count", "90.0%", "nan%", "10"]


def test_an_answer_is_right_only_word_for_word():
    question = Question("count", "en", "How many?", "There is one shape.")
    assert Result(question, "There is one shape.").is_right
    assert not Result(question, "There is one shape").is_right


def test_answers_are_compared_with_those_of_another_run(tmp_path):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(["This.", "This."]), encoding="utf-8")
    found = results("count", "en", 1, 1)
    assert differences(found, path) == ["What? 'That.' instead of 'This.'"]
    assert "holds 2 answers, this run gave 1" in differences(found[:1], path)[0]


def test_the_results_take_the_place_of_the_old_ones_in_the_card(tmp_path):
    old, new = ({("side", "en"): share, ("side", "zh"): share} for share in (0.5, 0.75))
    for shares in (old, new):
        card = model_card(parameters=10, steps=20, shares=shares)
        (tmp_path / f"{shares['side', 'en']}.md").write_text(card, encoding="utf-8")
    card = tmp_path / "README.md"
    (tmp_path / "0.5.md").rename(card)
    write_results(tmp_path, new)
    assert "| side | 75.0% | 75.0% |" in card.read_text("utf-8")
    assert card.read_text("utf-8") == (tmp_path / "0.75.md").read_text("utf-8")


def test_a_batch_holds_messages_with_one_sort_of_pictures():
    examples = list(exam(6))
    batches = in_batches(iter(examples))
    assert sorted(map(id, examples)) == sorted(id(each) for batch in batches for each in batch)
    for batch in batches:
        assert len({(len(each.pictures), each.movie is None) for each in batch}) == 1


def test_an_example_is_drawn_as_its_message_needs_it():
    for example in exam(2):
        drawn = draw(example)
        frames = [4] if example.movie else [1] * len(example.pictures)
        assert [len(picture) for picture in drawn] == frames
        assert all(frame.size == example.size for picture in drawn for frame in picture)


def test_the_embedded_model_passes_a_short_examination():
    found = examine(ROOT / "tracer/demo/seeing", scenes=12)
    assert len(found) == 120
    assert sum(each.is_right for each in found) >= NEEDED * 120


@pytest.mark.parametrize(
    ("others", "lowest", "status"),
    [([], NEEDED, 0), ([], NEEDED - 0.001, 1), (["an answer"], 1.0, 1)],
)
def test_the_exit_status_asks_for_the_same_answers_and_for_enough_right_ones(
    others, lowest, status
):
    assert exit_status(others, lowest) == status


@pytest.mark.parametrize("scenes", [2, 0])
def test_answers_that_differ_from_another_run_are_told_and_fail(tmp_path, capsys, scenes):
    path = tmp_path / "answers.json"
    common = ["--scenes", "2", "--folder", str(ROOT / "tracer/demo/seeing")]
    alone = main([*common, "--save", str(path)])
    saved = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(saved[: 10 * scenes]), encoding="utf-8")
    capsys.readouterr()
    status = main([*common, "--like", str(path)])
    told = capsys.readouterr().out.rstrip().splitlines()
    assert told[-1].startswith("lowest: ")
    if scenes:
        assert told[0].startswith("transformers ")
        assert status == alone
    else:
        assert "holds 0 answers, this run gave 20" in told[0]
        assert status == 1


@pytest.mark.generations
@pytest.mark.parametrize("folder", GENERATIONS or [None])
def test_older_generations_give_the_same_answers(tmp_path, folder):
    if folder is None:
        pytest.skip("TRACER_GENERATIONS names no folder with an older transformers")
    path = tmp_path / "answers.json"
    main(["--scenes", "10", "--save", str(path)])
    command = [sys.executable, "-m", "tracer.demo.check", "--scenes", "10", "--like", str(path)]
    paths = os.pathsep.join((folder, str(ROOT)))
    older = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    # The status also tells of wrong answers; here they only have to be the same ones.
    assert "lowest: " in older.stdout, older.stderr
    assert "instead of" not in older.stdout
