"""The public names: what `__all__` lists is there, comes from its room, and nothing hides it."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tracer
from tracer import errors


def test_public_names_are_sorted_and_each_once():
    assert tracer.__all__ == sorted(set(tracer.__all__))


@pytest.mark.parametrize("name", tracer.__all__)
def test_a_public_name_is_what_its_room_defines(name):
    room = importlib.import_module(tracer._ROOM_OF[name])
    assert getattr(tracer, name) is getattr(room, name)
    assert getattr(tracer, name).__module__ == room.__name__


def test_every_error_of_the_tree_is_public():
    assert {kind.__name__ for kind in vars(errors).values() if isinstance(kind, type)} <= set(
        tracer.__all__
    )


def test_every_lazy_name_is_public():
    assert sorted(tracer._ROOM_OF) == tracer.__all__


def test_type_checkers_see_the_names_that_readers_get():
    tree = ast.parse(Path(tracer.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == tracer._ROOM_OF


def test_no_submodule_is_named_like_a_public_name():
    submodules = {module.name for module in pkgutil.iter_modules(tracer.__path__)}
    assert submodules.isdisjoint(tracer.__all__)


def test_importing_every_room_leaves_public_names_alone():
    code = (
        "import importlib, tracer\n"
        "[importlib.import_module(room) for room in tracer._ROOMS]\n"
        "print(*[getattr(tracer, name).__name__ for name in tracer.__all__])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == tracer.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'recrod'"):
        _ = tracer.recrod


def test_completion_offers_names_that_are_not_imported_yet():
    assert set(tracer.__all__) <= set(dir(tracer))
