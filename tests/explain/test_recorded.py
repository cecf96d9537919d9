"""Reasons that a trace holds in English are found again in another language."""

import ast
import re
import string
from pathlib import Path

import pytest

import tracer
from tracer.explain.lookup import audit_word, section_words, text
from tracer.explain.recorded import _SECTIONS, said_again
from tracer.views.cells import RECORDED, cells, told

PACKAGE = Path(tracer.__file__).parent
SHIPPED = PACKAGE.parent / "notebooks" / "traces"
WRITES = re.compile(r"\b_?fault\(")
# Files that write reasons down: all that records, and what is computed of a recording.
ROOMS = [
    *sorted((PACKAGE / "instrument").rglob("*.py")),
    *(path for path in sorted(PACKAGE.glob("*.py")) if WRITES.search(path.read_text("utf-8"))),
    *(PACKAGE / "merging.py", PACKAGE / "analysis" / "load_memory.py"),
]
REASONS = {
    f"{section}.{key}": sentence
    for section in _SECTIONS
    for key, sentence in section_words(section, "en").items()
}
CHINESE = re.compile("[\u4e00-\u9fff]")
ENGLISH = re.compile(r"\b[a-z]{2,} [a-z]{2,}\b")
NAMES = re.compile("state dict|`git lfs pull`|transformers head.weight")
# What may stand in braces, where a test must fill them in; else a name.
SAMPLES = {
    "shape": "[2, 3]", "other_shape": "[]", "dtype": "bfloat16", "other_dtype": "float32",
    "count": "3", "total": "64", "size": "8", "other_size": "4", "dimension": "0",
    "other_dimension": "1", "first": "0", "last": "5", "rest": "7", "span": "0 to 3",
    "other_span": "9", "ranges": "0 to 3, 8 to 11", "other_ranges": "none",
    "reason": "holds nothing but zeros", "source": "its source", "pieces": "0 holds 1, 1 holds 0",
    "difference": "holds nothing but zeros", "quantiser": "toy_rounding", "part": "scales",
    "place": "[0, 1]", "call": "4", "rank": "1", "other_rank": "0", "by": "helper",
    "limits": "min_pixels=3136, max_pixels=12845056", "acted": "max_pixels", "step": "do_resize",
    "found": "12", "method": "_sample", "operations": "Chunk, Transpose",
    "limit": "memory of the machine", "params": "model.q.weight, model.k.weight",
    "filesystem": "a file system that is not known",
}  # fmt: skip


def fields(sentence):
    return [name for _, name, _, _ in string.Formatter().parse(sentence) if name]


@pytest.mark.parametrize("key", REASONS)
def test_every_reason_is_found_again_with_what_stands_in_its_braces(key):
    values = {name: SAMPLES.get(name, "head.weight") for name in fields(REASONS[key])}
    recorded = REASONS[key].format(**values)
    kept = {name: said_again(value, "zh") for name, value in values.items()}
    assert said_again(recorded, "zh") == text(key, "zh", **kept)
    assert not ENGLISH.search(NAMES.sub("", said_again(recorded, "zh")))
    assert CHINESE.search(said_again(recorded, "zh"))


def test_what_was_not_recorded_by_the_lab_stays_as_it_is():
    for one in ("head.weight", "some words of a later version", "", "a, b; c"):
        assert said_again(one, "zh") == one


def test_several_reasons_behind_each_other_are_each_found():
    both = "no file with weights was seen to be read; a stranger's words"
    assert said_again(both, "zh") == "没有看到读取任何权重文件；a stranger's words"


def test_english_is_what_was_recorded():
    assert said_again("is a copy of it", "en") == "is a copy of it"
    assert said_again("is a copy of it") == "is a copy of it"


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (
            "in no file; its class expects it in no file",
            "不在任何文件中；模型类本就不期待文件中有它",
        ),
        (
            "brought by the load of call 4: in no file; written by the class's own initialisation",
            "由调用 4 的加载带来：不在任何文件中；由模型类自己的初始化写入",
        ),
        (
            "2 tensors of the file went into it and 1 other; left in its file, "
            "which is read at each use",
            "文件中的 2 个张量用于它和另外 1 个参数；留在文件中，每次使用时读取",
        ),
        (
            "head of the file has shape [640, 128], not [648, 128]; "
            "written by the class's own initialisation",
            "文件中的 head 形状为 [640, 128]，而不是 [648, 128]；由模型类自己的初始化写入",
        ),
        ("beam search, sampling (_beam_search)", "束搜索、采样（_beam_search）"),
        ("greedy (_sample), rows change places", "贪心（_sample）、各行会换位"),
        (
            "helper: min_pixels=4, max_pixels=9; none acted. "
            "processor: multiples of the patch only",
            "helper：min_pixels=4, max_pixels=9；都没有起作用。processor：只取图块边长的整数倍",
        ),
        (
            "model.safetensors has 8 bytes, its header alone needs 100; the download was cut short",
            "model.safetensors 有 8 字节，仅文件头就需要 100 字节：下载被截断了",
        ),
        (
            "read only where variant='fp16' asks for it",
            "只有用 variant='fp16' 指明时才读取",
        ),
        (
            "_sample: of some choices no scores were seen: no distribution is told",
            "_sample：有些选择没有看到分数：没有给出分布",
        ),
    ],
)
def test_a_reason_made_of_several_is_told_whole(recorded, said):
    assert said_again(recorded, "zh") == said


