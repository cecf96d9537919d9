"""Both READMEs say the same: sections, commands, files, names and numbers, each in its language."""

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGLISH = (ROOT / "README.md").read_text("utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text("utf-8")
HAN = "\u4e00-\u9fff"


def blocks(text: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)


def prose(text: str) -> str:
    """The text without its blocks of code."""
    return re.sub(r"^```\w*\n.*?^```", "", text, flags=re.M | re.S)


def commands(block: str) -> list[str]:
    """Lines of a block without comments; a tree of files is none."""
    lines = (re.split(r"\s+#", line)[0].rstrip() for line in block.splitlines())
    return [line for line in lines if line]


def files(tree: str) -> set[str]:
    return set(re.findall(r"(?<!\S)[\w.-]+(?:\.\w+|/)(?!\S)", tree))


def test_both_have_the_same_sections():
    heads = [re.findall(r"^#+(?= )", prose(text), re.M) for text in (ENGLISH, CHINESE)]
    assert heads[0] == heads[1]


@pytest.mark.parametrize("number", range(len(blocks(ENGLISH))))
def test_both_have_the_same_code(number):
    english, chinese = blocks(ENGLISH)[number], blocks(CHINESE)[number]
    if "tracer/\n" in english:
        # The Chinese tree has the Chinese README too.
        assert files(english) <= files(chinese)
    else:
        assert commands(english) == commands(chinese)


def test_the_chinese_one_has_every_name_of_the_english_one():
    named = [set(re.findall(r"`([^`\n]+)`", prose(text))) for text in (ENGLISH, CHINESE)]
    assert named[0] - named[1] == set()


def test_both_have_the_same_pictures():
    shown = [re.findall(r"!\[.+?\]\((.+?)\)", text) for text in (ENGLISH, CHINESE)]
    assert shown[0] == shown[1]
    assert all((ROOT / path).is_file() for path in shown[0])


def test_both_have_the_same_tables_with_the_same_numbers():
    rows = [re.findall(r"^\|.*\|$", text, re.M) for text in (ENGLISH, CHINESE)]
    assert len(rows[0]) == len(rows[1])
    for english, chinese in zip(*rows, strict=True):
        assert re.findall(r"\d+\.\d+", english) == re.findall(r"\d+\.\d+", chinese)


def test_each_leads_to_the_other():
    assert "(README.md)" in CHINESE


def chinese_lines() -> list[str]:
    """Lines of prose, each name in code as one Latin letter."""
    return re.sub(r"`[^`\n]*`", "X", prose(CHINESE)).splitlines()


def test_chinese_stands_apart_from_latin_words_and_has_its_own_punctuation():
    for line in chinese_lines():
        assert not re.search(f"[{HAN}][A-Za-z0-9]|[A-Za-z0-9][{HAN}]", line), line
        assert not re.search(f"[{HAN}][,:;?!]|[,:;?!(][{HAN}]|X[,:;]", line), line
        assert not re.search(" [，。：；、（）]|[，。：；、（）] ", line), line


def test_a_chinese_paragraph_is_one_line():
    # A browser shows the end of a line as a space, which Chinese has none of.
    lines = chinese_lines()
    for line, following in itertools.pairwise(lines):
        goes_on = re.match(r"[^\s|#!\[-]", line) and re.match(r"[^|#!\[-]", following)
        assert not goes_on, following
