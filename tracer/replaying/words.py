"""The words of a player in every language: a page has no kernel to ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracer import explain
from tracer.explain import LANGUAGES
from tracer.explain.languages import words as words_of
from tracer.replaying.nodes import KINDS
from tracer.schema import STAGES, TABLES

_PROVENANCES = ("measured", "derived", "estimated")


def words(tables: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Everything that a player says, by language; of the tables only those that have rows."""
    return {code: _in_language(code, tables) for code in LANGUAGES}


def provenance(tables: Sequence[str]) -> dict[str, dict[str, str]]:
    """Columns of the tables that were not measured."""
    return {
        table: {one.name: one.provenance for one in known if one.provenance != "measured"}
        for table, known in ((name, TABLES[name].columns) for name in tables)
    }


def _in_language(code: str, tables: Sequence[str]) -> dict[str, Any]:
    phrases = words_of("phrases", code)
    own = dict(phrases["player"])
    labels = words_of("labels", code)
    return {
        "phrases": own,
        "facts": {**labels["columns"], **labels["computed"], **phrases["player_facts"]},
        "kinds": {kind: phrases["player_kinds"][kind] for kind in KINDS},
        "provenance": {name: phrases["player_provenance"][name] for name in _PROVENANCES},
        "stages": {name: _stage(name, code) for name in STAGES},
        "tables": {name: _table(name, code) for name in tables},
        "columns": {name: _columns(name, code) for name in tables},
    }


def _stage(name: str, code: str) -> dict[str, str]:
    found = explain.stage(name, code)
    return {"title": found.title, "text": found.text, "lesson": found.lesson}


def _table(name: str, code: str) -> dict[str, str]:
    found = explain.table(name, code)
    return {"title": found.title, "text": found.text}


def _columns(table: str, code: str) -> dict[str, list[str]]:
    return {one["column"]: [one["label"], one["text"]] for one in explain.columns(table, code)}
