"""check(): true values, honest gaps, advice for what is missing."""

import importlib.metadata
import re
import sys
import types
from pathlib import Path

import pytest

from tracer import environment
from tracer.errors import MissingPackageError
from tracer.explain import language
from tracer.views.fonts import families
from tracer.views.labels import display_width

ITEMS = ["Python", "torch", "torchvision", "transformers", "accelerate", "tokenizers"]
ITEMS += ["safetensors", "qwen-vl-utils", "jupyterlab", "ipywidgets", "pandas", "pyarrow"]
ITEMS += ["matplotlib", "CJK font", "disk, current folder", "disk, model cache", "memory", "cores"]
ITEMS += ["front end", "widgets"]


@pytest.fixture(scope="module")
def frame():
    return environment.check().set_index("item")


@pytest.fixture
def chinese():
    language("zh")
    yield
    language("en")


@pytest.fixture
def versions(monkeypatch):
    """Pretend that packages have the versions set here; None is not installed."""
    pretended = {}
    real = importlib.metadata.version

    def version(package):
        if package not in pretended:
            return real(package)
        if pretended[package] is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return pretended[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    return pretended


def row(item):
    return next(finding for finding in environment._findings() if finding.item == item)


def test_every_item_is_one_row(frame):
    assert list(frame.index) == ITEMS
    assert list(frame.columns) == ["value", "verdict", "advice"]


def test_verdicts_are_of_three_kinds_and_only_ok_needs_no_advice(frame):
    assert set(frame.verdict) <= {"ok", "missing", "note"}
    assert list(frame.advice == "") == list(frame.verdict == "ok")


@pytest.mark.parametrize("package", ["accelerate", "pandas", "pyarrow", "ipywidgets"])
def test_versions_are_those_installed(frame, package):
    assert frame.value[package] == importlib.metadata.version(package)


def test_torch_says_where_it_computes(frame):
    import torch

    expected = "cpu"
    if torch.cuda.is_available():
        expected = torch.cuda.get_device_name(0)
    elif torch.backends.mps.is_available():
        expected = "mps"
    assert frame.value["torch"].startswith(f"{torch.__version__.split('+')[0]}")
    assert f" on {expected}" in frame.value["torch"]


def test_check_prints_each_row_with_its_advice(versions, capsys):
    versions["accelerate"] = None
    environment.check()
    shown = capsys.readouterr().out
    assert "missing accelerate           -\n" in shown
    assert "needed for device_map" in shown


@pytest.mark.parametrize("package", ["torch", "torchvision", "transformers", "jupyterlab"])
def test_a_package_that_is_not_installed_is_missing_with_advice(package, versions):
    versions[package] = None
    found = row(package)
    assert (found.value, found.verdict) == (None, "missing")
    assert "pip install" in found.advice


@pytest.mark.parametrize(
    ("torch", "torchvision", "verdict"),
    [("2.14.1", "0.29.1", "ok"), ("2.14.1+cpu", "0.28.0", "note"), ("3.0.0", "1.0.0", "ok")],
)
def test_torchvision_must_be_built_for_this_torch(torch, torchvision, verdict, versions):
    versions.update(torch=torch, torchvision=torchvision)
    assert row("torchvision").verdict == verdict


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("5.24.0", ""),
        ("5.0.0rc1", ""),
        ("4.57.6", "cast and its copy to the device are one derived time; chunks"),
        ("4.51.3", "cast and its copy to the device are one derived time; a chunked prefill"),
        ("4.50.0", "checked on 5.24, 4.57.6, 4.51.3"),
        ("6.0.0.dev0", "checked on 5.24, 4.57.6, 4.51.3"),
    ],
)
def test_transformers_names_its_generation_and_what_it_can_not_show(version, advice, versions):
    versions["transformers"] = version
    found = row("transformers")
    assert found.value == f"{version}, generation {version[0]}"
    assert found.verdict == ("note" if advice else "ok")
    assert advice in found.advice


PLACES = [
    ("terminal", {}, "a terminal shows none"),
    ("IPython", {}, "a terminal shows none"),
    ("Jupyter", {}, ""),
    ("Jupyter", {"jupyterlab_widgets": None}, "pip install jupyterlab_widgets"),
    ("VS Code", {"jupyterlab_widgets": None}, ""),
    ("Colab", {"jupyterlab_widgets": None}, ""),
    ("Colab", {"ipywidgets": "7.7.1"}, "too old: pip install 'tracer-lab[lab]', then restart"),
    ("Kaggle", {}, ""),
]


@pytest.mark.parametrize(("place", "installed", "advice"), PLACES)
def test_widgets_say_whether_they_are_shown_here(place, installed, advice, versions):
    versions.update({"ipywidgets": "8.1.9", "jupyterlab_widgets": "3.0.15"} | installed)
    found = environment._widgets(place)
    assert found.value.startswith(f"ipywidgets {versions['ipywidgets']}")
    assert found.value.endswith(f" in {place}")
    assert found.verdict == ("note" if advice else "ok")
    assert found.advice.startswith(advice) if advice == "" else advice in found.advice


