"""What a newcomer installs: the lists agree, `import tracer` is light, make explains itself."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from test_layers import PACKAGE, REPLAY, fits, imported_names, modules_in

ROOT = PACKAGE.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
REPLAY_HALF = PROJECT["project"]["dependencies"]
BROUGHT_BY = {  # import name: the declared package that brings it
    "IPython": "ipykernel",
    "PIL": "pillow",
    "huggingface_hub": "transformers",
    "qwen_vl_utils": "qwen-vl-utils",
    "tokenizers": "transformers",
    "traitlets": "ipywidgets",
}
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="this machine has no make")


def requirements() -> dict[str, Requirement]:
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    texts = [line.partition("#")[0].strip() for line in lines]
    return {one.name: one for one in map(Requirement, filter(None, texts))}


def declared(*lists: list[str]) -> set[str]:
    return {Requirement(text).name for one in lists for text in one}


def outer_packages(path: Path) -> set[str]:
    tops = {name.partition(".")[0] for name in imported_names(path)}
    tops -= sys.stdlib_module_names | {"tracer"}
    return {BROUGHT_BY.get(top, top) for top in tops}


@pytest.mark.parametrize("text", [*REPLAY_HALF, *EXTRAS["live"], *EXTRAS["lab"]])
def test_requirements_name_each_dependency_with_the_same_range(text):
    wanted = Requirement(text)
    assert requirements()[wanted.name].specifier == wanted.specifier


@pytest.mark.parametrize("name", requirements())
def test_a_requirement_admits_newer_releases_and_has_a_lower_bound(name):
    operators = {one.operator for one in requirements()[name].specifier}
    assert ">=" in operators
    assert operators.isdisjoint({"==", "===", "~="})


@pytest.mark.parametrize("name", requirements())
def test_every_requirement_says_who_needs_it(name):
    line = re.search(rf"^{re.escape(name)}[<>=!].*$", (ROOT / "requirements.txt").read_text(), re.M)
    assert re.search(r"# \w+", line[0])


def test_torch_comes_with_torchvision_and_only_in_the_live_half():
    assert {"torch", "torchvision"} <= declared(EXTRAS["live"])
    assert declared(REPLAY_HALF, EXTRAS["lab"]).isdisjoint(declared(EXTRAS["live"]))


def test_conda_takes_the_one_list():
    text = (ROOT / "environment.yml").read_text("utf-8")
    entries = re.findall(r"^ *- (.+)$", text, re.M)
    assert "-r requirements.txt" in entries
    wanted = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f"python={wanted}" in entries
    assert Version(wanted) <= Version(f"{sys.version_info.major}.{sys.version_info.minor}")


@pytest.mark.parametrize("module", modules_in(PACKAGE))
def test_every_imported_package_is_declared(module):
    known = declared(REPLAY_HALF)
    if not fits(module, REPLAY):
        known |= declared(EXTRAS["live"], EXTRAS["lab"])
    assert outer_packages(modules_in(PACKAGE)[module]) <= known


def test_a_wheel_holds_every_file_that_the_package_reads():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["tracer"]
    packed = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    others = {
        path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    # Code goes in by itself; a model card is for who looks at the repository.
    others = {path for path in others if path.suffix not in {".py", ".md"}}
    assert {str(path.relative_to(PACKAGE)) for path in others - packed} == set()


def test_importing_tracer_loads_no_torch_and_no_room():
    code = "import sys, tracer; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = shown.stdout.split()
    assert {"torch", "transformers", "pandas", "pyarrow", "matplotlib"}.isdisjoint(loaded)
    assert [name for name in loaded if name.startswith("tracer")] == ["tracer"]


def make(folder: Path, *arguments: str) -> str:
    """Run make on a copy of the Makefile, in a folder of its own."""
    shutil.copy(ROOT / "Makefile", folder)
    command = ["make", "--no-print-directory", *arguments]
    shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return shown.stdout


@needs_make
def test_make_help_explains_every_target(tmp_path):
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    explained = re.findall(r"^  make ([a-z-]+) +\S", make(tmp_path, "help"), re.M)
    assert explained == phony[1].split()


@pytest.fixture
def set_up(tmp_path):
    """Lay out a folder as make leaves it after setting up: the stamp newer than the lists."""
    for name, when in [("requirements.txt", 1), ("pyproject.toml", 1), (".venv/.ready", 2)]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (when, when))
    return tmp_path


@needs_make
@pytest.mark.parametrize("target", ["demo", "test", "test-all", "lab", "lint", "bench"])
def test_make_installs_once(target, set_up):
    assert "pip install" not in make(set_up, "--dry-run", target)


@needs_make
@pytest.mark.parametrize("changed", ["requirements.txt", "pyproject.toml"])
def test_make_installs_again_when_a_list_changes(changed, set_up):
    os.utime(set_up / changed, (3, 3))
    assert "pip install" in make(set_up, "--dry-run", "demo")


@needs_make
def test_make_says_what_to_do_without_python(set_up):
    os.utime(set_up / "requirements.txt", (3, 3))
    shutil.copy(ROOT / "Makefile", set_up)
    command = [shutil.which("make"), "demo"]
    (set_up / "bin").mkdir()
    os.symlink("/bin/sh", set_up / "bin" / "sh")
    refused = subprocess.run(
        command, cwd=set_up, capture_output=True, text=True, env={"PATH": str(set_up / "bin")}
    )
    assert refused.returncode != 0
    assert "needs Python 3.11" in refused.stderr
