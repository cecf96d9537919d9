"""`check()`: what of the lab works on this machine, and what to do about what doesn't.

Each line is one row: item, value, verdict, advice. Versions are read from package metadata; only
the device line imports torch. Nothing is installed, downloaded or changed, and what the platform
doesn't tell is a missing value, never a guess. The command line and notebooks call this.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracer.errors import MissingPackageError
from tracer.explain import audit_word, text
from tracer.explain.languages import words
from tracer.views.labels import display_width, folded

if TYPE_CHECKING:
    import pandas

GIB: Final = 2**30
LOW_DISK_BYTES: Final = 5 * GIB  # less than this holds no 2 B model in bf16 and its trace
CHECKED_TRANSFORMERS: Final = ("5.24", "4.57.6", "4.51.3")

# First release, the words for what it and later ones can't show; newest first.
_TRANSFORMERS: Final = (
    ((6, 0), "checked"),
    ((5, 0), ""),
    ((4, 57), "since_4_57"),
    ((4, 51), "since_4_51"),
    ((0, 0), "checked"),
)
_NEEDED_WIDGETS: Final = (8, 1)
_INDENT: Final = 29
_WIDTH: Final = 100
_PACKAGES: Final = (  # package, which part of the lab it comes with, what needs it
    ("accelerate", "live", "accelerate"),
    ("tokenizers", "live", ""),
    ("safetensors", "live", ""),
    ("qwen-vl-utils", "live", "vision_info"),
    ("jupyterlab", "lab", ""),
    ("ipywidgets", "lab", ""),
    ("pandas", "core", ""),
    ("pyarrow", "core", ""),
    ("matplotlib", "core", ""),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check: `verdict` is ok, missing or note; `value` is None when unknown.

    Item and verdict are the same in any language, for code that asks for them.
    """

    item: str
    value: str | None
    verdict: str = "ok"
    advice: str = ""


def check() -> pandas.DataFrame:
    """Print what works on this machine, and return it as a table.

    Returns:
        One row a line: `item`, `value` (missing when the platform doesn't tell), `verdict` (ok,
        missing, note) and `advice` (empty when there is none to give).
    """
    import pandas

    findings = list(_findings())
    print("\n".join(_as_text(finding) for finding in findings))
    columns = [field.name for field in dataclasses.fields(Finding)]
    return pandas.DataFrame([dataclasses.astuple(finding) for finding in findings], columns=columns)


def require(*packages: str, extra: str, purpose: str) -> None:
    """Refuse in one sentence what can't work because a package is not installed.

    Args:
        packages: Import names.
        extra: The part of the lab that brings them.
        purpose: What needs them, by its key in `purposes`.

    Raises:
        MissingPackageError: one of `packages` (import names) can't be found.
    """
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        what = {"purpose": text(f"purposes.{purpose}"), "packages": ", ".join(absent)}
        raise MissingPackageError(_say("needs", place=sys.prefix, extra=extra, **what))


def front_end() -> str:
    """Say where Python is driven from: Colab, Kaggle, VS Code, Jupyter, IPython or terminal."""
    if "google.colab" in sys.modules:
        return "Colab"
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
        return "Kaggle"
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return "terminal"
    if "VSCODE_PID" in os.environ or "__vsc_ipynb_file__" in shell.user_ns:
        return "VS Code"
    return "Jupyter" if hasattr(shell, "kernel") else "IPython"


