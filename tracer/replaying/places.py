"""Where a tensor lies in its shard, how a picture came to its grid, what the cache held.

Each is what one part of the player draws: plain numbers, with texts beside them.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracer.replaying.rows import Row, Rows, shown
from tracer.views.labels import bytes_label

_SIZES: Final = ("original", "helper", "processor")
_LENGTH_BYTES: Final = 8
"""A safetensors file begins with the length of its header."""


class Places:
    """The places of one trace."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._tensors: dict[tuple[str, str, str], int] | None = None
        self._files: dict[tuple[str, str], Row] | None = None
        self._caches: dict[tuple[int, int], bool] = {}

    def tensor(self, row: Row) -> dict[str, Any] | None:
        """A tensor's bytes in its file; None where its header was not seen."""
        model, file, key = (row.get(name, "") for name in ("model", "file", "key"))
        number = self._known_tensors().get((model, file, key))
        if number is None:
            return None
        found = self._rows.table("checkpoint_tensors").slice(number, 1).to_pylist()[0]
        holder = self._known_files().get((model, file), {})
        header = holder.get("header_bytes")
        sizes = {
            "offset": found["offset_bytes"],
            "size": found["size_bytes"],
            "file_size": holder.get("size_bytes"),
        }
        return {
            "file": file,
            **sizes,
            "header": None if header is None else header + _LENGTH_BYTES,
            "label": [bytes_label(value) for value in sizes.values()],
            "dtype": found["dtype"],
            "shape": shown("shape", found["shape"]),
            "fate": found["fate"],
            "because": shown("because", found["because"] or ""),
        }

    def _known_tensors(self) -> dict[tuple[str, str, str], int]:
        if self._tensors is None:
            rows = self._rows.table("checkpoint_tensors")
            columns = [_texts(rows, name) for name in ("model", "file", "key")]
            found = zip(*columns, strict=True)
            self._tensors = {key: number for number, key in enumerate(found)}
        return self._tensors

    def _known_files(self) -> dict[tuple[str, str], Row]:
        if self._files is None:
            rows = self._rows.trace.arrow("files", ["model", "path", "size_bytes", "header_bytes"])
            self._files = {(row["model"] or "", row["path"]): row for row in rows.to_pylist()}
        return self._files

    def image(self, row: Row) -> dict[str, Any]:
        """A picture's sizes on its way in, its grid, and the placeholders that it became."""
        grid = [row.get(f"grid_{axis}") for axis in "thw"]
        expected = row.get("expected_tokens")
        return {
            "chain": [
                [name, row[f"{name}_w"], row[f"{name}_h"]]
                for name in _SIZES
                if f"{name}_w" in row and f"{name}_h" in row
            ],
            "grid": grid if all(size is not None for size in grid) else None,
            "merge": _merge(grid, expected),
            "tokens": [expected, row.get("found_tokens"), row.get("replaced_embeddings")],
            "limits": shown("limit", row["limit"]) if "limit" in row else None,
            "first_position": row.get("first_position"),
            "resizes": _resizes(row),
        }

    def cache(self, call: int, step: int) -> dict[str, Any] | None:
        """The cache after a forward, layer by layer; None where nothing was recorded."""
        layers = self._rows.lookup("cache_layers", "call", "step").rows(call, step)
        forward = self._rows.lookup("steps", "call", "step").rows(call, step, most=1)
        if not layers:
            return None
        layers.sort(key=lambda one: (one["part"] or "", one["layer"] or 0))
        whole = sum(one["size_bytes"] or 0 for one in layers)
        return {
            "layers": [
                {
                    "layer": one["layer"],
                    "part": one["part"],
                    "class_name": one["class_name"],
                    "tokens": one["tokens_seen"],
                    "held": one["tensor_tokens"],
                    "capacity": one["capacity_tokens"],
                    "bytes": one["size_bytes"],
                    "size": bytes_label(one["size_bytes"]),
                }
                for one in layers
            ],
            "total": bytes_label(whole),
            "tokens_before": forward[0]["cache_tokens_before"] if forward else None,
            "tokens_after": forward[0]["cache_tokens_after"] if forward else None,
        }

    def has_cache(self, call: int, step: int) -> bool:
        """Whether the cache after a forward was recorded."""
        if (call, step) not in self._caches:
            found = self._rows.lookup("cache_layers", "call", "step").numbers(call, step)
            self._caches[call, step] = len(found) > 0
        return self._caches[call, step]


def _merge(grid: list[int | None], expected: int | None) -> int | None:
    """Patches a side that become one token: the root of patches by tokens, where it is whole."""
    if not expected or expected < 0 or not all(size and size > 0 for size in grid):
        return None
    patches = math.prod(size or 0 for size in grid)
    side = round((patches / expected) ** 0.5)
    return side if side and side * side * expected == patches else None


def _resizes(row: Row) -> list[dict[str, Any]]:
    try:
        told = json.loads(row.get("resizes", "[]"))
    except ValueError:
        return []
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []


def _texts(rows: pa.Table, name: str) -> list[str]:
    found: list[str] = pc.fill_null(rows[name], "").to_pylist()
    return found
