"""Reasons of verification, which a trace holds in English, are found again in another language."""

import ast
import re
import string
from pathlib import Path

import pytest

import tracer
from tracer.explain.languages import words
from tracer.explain.lookup import audit_word, text
from tracer.explain.recorded import said_again
from tracer.views.cells import cells

ROOM = Path(tracer.__file__).parent / "instrument" / "verifying"
REASONS = words("verification", "en")["verification"]
ENGLISH = re.compile(r"\b[a-z]{2,} [a-z]{2,}\b")
# What may stand in braces, where a test must fill them in; else a name.
SAMPLES = {
    "shape": "[2, 3]", "other_shape": "[]", "dtype": "bfloat16", "other_dtype": "float32",
    "count": "3", "total": "64", "size": "8", "other_size": "4", "dimension": "0",
    "other_dimension": "1", "first": "0", "last": "5", "rest": "7", "span": "0 to 3",
    "other_span": "9", "ranges": "0 to 3, 8 to 11", "other_ranges": "none",
    "reason": "holds nothing but zeros", "source": "its source", "pieces": "0 holds 1, 1 holds 0",
    "quantiser": "toy_rounding", "part": "scales", "place": "[0, 1]",
}  # fmt: skip
# Of these the first is a piece of others, and the second a name and a sentence about it.
PIECES = {"no_range", "part_differs"}


def fields(sentence):
    return [name for _, name, _, _ in string.Formatter().parse(sentence) if name]


@pytest.mark.parametrize("key", REASONS)
def test_every_reason_is_found_again_with_what_stands_in_its_braces(key):
    values = {name: SAMPLES.get(name, "head.weight") for name in fields(REASONS[key])}
    told = said_again(REASONS[key].format(**values), "zh")
    kept = {name: said_again(value, "zh") for name, value in values.items()}
    assert told == text(f"verification.{key}", "zh", **kept)
    assert not ENGLISH.search(told)


def test_what_was_not_recorded_by_the_lab_stays_as_it_is():
    for told in ("head.weight", "some words of a later version", "", "a, b; c"):
        assert said_again(told, "zh") == told


def test_several_reasons_behind_each_other_are_each_found():
    both = "no file with weights was seen to be read; a stranger's words"
    assert said_again(both, "zh") == "没有看到读取任何权重文件；a stranger's words"


def test_english_is_what_was_recorded():
    assert said_again("is a copy of it", "en") == "is a copy of it"
    assert said_again("is a copy of it") == "is a copy of it"


# Sentences there that are no reason: a span's name, keys of a verdict, the ends of pieces.
NO_REASONS = {"weights compared with their sources", "not compared"}


def recorded_sentences():
    """Every text with a space in it that the room of verification makes, braces as `{}`."""
    for path in sorted(ROOM.glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        inside = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr | ast.JoinedStr)
            for part in (node.values if isinstance(node, ast.JoinedStr) else [node.value])
        }
        for node in ast.walk(tree):
            if id(node) in inside:
                continue
            if isinstance(node, ast.JoinedStr):
                parts = (each.value if isinstance(each, ast.Constant) else "{}"
                         for each in node.values)  # fmt: skip
                yield path.name, "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path.name, node.value


def test_every_reason_that_is_recorded_has_words():
    known = [re.sub(r"\{.*?\}", "{}", sentence) for sentence in REASONS.values()]
    lacking, count = [], 0
    for place, sentence in recorded_sentences():
        sentence = sentence.strip(", ")  # pieces that others are put before
        if not re.search("[a-z]{2,} ", sentence) or sentence in NO_REASONS:
            continue
        count += 1
        pattern = re.escape(sentence).replace(re.escape("{}"), ".*")
        if not any(re.search(pattern, one) for one in known):
            lacking.append(f"{place}: {sentence}")
    assert lacking == []
    assert count > 30  # the reader reads


def test_a_table_says_verdicts_and_reasons_in_the_language_that_holds():
    import pandas as pd

    frame = pd.DataFrame({"param": ["a"], "verified": ["different"],
                          "verified_because": ["holds nothing but zeros"]})  # fmt: skip
    tracer.language("zh")
    try:
        assert cells(frame, 80) == [["a", "不同", "全是零"]]
    finally:
        tracer.language("en")
    assert cells(frame, 80) == [["a", "different", "holds nothing but zeros"]]
    assert audit_word("not compared", "zh") == "未比较"
