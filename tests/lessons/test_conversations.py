"""A conversation held in several ways: the right ones agree, and the trap is shown as one."""

import pytest
from transformers import AutoModelForCausalLM

import tracer
from tracer.errors import UnknownNameError
from tracer.lessons.asking import answers, ask
from tracer.lessons.attempts import attempt, outcomes
from tracer.lessons.conversations import WAYS, beside, converse, long_questions
from tracer.lessons.text_model import SMALL_TALK, text_model, with_extremes

LIGHT = {"detail": "stages", "top_k": 0}


@pytest.fixture(scope="module")
def held(speaker):
    """Each way of a conversation whose window drops a turn twice, recorded."""
    model, tokenizer = speaker
    questions = long_questions(tokenizer, 6, 40)
    traces = {}
    for way in WAYS:
        recording = tracer.record(**LIGHT)
        attempt(recording, converse, model, tokenizer, questions, way)
        traces[way] = recording.trace
    return traces


def test_questions_begin_with_a_greeting_and_are_about_so_long(speaker):
    _, tokenizer = speaker
    questions = long_questions(tokenizer, 4, 40)
    lengths = [len(tokenizer(question)["input_ids"]) for question in questions]
    assert questions[0] == "Hello!"
    assert all(40 <= length < 60 for length in lengths[1:])
    assert questions == long_questions(tokenizer, 4, 40)


def test_a_kept_cache_gives_the_tokens_of_the_whole_history(held):
    frame = beside(held["cache"], held["history"])
    assert frame["is_same"].all()
    assert frame["answer"].equals(frame["right_answer"])
    later = frame.iloc[1:]
    assert (later["prefix_tokens"] == later["cached_tokens"]).all()
    assert (later["fed_tokens"] + later["cached_tokens"] == later["prompt_tokens"]).all()


def test_each_way_feeds_what_it_says(held):
    firsts = {way: trace["steps"].query("step == 0") for way, trace in held.items()}
    fed = {way: steps["input_tokens"].tolist() for way, steps in firsts.items()}
    assert fed["history"] == sorted(fed["history"])
    assert max(fed["cache"][1:]) < min(fed["history"][2:])
    assert fed["window"][:3] == fed["history"][:3]
    assert fed["window"][3] < fed["history"][3]
    assert fed["summary"][5] < fed["window"][5]


def test_a_window_with_a_kept_cache_goes_wrong_without_a_message(held):
    frame = beside(held["window and cache"], held["window"])
    dropped = frame.iloc[3:]  # from here on the prompt no longer begins with what is cached
    assert (frame["prefix_tokens"] == frame["cached_tokens"])[1:3].all()
    assert (dropped["prefix_tokens"] < dropped["cached_tokens"]).all()
    assert not dropped["is_same"].all()
    told = outcomes({"recipe": held["window and cache"]})
    assert told["messages"].isna().all()


def test_the_prompt_of_a_turn_is_what_was_handed_over(held):
    """Where a cache is not the prompt's beginning, fed and cached tokens say nothing of it."""
    frame = beside(held["window and cache"], held["window"])
    right = beside(held["window"], held["window"])
    assert frame["prompt_tokens"][3] == right["prompt_tokens"][3]


def test_an_unknown_way_names_those_that_there_are(speaker):
    with pytest.raises(UnknownNameError, match="window and cache"):
        converse(*speaker, ["Hi"], "guess")


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_side_of_padding_matters_in_a_batch_and_not_alone(speaker, side):
    model, tokenizer = speaker
    questions = ["Hi", "Which colours do you know?"]
    tokenizer.padding_side = side
    try:
        alone = [ask(model, tokenizer, question)[0] for question in questions]
        batch = ask(model, tokenizer, questions)
    finally:
        tokenizer.padding_side = "left"
    assert alone == ["Hello! Show me a picture", "Red, green, blue, yellow, purple and"]
    assert (batch[0] == alone[0]) is (side == "left")
    assert batch[1] == alone[1]


def test_answers_of_a_batch_are_told_row_by_row(speaker):
    with tracer.record(**LIGHT) as recording:
        said = ask(*speaker, list(SMALL_TALK[:2]))
    assert answers(recording.trace)["answer"].tolist() == said


def test_the_text_model_is_the_decoder_byte_by_byte(text_folder):
    from safetensors.torch import load_file

    from tracer.demo import checkpoint_folder

    shards = [load_file(path) for path in checkpoint_folder().glob("*.safetensors")]
    whole = {name: tensor for shard in shards for name, tensor in shard.items()}
    text = load_file(text_folder / "model.safetensors")
    assert set(text) == {name for name in whole if not name.startswith("visual.")}
    assert all(tensor.equal(whole[name]) for name, tensor in text.items())


def test_the_text_model_is_written_once(text_folder):
    before = (text_folder / "model.safetensors").stat().st_mtime_ns
    assert text_model(text_folder) == text_folder
    assert (text_folder / "model.safetensors").stat().st_mtime_ns == before


def test_extreme_values_are_in_the_copy_alone(text_folder, tmp_path):
    folder = with_extremes(text_folder, tmp_path / "extreme")
    norm = AutoModelForCausalLM.from_pretrained(folder).model.norm.weight[:3].float()
    plain = AutoModelForCausalLM.from_pretrained(text_folder).model.norm.weight[:3].float()
    assert norm[0].item() == pytest.approx(1e6, rel=0.01)
    assert norm[1].item() == pytest.approx(1e-9, rel=0.01)
    assert norm[2] == plain[2]
    assert plain.abs().max() < 100
