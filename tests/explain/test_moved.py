"""Names that moved between releases of transformers stand in the sources of those releases."""

import ast
import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

from tracer.explain.languages import names

OLDER = Path(__file__).resolve().parents[2] / ".venv" / "transformers"
MOVED = names("moved")
RELEASES = ["4.51.3", "4.57.6", "5.24.0"]


def sources(release: str) -> Path:
    """Find the sources of a release: the pinned one is installed, older ones lie beside it."""
    folder = OLDER / release / "transformers"
    if release == RELEASES[-1]:
        installed = importlib.metadata.version("transformers")
        if installed != release:
            pytest.skip(f"names are told of {release}, transformers {installed} is installed")
        folder = Path(importlib.util.find_spec("transformers").origin).parent
    elif not folder.is_dir():
        pytest.skip(f"transformers {release} is not here: make test-generations fetches it")
    return folder


def methods(tree: ast.Module) -> set[str]:
    return {
        f"{owner.name}.{member.name}"
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        for member in owner.body
        if isinstance(member, ast.FunctionDef)
    }


@pytest.mark.parametrize("thing", MOVED)
def test_every_release_is_told(thing):
    assert list(MOVED[thing]) == RELEASES


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("thing", MOVED)
def test_the_name_is_the_one_of_the_release(thing, release):
    told = MOVED[thing][release]
    text = (sources(release) / told["file"]).read_text("utf-8")
    assert told.keys() & {"has", "lacks"}
    if "has" in told:
        assert told["has"] in text
    if "lacks" in told:
        assert told["lacks"] not in text


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("thing", MOVED)
def test_a_method_is_one_of_its_class(thing, release):
    told = MOVED[thing][release]
    if method := re.fullmatch(r"([A-Z]\w+\.[a-z_]\w*)(\(\))?", told["name"]):
        text = (sources(release) / told["file"]).read_text("utf-8")
        assert method[1] in methods(ast.parse(text))