@pytest.mark.parametrize(
    "name", ["call", "library", "checkpoint", "config.json", "helper: library. processor: library"]
)
def test_a_key_among_the_reasons_stays_a_key(name):
    assert said_again(name, "zh") == name


def test_a_strangers_text_is_no_labyrinth():
    for piece in ("a: ", "brought by the load of call 4: ", "x, ", "a (b); ", "set as a. "):
        told = piece * (990 // len(piece)) + "end"
        assert isinstance(said_again(told, "zh"), str)
    assert said_again("a: " * 300 + "end", "zh") == "a: " * 300 + "end"


def test_a_page_of_text_is_not_searched():
    long = "set as " + "a" * 100_000
    assert said_again(long, "zh") == long


# Calls whose texts are names: of spans, of the recorder's own work, of what is kept for later.
NAMING = {
    "own_work", "guard", "Guard", "open_span", "open_call", "open_build", "sample_memory",
    "facts_of", "setdefault", "get", "pop", "note", "add_later", "phrase", "compile",
}  # fmt: skip
# Texts there that are no reason.
NO_REASONS = {
    # names of spans, samples and the recorder's own work
    "weights compared with their sources", "facts of the load", "module hook",
    "before the first forward", "after the first forward", "first forward", "between reads",
    "values of modules", "tracer journal",
    # keys and values that stand for themselves
    "not compared", "partly cold", "stop string", "by position", "by keyword",
    "given, not recorded", "{} (as byte {})",
    # what a target's condition is called, what the manifest says of costs, and Python's own errors
    "{}: a tensor had a place in the model",
    "{}: a tensor had a place that is not cut between ranks",
    "{}: a tensor had a place that is cut between ranks",
    "{}: a parameter got values that are not offloaded to the disk",
    "own_spans_ns measured; module_call_ns, observed_call_ns, share estimated",
    "{} has no attribute {}", "there is no row {} among {}",
}  # fmt: skip


def no_sentences(tree):
    """What is a docstring, a piece of a text that is put together, a name, or compared with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield from node.values
        elif isinstance(node, ast.Subscript):
            yield node.slice
        elif isinstance(node, ast.Compare):
            yield from ast.walk(node)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            for each in node.args if name in NAMING else ():
                yield from ast.walk(each)


def recorded_sentences():
    """Every text of several words that these rooms make, braces as `{}`."""
    for path in ROOMS:
        tree = ast.parse(path.read_text("utf-8"))
        left_out = set(map(id, no_sentences(tree)))
        for node in ast.walk(tree):
            if id(node) in left_out:
                continue
            told = ""
            if isinstance(node, ast.JoinedStr):
                parts = (each.value if isinstance(each, ast.Constant) else "{}"
                         for each in node.values)  # fmt: skip
                told = "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                told = node.value
            told = told.strip(",;: ")  # pieces that others are put before or behind
            if re.search(r"[a-z]{2,},? [a-z{]|} [a-z]", told) and told not in NO_REASONS:
                yield path.name, told


def is_known(sentence, known):
    """Whether it is a sentence that has words, or a piece of one."""
    pattern = re.escape(sentence).replace(re.escape("{}"), ".*")
    return any(re.search(pattern, one) for one in known)


def test_every_reason_that_is_recorded_has_words():
    known = [re.sub(r"\{.*?\}", "{}", sentence) for sentence in REASONS.values()]
    lacking, count = [], 0
    for place, sentence in recorded_sentences():
        count += 1
        pieces = re.split("[;,] ", sentence)
        if not (is_known(sentence, known) or all(is_known(one, known) for one in pieces)):
            lacking.append(f"{place}: {sentence}")
    assert lacking == []
    assert count > 200  # the reader reads


def test_a_reason_without_words_would_be_found():
    assert not is_known("the moon was in the way of {}", ["set as {}", "{} is off"])


def test_every_reason_of_the_shipped_traces_is_told_in_chinese():
    told_of = 0
    for path in sorted(SHIPPED.rglob("*.zip")):
        trace = tracer.open_trace(path)
        for table in trace.tables:
            for name in RECORDED.keys() & set(tracer.schema.TABLES[table].column_names):
                for value in trace.read(table, [name])[name].dropna().unique():
                    said = told(name, value, "zh")
                    assert not ENGLISH.search(NAMES.sub("", said)), f"{path.name}: {said}"
                    told_of += said != value
    assert told_of > 500


def test_a_table_says_verdicts_and_reasons_in_the_language_that_holds():
    import pandas as pd

    frame = pd.DataFrame({"param": ["a"], "verified": ["different"],
                          "verified_because": ["holds nothing but zeros"],
                          "because": ["set from the file"]})  # fmt: skip
    tracer.language("zh")
    try:
        assert cells(frame, 80) == [["a", "不同", "全是零", "取自文件"]]
    finally:
        tracer.language("en")
    assert cells(frame, 80) == [["a", "different", "holds nothing but zeros", "set from the file"]]
    assert audit_word("not compared", "zh") == "未比较"