def cache_folder() -> Path:
    """Give the folder that the hub's client keeps downloads in, by its own environment names."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    general = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(general).expanduser() / "huggingface" / "hub"


def _findings() -> Iterator[Finding]:
    yield Finding("Python", _say("in_place", what=platform.python_version(), place=sys.prefix))
    yield _torch()
    yield _torchvision()
    yield _transformers()
    for package, part, purpose in _PACKAGES:
        version = _version(package)
        verdict = "ok" if version else "missing"
        yield Finding(package, version, verdict, "" if version else _install(part, purpose))
    yield _cjk_font()
    yield _disk("disk, current folder", Path.cwd())
    yield _disk("disk, model cache", cache_folder())
    yield _memory()
    yield Finding("cores", _cores())
    yield Finding("front end", front_end())
    yield _widgets(front_end())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch() -> Finding:
    version = _version("torch")
    if version is None:
        return Finding("torch", None, "missing", _install("live"))
    try:
        import torch
    except (ImportError, OSError) as error:  # a build whose libraries don't load raises OSError
        return Finding("torch", version, "missing", _say("not_importable", error=error))
    if torch.cuda.is_available():
        cards = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        named = [f"{card.name} ({card.total_memory / GIB:.1f} GiB)" for card in cards]
    else:
        named = ["mps" if torch.backends.mps.is_available() else "cpu"]
    return Finding("torch", _say("on_devices", version=version, devices=", ".join(named)))


def _torchvision() -> Finding:
    own, torch = _version("torchvision"), _version("torch")
    if own is None:
        return Finding("torchvision", None, "missing", _install("live", "image_processors"))
    # Since torch 2.0 each torchvision 0.(n + 15) is built for torch 2.n, and another one fails
    # at import or, worse, at its first operator.
    if torch is not None and torch.startswith("2."):
        pair = f"0.{int(torch.split('.')[1]) + 15}"
        if own.split(".")[:2] != pair.split("."):
            return Finding("torchvision", own, "note", _say("pairs", torch=torch, pair=pair))
    return Finding("torchvision", own)


def _transformers() -> Finding:
    version = _version("transformers")
    if version is None:
        return Finding("transformers", None, "missing", _install("live"))
    release = _release(version)
    advice = _of_release(next(key for since, key in _TRANSFORMERS if release >= since))
    value = _say("generation", version=version, number=release[0])
    return Finding("transformers", value, "note" if advice else "ok", advice)


def _of_release(key: str) -> str:
    """What a release of transformers can't show; empty for one that shows all."""
    if key == "checked":
        return _say(key, releases=", ".join(CHECKED_TRANSFORMERS))
    return _say("since_four", more=_say(key)) if key else ""


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _widgets(place: str) -> Finding:
    """Whether explorer and player can be shown where Python is driven from."""
    version = _version("ipywidgets")
    if version is None:
        return Finding("widgets", None, "missing", _install("lab"))
    packages = {"ipywidgets": version, "anywidget": _version("anywidget")}
    there = ", ".join(f"{name} {own}" for name, own in packages.items() if own)
    value = _say("in_place", what=there, place=place)
    advice = _widget_advice(place, version)
    return Finding("widgets", value, "note" if advice else "ok", advice)


def _widget_advice(place: str, version: str) -> str:
    if _release(version) < _NEEDED_WIDGETS:  # Colab brings 7
        return _say("widgets_old")
    if place in ("terminal", "IPython"):
        return _say("widgets_terminal")
    # Colab and VS Code bring the front half of ipywidgets with them.
    if place == "Jupyter" and _version("jupyterlab_widgets") is None:
        return _say("widgets_jupyter")
    if place == "Kaggle" and os.environ.get("KAGGLE_KERNEL_RUN_TYPE") == "Batch":
        return _say("widgets_saved")
    return ""


def _cjk_font() -> Finding:
    if _version("matplotlib") is None:
        return Finding("CJK font", None, "missing", _install("core"))
    from tracer.installed_fonts import cjk_font

    name = cjk_font()
    return Finding("CJK font", name) if name else Finding("CJK font", None, "missing", _say("font"))


def _disk(item: str, folder: Path) -> Finding:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    value = _say("free", free=f"{free / GIB:.1f} GiB", folder=folder)
    if free >= LOW_DISK_BYTES:
        return Finding(item, value)
    return Finding(item, value, "note", _say("little_room"))


def _memory() -> Finding:
    # Windows has no sysconf, and only Linux tells what could be had without swapping.
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return Finding("memory", None, "note", _say("untold"))
    value = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB:.1f} GiB"
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        available = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
        if available:
            left = f"{int(available[1]) * 1024 / GIB:.1f} GiB"
            value = _say("available", whole=value, free=left)
    return Finding("memory", value)


def _cores() -> str | None:
    if hasattr(os, "sched_getaffinity"):  # what this process may use, not what the machine has
        return str(len(os.sched_getaffinity(0)))
    count = os.cpu_count()
    return None if count is None else str(count)


def _as_text(finding: Finding) -> str:
    items = words("machine")["machine_items"]
    verdict, item = audit_word(finding.verdict), items.get(finding.item, finding.item)
    line = f"{_wide(verdict, 8)}{_wide(item, 21)}{finding.value or '-'}"
    below = folded(finding.advice, _WIDTH - _INDENT)
    return "\n".join((line, *(" " * _INDENT + part for part in below)))


def _wide(shown: str, columns: int) -> str:
    return shown + " " * max(columns - display_width(shown), 1)


def _install(part: str, purpose: str = "") -> str:
    """How to get what is missing: with the part of the lab that it belongs to."""
    advice = _say(part)
    return _say(purpose, advice=advice) if purpose else advice


def _say(phrase: str, **values: Any) -> str:
    return text(f"machine.{phrase}", **values)
