"""Batches without words: what a user wrote or a model answered goes, kinds and counts stay.

Redaction while recording and scrubbing for sharing drop the same things. Knows the schema and
decides by column and setting, never by guessing what a text means.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracer.schema import PRIVATE_COLUMNS, TABLES

_WORDY_SETTING: Final = (
    r"text|prompt|string|words|message|conversation|template|image|video|input|bias|suppress|_ids$"
)


def without_words(table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its private cells missing."""
    hidden = PRIVATE_COLUMNS.get(table, frozenset())
    arrays = []
    for column, array in zip(TABLES[table].columns, batch.columns, strict=True):
        if column.name in hidden:
            array = pa.nulls(len(array), array.type)
        elif table == "chain" and column.name == "parameters":
            array = mapped(array, _numbers_only)
        elif table == "spans" and column.name == "summary":
            array = mapped(array, _without_texts)
        elif table == "settings" and column.name in ("asked", "effective"):
            is_wordy = pc.match_substring_regex(batch["setting"], _WORDY_SETTING)
            array = pc.if_else(is_wordy, pa.scalar(None, array.type), array)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def mapped(array: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """An array of text with each distinct value changed once; missing stays missing."""
    encoded = array.dictionary_encode()
    values = pa.array([change(value) for value in encoded.dictionary.to_pylist()], array.type)
    return values.take(encoded.indices)


def _numbers_only(text: str) -> str:
    """What a processor was made with, without words: a list of banned words is the user's text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "{}"
    if not isinstance(value, dict):
        return "{}"
    return json.dumps({name: item for name, item in value.items() if _is_plain(item)})


def _without_texts(text: str) -> str:
    """The numbers of a span; what ids became is the model's answer."""
    if '"texts"' not in text:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "{}"
    if not isinstance(value, dict):
        return "{}"
    return json.dumps({name: item for name, item in value.items() if name != "texts"})


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)
