"""The telling numbers of a stop, what went in and what came out, by the kind of stop.

A fact is a key that the languages know, a text with its unit (or a boolean), and how the number
came to be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from tracer.replaying.rows import LONGEST_CELL, Row, provenance_of, shown
from tracer.views.cells import RECORDED, bounded
from tracer.views.labels import shape_label

Fact = list[Any]
Pair = list[Any]

_TELLING: Final = {
    "call": (
        *("kind", "mode", "model", "rows", "beams", "cache_class", "cache_why", "mask_origin"),
        *("attended_pads", "grad_mode", "cache_prefix_tokens", "recomputed_tokens"),
        *("recomputed_ns", "recorder_ns", "waited_ns", "gap_waited_ns"),
    ),
    "span": ("function",),
    "tensor": (
        *("size_bytes", "stored_dtype", "loaded_dtype", "mapped", "discarded", "device", "param"),
        *("queue_ns", "read_ns", "cast_ns", "minor_faults", "major_faults", "disk_bytes"),
    ),
    "module": ("class_name", "dtype", "device", "mean", "std", "abs_max", "nonfinite"),
    "step": (
        *("kind", "input_tokens", "drafted_tokens", "logits_tokens", "first_position"),
        *("last_position",),
        *("position_offset", "mask", "cache_tokens_before", "cache_tokens_after", "cache_bytes"),
        *("prepare_ns", "forward_ns", "processors_ns", "select_ns", "stop_ns", "recorder_ns"),
        *("rope_index_calls", "rotary_calls", "rotary_applications", "undone"),
    ),
    "token": (
        *("token_id", "probability", "logprob", "raw_logprob", "raw_rank", "entropy"),
        *("raw_entropy", "margin", "score", "drafted_id", "accepted", "finish"),
    ),
    "image": (
        *("kind", "source_kind", "fetch_ns", "mode", "patches", "limit_origin", "value_min"),
        *("value_max", "frames", "fps", "seconds_per_grid"),
    ),
    "message": ("level", "source", "text"),
    "fault": ("target", "reason"),
}
"""Columns of each kind's table that tell the most, in the order in which people ask."""


def facts_of(kind: str, table: str, row: Row) -> list[Fact]:
    """The telling cells of a row."""
    return [
        [name, shown(name, row[name]), provenance_of(table, name)]
        for name in _TELLING[kind]
        if name in row
    ]


def _of_module(row: Row) -> tuple[list[Pair], list[Pair]]:
    return (
        [["input_shape", _shape(row["input_shape"])]] if "input_shape" in row else [],
        [["output_shape", _joined(_shape(row["output_shape"]), row.get("dtype"))]]
        if "output_shape" in row
        else [],
    )


def _of_tensor(row: Row) -> tuple[list[Pair], list[Pair]]:
    shape = _shape(row["shape"]) if "shape" in row else ""
    went_in = [[row.get("key", "key"), _joined(shape, row.get("stored_dtype"))]]
    came_out = [[row.get("param", "param"), _joined(row.get("loaded_dtype"), row.get("device"))]]
    return went_in, came_out if "loaded_dtype" in row else []


def _of_step(row: Row) -> tuple[list[Pair], list[Pair]]:
    went_in = [[name, str(row[name])] for name in ("input_tokens", "mask") if name in row]
    before, after = row.get("cache_tokens_before"), row.get("cache_tokens_after")
    if before is not None:
        went_in.append(["cache_tokens_before", str(before)])
    return went_in, [] if after is None else [["cache_tokens_after", str(after)]]


def _of_summary(row: Row) -> tuple[list[Pair], list[Pair]]:
    """What a span's summary says: the library's own numbers, one pair each."""
    try:
        told = json.loads(row.get("summary", "null"))
    except ValueError:
        return [], []
    return [], list(_pairs(told.items())) if isinstance(told, dict) else []


def _of_call(row: Row) -> tuple[list[Pair], list[Pair]]:
    """The call's own numbers, and why each row of an answer ended."""
    went_in, came_out = _of_summary(row)
    return went_in, [*came_out, *([["finish", row["finish"]]] if "finish" in row else [])]


def _of_image(row: Row) -> tuple[list[Pair], list[Pair]]:
    went_in = []
    if {"original_w", "original_h"} <= set(row):
        went_in.append(["original", f"{row['original_w']} × {row['original_h']}"])
    names = ("found_tokens", "replaced_embeddings")
    return went_in, [[name, str(row[name])] for name in names if name in row]


_FLOWS: Final[dict[str, Callable[[Row], tuple[list[Pair], list[Pair]]]]] = {
    "module": _of_module,
    "tensor": _of_tensor,
    "step": _of_step,
    "span": _of_summary,
    "call": _of_call,
    "image": _of_image,
}


def flow_of(kind: str, row: Row) -> tuple[list[Pair], list[Pair]]:
    """What went in and what came out, as far as the row tells."""
    return _FLOWS[kind](row) if kind in _FLOWS else ([], [])


def loaded(models: Iterable[Row]) -> tuple[list[Pair], list[Pair]]:
    """What a load was asked for, and the models that came of it."""
    went_in: list[Pair] = []
    came_out: list[Pair] = []
    for row in models:
        if row["asked"]:
            went_in.append(["asked", row["asked"]])
        came_out.append([row["class_name"] or row["model"] or "", _joined(row["dtype"])])
        if row["parameters"] is not None:
            came_out.append(["parameters", shown("parameters", row["parameters"])])
    return went_in, came_out


def handed_over(rows: Iterable[Row]) -> list[Pair]:
    """Tensors that the model was handed: name, shape, dtype, device."""
    return [
        [
            row["tensor"] or "",
            _joined(row["shape"] and _shape(row["shape"]), row.get("dtype"), row.get("device")),
        ]
        for row in rows
    ]


def _pairs(items: Iterable[tuple[str, Any]]) -> Iterable[Pair]:
    for name, value in items:
        if isinstance(value, dict | list):
            value = json.dumps(value, ensure_ascii=False)
        is_plain = isinstance(value, str) and name not in RECORDED
        told = value if is_plain else shown(name, value)
        yield [name, bounded(told, LONGEST_CELL) if isinstance(told, str) else told]


def _shape(value: Any) -> str:
    try:
        return shape_label(value)
    except (TypeError, ValueError):
        return str(value)


def _joined(*parts: Any) -> str:
    return " ".join(str(part) for part in parts if part)
