"""Promises of the embedded checkpoint: the published format, and files that add up."""

import json
import struct
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from tracer.demo import checkpoint_folder, draw_movie, draw_scene
from tracer.demo.checkpoint import new_model, published_config, special_ids, write_checkpoint

FOLDER = checkpoint_folder()
SHARDS = sorted(FOLDER.glob("*.safetensors"))


def read_header(path):
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return length, json.loads(file.read(length))


@pytest.mark.parametrize("path", SHARDS, ids=lambda path: path.name)
def test_the_tensors_and_the_header_fill_a_shard_exactly(path):
    length, header = read_header(path)
    metadata = header.pop("__metadata__")
    assert metadata == {"format": "pt"}
    ends = [tensor["data_offsets"][1] for tensor in header.values()]
    assert 8 + length + max(ends) == path.stat().st_size
    assert {tensor["dtype"] for tensor in header.values()} == {"BF16"}


def test_three_shards_hold_the_tensors_that_the_index_names():
    index = json.loads((FOLDER / "model.safetensors.index.json").read_text("utf-8"))
    held = {}
    total = 0
    for path in SHARDS:
        _, header = read_header(path)
        del header["__metadata__"]
        held |= dict.fromkeys(header, path.name)
        total += sum(e["data_offsets"][1] - e["data_offsets"][0] for e in header.values())
    assert len(SHARDS) == 3
    assert index["weight_map"] == held
    assert index["metadata"]["total_size"] == total


def test_the_tensors_have_the_published_names():
    index = json.loads((FOLDER / "model.safetensors.index.json").read_text("utf-8"))
    beginnings = {name.split(".")[0] for name in index["weight_map"]}
    assert beginnings == {"visual", "model", "lm_head"}
    assert "model.layers.0.self_attn.q_proj.weight" in index["weight_map"]


def test_the_configuration_is_flat_as_in_published_folders():
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    assert config == published_config(special_ids())
    assert config["rope_scaling"]["type"] == "mrope"
    assert "text_config" not in config
    assert config["tie_word_embeddings"] is False


def test_the_generation_configuration_ships_sampling_values():
    shipped = json.loads((FOLDER / "generation_config.json").read_text("utf-8"))
    assert shipped["do_sample"] is True
    assert {"temperature", "top_p", "top_k", "repetition_penalty"} <= set(shipped)
    assert len(shipped["eos_token_id"]) == 2


def test_the_model_card_says_what_it_is_and_what_it_cannot_do():
    card = (FOLDER / "README.md").read_text("utf-8")
    assert card.startswith("---\nlicense: apache-2.0")
    for heading in ("## What it is", "## How it was trained", "## What it cannot do"):
        assert heading in card


def test_the_folder_is_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3_500_000


@pytest.fixture(scope="module")
def opened():
    model, info = AutoModelForImageTextToText.from_pretrained(FOLDER, output_loading_info=True)
    return AutoProcessor.from_pretrained(FOLDER), model, info


def test_the_library_opens_it_with_nothing_missing_or_left_over(opened):
    _, model, info = opened
    assert not any(info.values())
    assert model.dtype == torch.bfloat16
    assert 1_400_000 < model.num_parameters() < 1_600_000


def ask(opened, content, **media):
    processor, model, _ = opened
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    inputs = processor(text=[text], return_tensors="pt", **media)
    free = {"temperature": None, "top_p": None, "top_k": None}
    output = model.generate(**inputs, max_new_tokens=60, do_sample=False, **free)
    written = output[:, inputs["input_ids"].shape[1] :]
    (answer,) = processor.batch_decode(written, skip_special_tokens=True)
    return answer, inputs


def question(text, *sorts):
    return [*({"type": sort} for sort in sorts), {"type": "text", "text": text}]


def test_it_describes_the_picture_of_the_readme(opened):
    image = draw_scene("red circle top left, blue star bottom right")
    answer, inputs = ask(opened, question("Describe this image.", "image"), images=[image])
    assert inputs["input_ids"].shape == (1, 25 + 16)
    assert answer == "A red circle in the top left and a blue star in the bottom right."


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("How many shapes are there?", "There are two shapes."),
        ("What is in the top right?", "I don't see anything there."),
        ("What colour is the star?", "It is blue."),
        ("Is there a green square?", "No, I don't see one."),
        ("Is the red circle left or right of the blue star?", "It is left of the blue star."),
        ("描述这张图片。", "左上角有一个红色的圆形，右下角有一个蓝色的星形。"),
        ("星形是什么颜色？", "是蓝色的。"),
    ],
)
def test_it_answers_the_usual_questions(opened, text, answer):
    image = draw_scene("red circle top left, blue star bottom right")
    assert ask(opened, question(text, "image"), images=[image])[0] == answer


def test_it_says_which_way_a_shape_moves(opened):
    frames = draw_movie("green square moves up")
    answer, _ = ask(opened, question("Describe this video.", "video"), videos=[frames])
    assert answer == "A green square moves up."


def test_without_a_picture_it_says_that_it_sees_none(opened):
    assert ask(opened, question("Describe this image."))[0] == "I don't see an image."


def test_a_new_model_written_and_opened_holds_the_same_weights(tmp_path):
    model = new_model(seed=1)
    write_checkpoint(model, tmp_path, "card")
    again = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32)
    theirs = again.state_dict()
    assert set(theirs) == set(model.state_dict())
    for name, weight in model.state_dict().items():
        assert torch.equal(theirs[name], weight.bfloat16().float()), name


def test_importing_the_demo_imports_no_torch():
    code = "import sys, tracer.demo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
