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
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracer.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas

GIB: Final = 2**30
LOW_DISK_BYTES: Final = 5 * GIB  # less than this holds no 2 B model in bf16 and its trace
CHECKED_TRANSFORMERS: Final = ("5.24", "4.57.6", "4.51.3")

_LIVE_ADVICE: Final = "pip install 'tracer-lab[live]'; replay works without it"
_LAB_ADVICE: Final = "pip install 'tracer-lab[lab]'; only notebooks and widgets need it"
_CHECKED_ADVICE: Final = (
    f"recording was checked on {', '.join(CHECKED_TRANSFORMERS)}: what is elsewhere in this one is "
    "told in faults"
)
_FOUR_ADVICE: Final = (
    "recorded as generation 5 is, less this: a tensor's cast and its copy to the device are one "
    "derived time; "
)
# First release, what it and later ones can't show; newest first.
_TRANSFORMERS: Final = (
    ((6, 0), _CHECKED_ADVICE),
    ((5, 0), ""),
    ((4, 57), f"{_FOUR_ADVICE}chunks of a chunked prefill pass by the hook of the whole model"),
    ((4, 51), f"{_FOUR_ADVICE}a chunked prefill is compiled, so its modules are not seen"),
    ((0, 0), _CHECKED_ADVICE),
)
_NEEDED_WIDGETS: Final = (8, 1)
_INDENT: Final = 29
_PACKAGES: Final = (  # package, what to do when it is missing
    ("accelerate", f"needed for device_map: {_LIVE_ADVICE}"),
    ("tokenizers", _LIVE_ADVICE),
    ("safetensors", _LIVE_ADVICE),
    ("qwen-vl-utils", f"needed for process_vision_info: {_LIVE_ADVICE}"),
    ("jupyterlab", _LAB_ADVICE),
    ("ipywidgets", _LAB_ADVICE),
    ("pandas", "pip install --upgrade tracer-lab"),
    ("pyarrow", "pip install --upgrade tracer-lab"),
    ("matplotlib", "pip install --upgrade tracer-lab"),
)
_LIKELY_CJK: Final = re.compile("cjk|han|hei|song|ming|gothic|hiragino|fang|kai|unicode", re.I)
_CJK_SAMPLE: Final = "预缓存"
_FONT_ADVICE: Final = "Chinese labels in charts need one, such as Noto Sans CJK"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check: `verdict` is ok, missing or note; `value` is None when unknown."""

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

    Raises:
        MissingPackageError: one of `packages` (import names) can't be found.
    """
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        raise MissingPackageError(
            f"{purpose} needs {', '.join(absent)}, not installed in {sys.prefix}: "
            f"pip install 'tracer-lab[{extra}]'"
        )


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
    yield Finding("Python", f"{platform.python_version()} in {sys.prefix}")
    yield _torch()
    yield _torchvision()
    yield _transformers()
    for package, advice in _PACKAGES:
        version = _version(package)
        verdict = "ok" if version else "missing"
        yield Finding(package, version, verdict, "" if version else advice)
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
        return Finding("torch", None, "missing", _LIVE_ADVICE)
    try:
        import torch
    except (ImportError, OSError) as error:  # a build whose libraries don't load raises OSError
        advice = f"installed, but can't be imported ({error}): reinstall torch and torchvision"
        return Finding("torch", version, "missing", advice)
    if torch.cuda.is_available():
        cards = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        named = [f"{card.name} ({card.total_memory / GIB:.1f} GiB)" for card in cards]
        return Finding("torch", f"{version} on {', '.join(named)}")
    if torch.backends.mps.is_available():
        return Finding("torch", f"{version} on mps")
    return Finding("torch", f"{version} on cpu")


