"""Where code stands: keys of functions and call paths, and what stays out of them."""

import functools
import inspect
import json
import sys
import sysconfig
from pathlib import Path

import pytest

from tracer.places import Places, relative_path


def _decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@_decorated
def _library_function():
    return sys._getframe()


class _Library:
    @classmethod
    def made(cls):
        return cls

    def plain(self):
        """Text over
        two lines."""
        return sys._getframe()


def _texts(places):
    return {row["function"]: row for row in places.tables()["sources"]}


def test_a_source_is_the_function_behind_its_decorators():
    places = Places()
    key = places.source(_library_function)
    line = inspect.unwrap(_library_function).__code__.co_firstlineno
    assert key.endswith(f"test_places.py:{line}")
    row = _texts(places)["_library_function"]
    assert (row["source"], row["first_line"]) == (key, line)
    assert row["text"] == inspect.getsource(_library_function)


def test_a_function_that_two_recordings_meet_is_taken_apart_once(monkeypatch):
    taken = []
    block = inspect.getblock
    monkeypatch.setattr(inspect, "getblock", lambda lines: taken.append(1) or block(lines))
    texts = []
    for _ in range(2):
        places = Places()
        places.source(test_a_function_that_two_recordings_meet_is_taken_apart_once)
        texts += [row["text"] for row in places.tables()["sources"]]
    assert texts[0] == texts[1]
    assert len(taken) == 1


@pytest.mark.parametrize("function", [_Library.plain, _Library.made, json.dumps])
def test_a_source_holds_the_functions_whole_text(function):
    places = Places()
    key = places.source(function)
    assert places.source(function) == key
    (row,) = places.tables()["sources"]
    assert row["text"] == inspect.getsource(function)
    assert "def " in row["text"]


@pytest.mark.parametrize("function", [len, dict, functools.partial(len), "text", None])
def test_what_has_no_python_code_has_no_source(function):
    assert Places().source(function) is None


def test_code_whose_file_is_gone_has_a_key_and_no_text():
    scope = {}
    exec(compile("def made():\n    pass\n", "/nowhere/made.py", "exec"), scope)
    places = Places()
    assert places.source(scope["made"]) == "made.py:1"
    assert places.tables()["sources"][0]["text"] is None


def test_two_functions_of_one_line_and_file_give_one_row():
    scope = {}
    exec(compile("one, two = (lambda: 1), (lambda: 2)\n", "/nowhere/twins.py", "exec"), scope)
    places = Places()
    assert places.source(scope["one"]) == places.source(scope["two"])
    assert len(places.tables()["sources"]) == 1


def test_the_same_path_has_the_same_key_and_another_line_another():
    places = Places()
    frames = [_Library().plain() for _ in "ab"]
    first, second = (places.stack(frame) for frame in frames)
    other = places.stack(_library_function())
    assert first == second != other
    assert [row["stack"] for row in places.tables()["stacks"]] == [first, other]


def test_frames_go_from_the_outermost_in_each_with_its_current_line():
    places = Places()
    places.stack(_library_function())
    (row,) = places.tables()["stacks"]
    inner, outer = row["frames"][-1], row["frames"][0]
    assert inner.endswith(" _library_function")
    assert "test_places.py:" in inner
    assert "pytest" not in outer


def test_a_missing_frame_is_an_empty_path():
    places = Places()
    assert places.stack(None) == places.stack(None)
    assert places.tables()["stacks"] == [{"stack": "stack-1", "frames": []}]


def test_the_labs_own_frames_are_left_out():
    from tracer import places as room

    scope = {"sys": sys}
    own = str(Path(room.__file__).parent / "instrument" / "made.py")
    exec(compile("def made(inner):\n    return inner()\n", own, "exec"), scope)
    places = Places()
    places.stack(scope["made"](_library_function))
    (row,) = places.tables()["stacks"]
    assert not any("made.py" in frame for frame in row["frames"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{sysconfig.get_paths()['purelib']}/torch/nn/linear.py", "torch/nn/linear.py"),
        (f"{sysconfig.get_paths()['stdlib']}/json/decoder.py", "json/decoder.py"),
        ("/home/ann/env/lib/python3.11/site-packages/peft/model.py", "peft/model.py"),
        ("/usr/lib/python3/dist-packages/six.py", "six.py"),
        ("/home/ann/secret/work.py", "work.py"),
        ("<stdin>", "<stdin>"),
    ],
)
def test_a_path_begins_at_its_package_and_shows_no_home(path, expected):
    assert relative_path(path) == expected


def test_a_package_outside_site_packages_keeps_its_own_folders(tmp_path):
    inner = tmp_path / "mine" / "part"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    assert relative_path(str(inner / "work.py")) == "mine/part/work.py"
