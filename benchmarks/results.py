"""The committed results: one JSON, a section a benchmark, each with its date and machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure

NAMES = ("hooks", "generating", "load", "self_report", "storage", "scale", "explorer")
"""The benchmarks of `make bench`; `make bench-peers` adds the section `peers`."""
RESULTS = Path(__file__).parent / "results.json"

Sections = dict[str, dict[str, Any]]


def read(path: Path = RESULTS) -> Sections:
    """All sections: `machine` as a dict, `figures` as Figures."""
    told = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {
        name: {**section, "figures": [Figure(**one) for one in section["figures"]]}
        for name, section in told.items()
    }


def keep(name: str, machine: dict[str, Any], figures: list[Figure], path: Path = RESULTS) -> None:
    """Put a section in place of its former self; figures that were not measured now stay."""
    sections = read(path)
    now = {one.name for one in figures}
    former = sections.get(name, {"figures": []})["figures"] if name == "peers" else []
    sections[name] = {
        "machine": machine,
        "figures": [*[one for one in former if one.name not in now], *figures],
    }
    told = {
        key: {**section, "figures": [_told(one) for one in section["figures"]]}
        for key, section in sections.items()
    }
    path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _told(one: Figure) -> dict[str, Any]:
    """A figure without what it lacks."""
    return {
        name: value for name, value in dataclasses.asdict(one).items() if value not in (None, "")
    } | {"value": one.value}
