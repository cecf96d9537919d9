"""The command line's own words: argparse speaks the language that holds, and has its own after."""

import argparse
import ast
import inspect
import re

import pytest

import tracer
from tracer import cli
from tracer.explain.languages import words

# What only the author of a command line meets: its parser could not be made, or runs no script.
OF_AUTHORS = re.compile(
    "conflict|not defined|invalid argument for positionals|must be optional|not callable|merge"
    "|must start with|dest= is|multiple subparser|with mode"
)
# Two words beside each other, in lower case: a piece of an English sentence.
ENGLISH = re.compile(r"\b[a-z]{2,} [a-z]{2,}\b")


@pytest.fixture
def chinese(monkeypatch):
    monkeypatch.setenv("TRACER_LANG", "zh")
    yield
    tracer.language("en")


def asked_for():
    """Every text that this Python's argparse looks up."""
    for call in ast.walk(ast.parse(inspect.getsource(argparse))):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"_", "ngettext"}:
            for text in call.args[: 1 if call.func.id == "_" else 2]:
                if isinstance(text, ast.Constant):
                    yield text.value


def test_every_text_that_a_user_meets_has_words():
    met = {text for text in asked_for() if not OF_AUTHORS.search(text)}
    assert len(met) > 15  # the reader reads
    assert met - set(words("argparse", "zh")) == set()


def test_words_have_the_same_places_for_values():
    places = re.compile(r"%(?:\(\w+\))?[sr]")
    for text, said in words("argparse", "zh").items():
        assert places.findall(text) == places.findall(said)
        assert words("argparse", "en")[text] == text


WRONG = [
    [], ["no-such-command"], ["show"], ["show", "x", "--limit", "many"],
    ["show", "x", "--limit", "-1"], ["show", "a", "b", "c", "d"], ["record", "no_such_script.py"],
    ["record", "--detail", "all", "x.py"], ["export", "a", "b", "--excel", "--parquet"],
    ["play", "x", "--out"], ["doctor", "x", "--json=yes"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_command_line_is_told_in_chinese(arguments, capsys, chinese):
    with pytest.raises(SystemExit):
        cli.main(arguments)
    told = capsys.readouterr().err
    assert told.startswith("用法：python -m tracer")
    assert "：错误：" in told
    assert not ENGLISH.search(re.sub(r"python -m tracer \w+", "", told))


@pytest.mark.parametrize("command", ["", *cli._COMMANDS])
def test_help_is_chinese_from_its_first_word_to_its_last(command, capsys, chinese):
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    told = capsys.readouterr().out
    assert told.startswith("用法：")
    assert re.search("\n选项[：:]\n", told)  # the colon is a word of argparse since 3.14
    assert "usage" not in told
    assert "show this help" not in told
    assert "exit" not in told


def test_every_command_can_be_asked_for(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    told = capsys.readouterr().out
    assert all(f"\n    {command} " in told for command in cli._COMMANDS)


def test_argparse_has_its_own_words_again(capsys, chinese):
    before = argparse._, argparse.ngettext
    with pytest.raises(SystemExit):
        cli.main(["show"])
    assert (argparse._, argparse.ngettext) == before
    assert argparse.ArgumentParser(prog="own").format_usage() == "usage: own [-h]\n"