def _torchvision() -> Finding:
    own, torch = _version("torchvision"), _version("torch")
    if own is None:
        advice = f"needed by image processors: {_LIVE_ADVICE}"
        return Finding("torchvision", None, "missing", advice)
    # Since torch 2.0 each torchvision 0.(n + 15) is built for torch 2.n, and another one fails
    # at import or, worse, at its first operator.
    if torch is not None and torch.startswith("2."):
        pair = f"0.{int(torch.split('.')[1]) + 15}"
        if own.split(".")[:2] != pair.split("."):
            advice = f"torch {torch} pairs with torchvision {pair}: install both in one command"
            return Finding("torchvision", own, "note", advice)
    return Finding("torchvision", own)


def _transformers() -> Finding:
    version = _version("transformers")
    if version is None:
        return Finding("transformers", None, "missing", _LIVE_ADVICE)
    release = _release(version)
    advice = next(advice for since, advice in _TRANSFORMERS if release >= since)
    value = f"{version}, generation {release[0]}"
    return Finding("transformers", value, "note" if advice else "ok", advice)


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _widgets(place: str) -> Finding:
    """Whether explorer and player can be shown where Python is driven from."""
    version = _version("ipywidgets")
    if version is None:
        return Finding("widgets", None, "missing", _LAB_ADVICE)
    packages = {"ipywidgets": version, "anywidget": _version("anywidget")}
    value = f"{', '.join(f'{name} {own}' for name, own in packages.items() if own)} in {place}"
    advice = _widget_advice(place, version)
    return Finding("widgets", value, "note" if advice else "ok", advice)


def _widget_advice(place: str, version: str) -> str:
    if _release(version) < _NEEDED_WIDGETS:  # Colab brings 7
        return f"too old: {_LAB_ADVICE.partition(';')[0]}, then restart the kernel"
    if place in ("terminal", "IPython"):
        return "a terminal shows none; JupyterLab does: python -m tracer lab"
    # Colab and VS Code bring the front half of ipywidgets with them.
    if place == "Jupyter" and _version("jupyterlab_widgets") is None:
        return "shown only where JupyterLab itself has its half: pip install jupyterlab_widgets"
    if place == "Kaggle" and os.environ.get("KAGGLE_KERNEL_RUN_TYPE") == "Batch":
        return "a saved version shows none; an interactive session does"
    return ""


def _cjk_font() -> Finding:
    if _version("matplotlib") is None:
        return Finding("CJK font", None, "missing", "pip install --upgrade tracer-lab")
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    # Opening a font costs a millisecond: the likely names first, and none after the first hit.
    entries = sorted(
        font_manager.fontManager.ttflist,
        key=lambda entry: (not _LIKELY_CJK.search(entry.name), entry.name),
    )
    for entry in entries:
        # The list is matplotlib's cache, and fonts get removed; Last Resort, which matplotlib
        # brings, claims every character and draws a box for each.
        if entry.name.startswith("Last Resort") or not Path(entry.fname).is_file():
            continue
        font = FT2Font(entry.fname)
        if all(font.get_char_index(ord(character)) for character in _CJK_SAMPLE):
            return Finding("CJK font", entry.name)
    return Finding("CJK font", None, "missing", _FONT_ADVICE)


def _disk(item: str, folder: Path) -> Finding:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    value = f"{free / GIB:.1f} GiB free in {folder}"
    if free >= LOW_DISK_BYTES:
        return Finding(item, value)
    return Finding(item, value, "note", "little room for a model or a long trace")


def _memory() -> Finding:
    # Windows has no sysconf, and only Linux tells what could be had without swapping.
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return Finding("memory", None, "note", "this platform doesn't tell")
    value = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB:.1f} GiB"
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        available = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
        if available:
            value += f", {int(available[1]) * 1024 / GIB:.1f} GiB available"
    return Finding("memory", value)


def _cores() -> str | None:
    if hasattr(os, "sched_getaffinity"):  # what this process may use, not what the machine has
        return str(len(os.sched_getaffinity(0)))
    count = os.cpu_count()
    return None if count is None else str(count)


def _as_text(finding: Finding) -> str:
    line = f"{finding.verdict:8}{finding.item:21}{finding.value or '-'}"
    below = textwrap.wrap(finding.advice, 100 - _INDENT)
    return "\n".join((line, *(" " * _INDENT + part for part in below)))
