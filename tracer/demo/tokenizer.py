"""The demo model's byte-level BPE tokenizer: made from the words of its small world.

It has the family's special tokens, pattern and chat template form. Words of pictures are whole
tokens, as are those of the standard system prompt; what is rarer (small talk, purple and orange
in Chinese) stays in pieces, down to single bytes of a character. Used by `checkpoint`.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as splitters

from tracer.demo.questions import every_text
from tracer.demo.words import CHAT

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
SYSTEM_PROMPT = "You are a helpful assistant."

# Pieces of Chinese that become single tokens; all other characters stay in bytes.
CHINESE_PIECES = (
    "红色", "绿色", "蓝色", "黄色", "圆形", "方形", "三角形", "图形", "颜色", "左上角", "右上角",
    "左下角", "右下角", "有一个", "的", "，", "。", "？", "描述", "这张", "图片", "什么", "哪里",
    "我没有看到", "看到", "在", "左边", "右边", "还是", "有", "吗", "几个", "第一", "第二",
    "两个", "三个", "一个", "移动", "往", "视频", "没有", "图里", "是", "你", "我", "请", "图",
    "那里", "上", "下", "左", "右", "里", "张",
)  # fmt: skip

# The family's own pattern; a Chinese sentence is one run of letters.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{% set counts = namespace(images=0, videos=0) %}"
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\n" + SYSTEM_PROMPT + "<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}"
    "{% set counts.images = counts.images + 1 %}"
    "{% if add_vision_id %}Picture {{ counts.images }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' or 'video' in part %}"
    "{% set counts.videos = counts.videos + 1 %}"
    "{% if add_vision_id %}Video {{ counts.videos }}: {% endif %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer() -> Tokenizer:
    """Train the tokenizer; the same words give the same tokens each time."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = splitters.Sequence(
        [
            splitters.Split(Regex(PATTERN), behavior="isolated"),
            splitters.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,  # never reached: it ends when every word of the list is whole
        min_frequency=2,
        initial_alphabet=splitters.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_whole_words() * 2, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS]
    )
    return tokenizer


def _whole_words() -> list[str]:
    """Give the words that become single tokens, each once, in the order of their first use."""
    small_talk = {text for pairs in CHAT.values() for pair in pairs for text in pair}
    texts = ["system\nuser\nassistant\n", SYSTEM_PROMPT]
    texts += [text for text in every_text() if text not in small_talk]
    splitter = splitters.Split(Regex(PATTERN), behavior="isolated")
    pieces = dict.fromkeys(piece for text in texts for piece, _ in splitter.pre_tokenize_str(text))
    words = [piece for piece in pieces if piece.isascii()]
    return [*words, *CHINESE_PIECES]


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """Give the tokenizer's files by name, as a published folder has them."""
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {
        "tokenizer.json": tokenizer.to_str(pretty=False),
        "vocab.json": json.dumps(model["vocab"], ensure_ascii=False),
        "merges.txt": "\n".join(merges) + "\n",
        "tokenizer_config.json": json.dumps(_settings(tokenizer), indent=2),
        "chat_template.json": json.dumps({"chat_template": CHAT_TEMPLATE}, indent=2),
    }


def _settings(tokenizer: Tokenizer) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(text)): {"content": text, **flags, "special": True}
            for text in SPECIAL_TOKENS
        },
        "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 2048,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Write the tokenizer's files into a folder."""
    for name, text in tokenizer_files(tokenizer).items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
