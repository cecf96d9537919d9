"""Promises of the tokenizer: the family's pieces round a picture, and every text comes back."""

import json
from pathlib import Path

import pytest

from tracer.demo import checkpoint_folder
from tracer.demo.questions import every_text
from tracer.demo.tokenizer import SPECIAL_TOKENS, build_tokenizer, tokenizer_files

PUBLISHED = Path(__file__).resolve().parents[3] / "shared/data/folders/Qwen2.5-VL-7B-Instruct"
PROMPT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    "<|vision_start|><|image_pad|><|vision_end|>Describe this image.<|im_end|>\n"
    "<|im_start|>assistant\n"
)
TURNS = [
    {
        "role": "user",
        "content": [
            {"type": "image", "image": "x.png"},
            {"type": "video"},
            {"type": "text", "text": "Describe this image."},
        ],
    },
    {"role": "assistant", "content": "A red circle."},
    {"role": "user", "content": "Thanks!"},
]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def pieces(tokenizer, text):
    ids = tokenizer.encode(text).ids
    return [tokenizer.decode([each], skip_special_tokens=False) for each in ids]


def test_the_standard_question_is_25_text_tokens_round_one_picture(tokenizer):
    found = pieces(tokenizer, PROMPT)
    assert len(found) == 26
    assert found.count("<|image_pad|>") == 1
    assert found[3:9] == ["You", " are", " a", " helpful", " assistant", "."]
    assert found[17:21] == ["Describe", " this", " image", "."]


def test_the_pieces_are_those_of_the_published_tokenizer(tokenizer):
    if not PUBLISHED.exists():
        pytest.skip(f"the published tokenizer's files are not at {PUBLISHED}")
    from transformers import AutoTokenizer

    published = AutoTokenizer.from_pretrained(PUBLISHED)
    ids = published(PROMPT)["input_ids"]
    assert pieces(tokenizer, PROMPT) == [published.decode([each]) for each in ids]


@pytest.mark.parametrize("add_vision_id", [False, True])
def test_the_chat_template_writes_what_the_published_one_writes(add_vision_id):
    if not PUBLISHED.exists():
        pytest.skip(f"the published tokenizer's files are not at {PUBLISHED}")
    from transformers import AutoTokenizer

    written = [
        AutoTokenizer.from_pretrained(folder).apply_chat_template(
            TURNS, tokenize=False, add_generation_prompt=True, add_vision_id=add_vision_id
        )
        for folder in (PUBLISHED, checkpoint_folder())
    ]
    assert written[0] == written[1]


@pytest.mark.parametrize(
    "texts",
    [every_text(), ["🙂 👩‍👩‍👧", "naïve café", "012 345", "\t\n  x\r\n", "مرحبا", "𠮷"]],
    ids=["of the small world", "of any other"],
)
def test_every_text_comes_back_from_its_tokens(tokenizer, texts):
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_chinese_answers_hold_tokens_that_are_parts_of_a_character(tokenizer):
    found = pieces(tokenizer, "左上角有一个紫色的圆形。")
    assert found.count("\ufffd") == 3
    assert "左上角" in found


def test_the_special_tokens_follow_the_words_in_the_family_order(tokenizer):
    ids = [tokenizer.token_to_id(text) for text in SPECIAL_TOKENS]
    words = tokenizer.get_vocab_size(with_added_tokens=False)
    assert ids == list(range(words, words + len(SPECIAL_TOKENS)))


def test_the_files_of_the_folder_are_what_the_builder_makes(tokenizer):
    for name, text in tokenizer_files(tokenizer).items():
        assert (checkpoint_folder() / name).read_text("utf-8") == text


def test_the_two_places_of_the_chat_template_agree():
    folder = checkpoint_folder()
    templates = [
        json.loads((folder / name).read_text("utf-8"))["chat_template"]
        for name in ("chat_template.json", "tokenizer_config.json")
    ]
    assert templates[0] == templates[1]