def test_widgets_of_a_saved_run_on_kaggle_are_not_live(versions, monkeypatch):
    versions["ipywidgets"] = "8.1.9"
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Batch")
    assert environment._widgets("Kaggle").verdict == "note"


def test_anywidget_is_named_where_it_is_installed(versions):
    versions.update(ipywidgets="8.1.9", anywidget="0.11.0")
    assert "anywidget 0.11.0" in environment._widgets("Jupyter").value


def test_without_ipywidgets_widgets_are_missing(versions):
    versions["ipywidgets"] = None
    assert (row("widgets").value, row("widgets").verdict) == (None, "missing")


def test_what_is_printed_fits_one_screen(versions, capsys):
    versions.update(transformers="4.51.3", torchvision="0.1", ipywidgets="7.7.1")
    environment.check()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    advice = [line for line in lines if line.startswith(" ")]
    assert len(advice) > 3  # the font may be there, or not
    assert max(map(len, advice)) <= 100


@pytest.fixture
def brought(monkeypatch):
    """What matplotlib brings is all that it has listed; what was found with that is forgotten."""
    from matplotlib import font_manager

    own = [font for font in font_manager.fontManager.ttflist if "mpl-data" in font.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    families.cache_clear()
    yield own
    families.cache_clear()


def test_a_font_that_draws_boxes_is_no_cjk_font(brought, monkeypatch):
    from matplotlib import font_manager

    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert any(font.name.startswith("Last Resort") for font in brought)
    assert row("CJK font").verdict == "missing"


def test_a_font_that_was_installed_since_matplotlib_looked_counts(brought):
    expected = "ok" if len(families()) > 1 else "missing"
    assert row("CJK font").verdict == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HF_HUB_CACHE": "/a/b", "HF_HOME": "/c"}, "/a/b"),
        ({"HF_HOME": "/c"}, "/c/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
        ({}, "~/.cache/huggingface/hub"),
    ],
)
def test_the_model_cache_is_where_the_hub_puts_it(variables, expected, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.cache_folder() == Path(expected).expanduser()


def test_free_disk_of_a_folder_not_made_yet_is_that_of_its_parent(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none" / "yet"))
    found = row("disk, model cache")
    assert "GiB free in" in found.value
    assert not (tmp_path / "none").exists()


def test_a_full_disk_is_a_note(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "LOW_DISK_BYTES", 2**62)
    assert row("disk, current folder").verdict == "note"


def test_memory_that_the_platform_does_not_tell_is_missing(monkeypatch):
    monkeypatch.setattr(environment.os, "sysconf_names", {})
    assert (row("memory").value, row("memory").verdict) == (None, "note")


def test_front_end_of_a_plain_process_is_the_terminal(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.delenv("KAGGLE_KERNEL_RUN_TYPE", raising=False)
    assert environment.front_end() == "terminal"
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    assert environment.front_end() == "Kaggle"
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    assert environment.front_end() == "Colab"


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        (types.SimpleNamespace(user_ns={}, kernel=object()), "Jupyter"),
        (types.SimpleNamespace(user_ns={"__vsc_ipynb_file__": "a"}, kernel=object()), "VS Code"),
        (types.SimpleNamespace(user_ns={}), "IPython"),
    ],
)
def test_front_end_inside_ipython_is_told_by_its_shell(shell, expected, monkeypatch):
    for name in ("KAGGLE_KERNEL_RUN_TYPE", "VSCODE_PID"):
        monkeypatch.delenv(name, raising=False)
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert environment.front_end() == expected


def test_what_needs_an_absent_package_is_refused_in_one_sentence():
    with pytest.raises(MissingPackageError, match=r"the demo needs no_such_thing.*\[live\]"):
        environment.require("torch", "no_such_thing", extra="live", purpose="demo")


def test_the_check_speaks_the_chosen_language(versions, capsys, chinese):
    for package in ("torchvision", "accelerate", "qwen-vl-utils", "jupyterlab", "pandas"):
        versions[package] = None
    versions["transformers"] = "4.57.6"
    frame = environment.check()
    shown = capsys.readouterr().out
    assert frame["item"].tolist() == ITEMS
    assert set(frame["verdict"]) <= {"ok", "missing", "note"}
    assert all(re.search("[\u4e00-\u9fff]", advice) for advice in frame["advice"] if advice)
    assert re.search(r"\n缺少    accelerate           -\n +device_map 需要它：", shown)
    assert re.search(r"\n正常    内存 +[\d.]+ GiB，其中", shown)
    assert not re.search(r"\b(ok|missing|note|free|available|generation|needed)\b", shown)
    assert max(display_width(line) for line in shown.splitlines() if "/" not in line) <= 100


def test_a_package_that_is_needed_is_told_in_the_chosen_language(chinese):
    with pytest.raises(MissingPackageError, match="要运行演示，需要 no_such_thing"):
        environment.require("no_such_thing", extra="live", purpose="demo")
