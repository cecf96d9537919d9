"""A model of one's own is asked and recorded: text, GGUF, pictures; and what can't be asked."""

import os

import pytest
import torch
from demo.published import write_gguf
from transformers import ViTConfig

import tracer
from tracer import cli
from tracer.analysis.answer import answer_text
from tracer.demo import checkpoint_folder
from tracer.demo.asking import tell_model_story
from tracer.demo.models import SMOLLM2, Source, find, home, source_of
from tracer.errors import CheckpointError
from tracer.export.text import visible_text


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ask(folder, source, **options):
    """Record a story; give text and trace."""
    story = tell_model_story(folder, source, **options)
    return story, tracer.open_trace(folder)


def broken(trace):
    audit = trace.audit()
    return list(audit.loc[audit["verdict"] == "broken", "check"])


@pytest.fixture(scope="module")
def told_gguf(tmp_path_factory):
    """The story and trace of a tiny GGUF."""
    folder = tmp_path_factory.mktemp("gguf")
    write_gguf(folder / "tiny.gguf")
    return ask(folder / "run", source_of(str(folder)), question="the thé?")


@pytest.fixture(scope="module")
def told_seeing(tmp_path_factory):
    """The story and trace of the embedded model, as a folder of the user's."""
    folder = tmp_path_factory.mktemp("seeing")
    return ask(folder / "run", Source(str(checkpoint_folder())), question="How many shapes?")


@pytest.fixture(scope="module", params=["smollm2", "smollm2-gguf"])
def told_smollm2(request, tmp_path_factory):
    """SmolLM2 asked for a capital, in each form that is in the cache."""
    if find(SMOLLM2, gguf=request.param.endswith("gguf")) is None:
        pytest.skip(f"SmolLM2 is not in {home()}: make models")
    return ask(tmp_path_factory.mktemp(request.param) / "run", source_of(request.param))


@pytest.mark.parametrize("told", ["told_gguf", "told_seeing"])
def test_a_story_has_its_question_its_answer_and_the_paths(told, request):
    story, trace = request.getfixturevalue(told)
    assert "Question  " in story
    assert visible_text(answer_text(trace)[0]) in story
    assert "\nTrace  " in story
    assert "\nCSV    " in story


@pytest.mark.parametrize("told", ["told_gguf", "told_seeing"])
def test_recording_a_model_of_ones_own_has_no_faults(told, request):
    _, trace = request.getfixturevalue(told)
    assert trace["faults"].empty
    assert [name for name in broken(trace) if name != "5 explained time"] == []


def test_a_gguf_is_recorded_tensor_by_tensor_up_to_the_answer(told_gguf):
    _, trace = told_gguf
    assert len(trace["tensor_loads"]) == 2 * 9 + 2
    assert set(trace["placements"]["origin"]) == {"checkpoint", "converted", "tied", "rebuilt"}
    assert trace["files"].query("format == 'gguf'")["read"].tolist() == [True]
    prompt = trace["prompts"]["text"].tolist()[0]
    assert prompt == "<|im_start|>user\nthe thé?<|im_end|>\n<|im_start|>assistant\n"
    assert len(trace["choices"]) == len(trace["steps"]) > 0


def test_the_dtype_of_a_gguf_model_is_said_to_be_the_librarys_default(told_gguf):
    _, trace = told_gguf
    assert "checkpoint" not in trace["models"]["dtype_why"].tolist()[0]


def test_each_reading_of_a_gguf_is_a_stage_of_its_own(told_gguf):
    _, trace = told_gguf
    names = set(trace["spans"]["name"])
    assert {"load_gguf_checkpoint", "read_header", "get_state_dict"} <= names
    assert set(broken(trace)) <= {"5 explained time"}  # a file this small is read in no time


def test_a_model_that_takes_pictures_is_shown_one(told_seeing):
    story, trace = told_seeing
    assert story.startswith("Picture   red circle")
    assert "\nQuestion  How many shapes?\n" in story
    assert len(trace["images"]) == 1


def test_a_model_without_a_chat_template_is_one_sentence_and_its_weights_are_not_read(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", template=None)
    with pytest.raises(CheckpointError, match="has no chat template"):
        tell_model_story(tmp_path / "run", source_of(str(tmp_path)))
    assert tracer.open_trace(tmp_path / "run")["tensor_loads"].empty


def test_a_model_that_is_no_chat_model_is_one_sentence(tmp_path):
    ViTConfig().save_pretrained(tmp_path / "vit")
    with pytest.raises(CheckpointError, match="is a vit model, which is no chat model"):
        tell_model_story(tmp_path / "run", source_of(str(tmp_path / "vit")))


def test_the_command_line_takes_a_folder_and_a_question(tmp_path, capsys):
    write_gguf(tmp_path / "tiny.gguf")
    out = ["--out", str(tmp_path / "run")]
    assert cli.main(["demo", "--model", str(tmp_path), "--question", "Why?", *out]) == 0
    assert capsys.readouterr().out.startswith("Question  Why?\n")


@pytest.mark.parametrize("arguments", [["demo", "--model"], ["models"]])
def test_the_command_line_refuses_a_folder_that_is_not_there(arguments, capsys):
    assert cli.main([*arguments, os.path.join("no", "such", "folder")]) == 2
    assert "tracer: there is no folder" in capsys.readouterr().err


@pytest.mark.slow
def test_smollm2_knows_the_capital_of_france(told_smollm2):
    story, trace = told_smollm2
    assert answer_text(trace)[0] == "The capital of France is Paris.<|im_end|>"
    assert story.startswith(
        "Question  What is the capital of France?\n\nAnswer    The capital of France is Paris"
    )


@pytest.mark.slow
def test_recording_smollm2_has_no_faults(told_smollm2):
    _, trace = told_smollm2
    assert trace["faults"].empty
    assert len(trace["tensor_loads"]) == 272
    assert [name for name in broken(trace) if name != "5 explained time"] == []
