"""What the lab refuses is told in the language that holds, and written down in English."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import tracer
from tracer import errors
from tracer.errors import CheckpointError, StorageError, TracerError, in_english
from tracer.explain.sentences import phrase, say

PACKAGE = Path(tracer.__file__).parent
CHINESE = re.compile("[\u4e00-\u9fff]")
# Two words beside each other, in lower case: a piece of an English sentence.
ENGLISH = re.compile(r"\b[a-z]{2,} [a-z]{2,}\b")


@pytest.fixture
def chinese():
    tracer.language("zh")
    yield
    tracer.language("en")


def raised(action, kind=TracerError):
    with pytest.raises(kind) as caught:
        action()
    return caught.value


def names_of_errors(trees):
    """Every class of the tree of errors that is given its message, wherever it is written.

    Read out of the files: which modules were imported before is chance. A class that phrases its
    message by itself is given something else.
    """
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found, is_growing = {"TracerError"}, True
    while is_growing:
        children = {one.name for one in classes if found & set(map(ast.unparse, one.bases))}
        is_growing = not children <= found
        found |= children
    return found - {one.name for one in classes if _makes_its_message(one)}


def _makes_its_message(node):
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(getattr(call.func, "id", "") == "phrase" for call in calls)


def test_no_error_of_the_lab_is_told_in_one_language_only():
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    names, plain, count = names_of_errors(trees.values()), [], 0
    assert {"TracerError", "DownloadError", "SceneError", "CheckpointError"} <= names
    for path, tree in trees.items():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in names and call.args:
                count += 1
                if isinstance(call.args[0], ast.Constant | ast.JoinedStr | ast.BinOp):
                    plain.append(f"{path.relative_to(PACKAGE)}:{call.lineno}")
    assert plain == []
    assert count > 100  # the reader reads


def open_nothing(folder):
    return tracer.open_trace(folder / "nothing")


def record_into_a_file(folder):
    (folder / "taken").write_text("mine")
    tracer.record(folder / "taken").begin()


def ask_too_early(folder):
    return tracer.record(folder / "run").trace


def record_in_no_detail(folder):
    return tracer.record(detail="everything")


def read_no_csv(folder):
    return tracer.read_csv(folder)


def inspect_nothing(folder):
    return tracer.inspect(folder / "nothing").frame("weights")


def diagnose_nothing(folder):
    return tracer.doctor(object())


def speak_klingon(folder):
    return tracer.language("tlh")


def explain_no_stage(folder):
    return tracer.explain.stage("prefil")


def write_page_into_folder(folder):
    from synthetic import coherent_rows, make_trace

    return tracer.to_html(make_trace(coherent_rows(), folder / "trace"), folder)


REFUSED = [
    open_nothing, record_into_a_file, ask_too_early, record_in_no_detail, read_no_csv,
    inspect_nothing, diagnose_nothing, speak_klingon, explain_no_stage, write_page_into_folder,
]  # fmt: skip


@pytest.mark.parametrize("action", REFUSED)
def test_what_is_refused_is_told_in_chinese(action, tmp_path, chinese):
    error = raised(lambda: action(tmp_path))
    assert CHINESE.search(str(error))
    assert not ENGLISH.search(str(error).replace(str(tmp_path), ""))


def test_an_error_is_told_when_it_is_read(tmp_path, chinese):
    error = raised(lambda: open_nothing(tmp_path))
    chinese_words = str(error)
    tracer.language("en")
    assert str(error) == in_english(error) != chinese_words
    assert "is no trace: nothing is there" in str(error)


def test_an_error_in_the_braces_of_another_is_told_in_the_same_language(tmp_path):
    inner = StorageError(phrase("errors.cant_write", path="a", why="full"))
    outer = StorageError(phrase("errors.export_stopped", path="b", why=inner))
    told = say(outer, "zh")
    assert "无法写入 a" in told
    assert "can't" not in told


@pytest.mark.parametrize("told", ["said plainly", phrase("errors.nothing_there")])
def test_an_error_is_written_down_in_english_and_survives_a_copy(told, chinese):
    error = TracerError(told)
    assert CHINESE.search(repr(error)) is None
    assert in_english(pickle.loads(pickle.dumps(error))) == in_english(error)
    assert in_english(ValueError("its own")) == "its own"
    assert str(CheckpointError(told)) == str(error)


def test_how_a_run_ended_is_stored_in_english(tmp_path, chinese):
    def refused():
        with tracer.record(tmp_path / "run"):
            tracer.open_trace(tmp_path / "nothing")

    raised(refused, errors.TraceFormatError)
    ended = tracer.open_trace(tmp_path / "run").manifest["ended"]
    assert ended.startswith("TraceFormatError: ")
    assert ended.endswith("open a folder or zip that tracer.record or save wrote.")
