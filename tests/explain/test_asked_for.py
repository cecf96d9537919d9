"""Every phrase that code asks for by its name is there, also in branches that seldom run."""

import ast
import functools
from pathlib import Path

import pytest

import tracer
from tracer.errors import UnknownNameError
from tracer.explain import LANGUAGES
from tracer.explain.languages import words
from tracer.explain.lookup import _PHRASES

PACKAGE = Path(tracer.__file__).parent
SAYING = {"text", "phrase", "say"}  # they take section and key
KEYS = {
    f"{section}.{key}"
    for kind in _PHRASES
    for section, keys in words(kind, "en").items()
    if isinstance(keys, dict)
    for key in keys
}
SECTIONS = {key.partition(".")[0] for key in KEYS}


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def literals(node: ast.expr) -> list[str]:
    """The texts that an argument may be, where it is written out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [*literals(node.body), *literals(node.orelse)]
    return []


def sections_of(tree: ast.AST) -> dict[str, str]:
    """Functions of a module that put a section before a key: `_say` and its like."""
    found = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or not function.args.args:
            continue
        first = function.args.args[0].arg
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or name_of(call) not in SAYING or not call.args:
                continue
            if isinstance(call.args[0], ast.JoinedStr):
                parts = call.args[0].values
                names = {each.id for each in ast.walk(call.args[0]) if isinstance(each, ast.Name)}
                begin = parts[0].value if isinstance(parts[0], ast.Constant) else ""
                if first != "self" and names == {first} and len(parts) == 2 and begin.endswith("."):
                    found[function.name] = begin
    return found


def asked_for(path: Path, shared: dict[str, str]) -> set[str]:
    tree = tree_of(path)
    prefixes = shared | sections_of(tree)
    found = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and call.args:
            if name_of(call) in SAYING:
                asked = [each for each in literals(call.args[0]) if each.count(".") == 1]
                found |= {each for each in asked if each.partition(".")[0] in SECTIONS}
            elif name_of(call) in prefixes:
                found |= {prefixes[name_of(call)] + each for each in literals(call.args[0])}
    return found


def test_every_phrase_that_is_asked_for_is_there():
    shared = sections_of(tree_of(PACKAGE / "auditing/source.py"))
    assert shared == {"told": "audit_found."}
    missing, count = [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        names = asked_for(path, shared if "told" in path.read_text("utf-8") else {})
        names = {each for each in names if each.partition(".")[0] in SECTIONS}
        count += len(names)
        missing += [f"{path.relative_to(PACKAGE)}: {each}" for each in sorted(names - KEYS)]
    assert missing == []
    assert count > 300  # the reader reads


def test_a_phrase_that_is_not_there_would_be_found(tmp_path):
    path = tmp_path / "room.py"
    path.write_text('def _say(key):\n    return text(f"machine.{key}")\n_say("no_such")')
    assert asked_for(path, {}) == {"machine.no_such"}


@pytest.mark.parametrize("code", LANGUAGES)
def test_what_was_counted_has_words_for_its_trouble(code):
    found = words("audit", code)["audit_found"]
    troubled = {key.removesuffix("_bad") for key in found if key.endswith("_bad")}
    assert troubled <= set(found)
    assert all("{number}" in found[key] and "{bad}" in found[f"{key}_bad"] for key in troubled)


def test_a_sentence_is_said_in_any_language():
    from tracer.explain.sentences import Counted, names, phrase, say, then

    lacks = then(phrase("audit_found.given_up", tables=names("modules", "logits")), "as recorded")
    assert str(lacks) == "modules, logits given up for max_bytes; as recorded"
    assert lacks.said("zh") == "因 max_bytes 放弃了 modules、logits；as recorded"
    assert (say(Counted("row", 1), "en"), say(Counted("row", 2), "zh")) == ("1 row", "2 行")
    assert say(3, "zh") == 3
    with pytest.raises(UnknownNameError):
        str(phrase("audit_found.no_such"))


def test_no_problem_of_a_folder_is_told_in_one_language_only():
    plain = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(tree_of(path)):
            is_problem = isinstance(call, ast.Call) and name_of(call) == "problem"
            if is_problem and isinstance(call.args[1], ast.Constant | ast.JoinedStr):
                plain.append(f"{path.relative_to(PACKAGE)}:{call.lineno}")
    assert plain == []
