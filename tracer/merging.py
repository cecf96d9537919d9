"""The recordings of several ranks as one trace: tables one after another, times on one line.

Works on opened ranks, lazily: nothing is read but manifests and the small table of sources. Short
ids (`model-1`) of different processes get the rank in front; seqs never meet, since each rank
counts from its number * 2^40. It finds and opens no files; storage.py does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tracer.batches import ENCODED_TEXT, Target, write_parquet
from tracer.contents import Content, TableContent, batches_of, group_of
from tracer.errors import TraceFormatError
from tracer.explain.sentences import phrase
from tracer.privacy import mapped
from tracer.ranks import MOST_RANKS, PAIRED_TOGETHER

# Ids that each process counts for itself.
_COUNTED: Final = ("model", "cache", "stack")
_CHANGED: Final = {*_COUNTED, "source", "start_ns"}
# Nanoseconds: a shift beyond 30 years comes from no clock.
_MOST_SHIFT: Final = 10**18
_UNSURE: Final = "wall clocks of several machines, which may differ"
_FROM_MANIFESTS: Final[tuple[str, ...]] = ("versions", "machine", "options", "started")


@dataclasses.dataclass(frozen=True)
class Part:
    """One rank's opened recording."""

    number: int
    manifest: dict[str, Any]
    contents: Mapping[str, Content]


def merged(
    parts: Sequence[Part], schemas: Mapping[str, pa.Schema]
) -> tuple[dict[str, Any], dict[str, Content]]:
    """Manifest and tables of the run that the parts, at least one, belong to.

    Raises:
        TraceFormatError: A manifest tells of another rank than its folder, or of impossible
            clocks or numbers of ranks.
    """
    time_line, shifts = _time_line(parts)
    sources, renamed = _sources(parts, schemas["sources"])
    contents: dict[str, Content] = {}
    for table, schema in schemas.items():
        changes = tuple(
            (part.contents[table], _Change(shifts[part.number], part.number, renamed[part.number]))
            for part in parts
            if table in part.contents
        )
        if changes:
            contents[table] = RankedContent(schema, changes)
    if sources.num_rows:
        contents["sources"] = TableContent(sources)
    return _manifest(parts, time_line, shifts), contents


def _manifest(parts: Sequence[Part], time_line: str, shifts: Mapping[int, int]) -> dict[str, Any]:
    first = parts[0].manifest
    world_size = _world_size(parts)
    present = {part.number for part in parts}
    missing = [number for number in range(world_size) if number not in present]
    is_whole = not missing and all(part.manifest.get("state") == "complete" for part in parts)
    told = {name: first[name] for name in _FROM_MANIFESTS if name in first}
    lengths = [
        shifts[part.number] + part.manifest["duration_ns"]
        for part in parts
        if part.manifest.get("duration_ns") is not None
    ]
    return {
        "schema_version": max(part.manifest["schema_version"] for part in parts),
        **told,
        "state": "complete" if is_whole else "interrupted",
        "duration_ns": max(lengths) if len(lengths) == len(parts) else None,
        "dropped": sorted({name for part in parts for name in part.manifest.get("dropped", [])}),
        "scrubbed": sorted({name for part in parts for name in part.manifest.get("scrubbed", [])}),
        "lost": [
            {**loss, "rank": part.number}
            for part in parts
            for loss in part.manifest.get("lost", [])
        ],
        "world_size": world_size,
        "missing_ranks": missing,
        "time_line": time_line,
        "provenance": {"start_ns": "derived"},
        "disagreements": _disagreements(parts, {} if time_line == _UNSURE else shifts),
        "ranks": [
            {**part.manifest, "rank": part.number, "shift_ns": shifts[part.number]}
            for part in parts
        ],
    }


def _world_size(parts: Sequence[Part]) -> int:
    for part in parts:
        told = part.manifest.get("rank", part.number)
        if told != part.number:
            raise TraceFormatError(phrase("errors.other_rank", number=part.number, told=told))
    world_size: int = max(part.manifest.get("world_size", 1) for part in parts)
    if world_size > MOST_RANKS:
        raise TraceFormatError(phrase("errors.too_many_ranks", number=world_size, most=MOST_RANKS))
    return max(world_size, parts[-1].number + 1)


def _disagreements(parts: Sequence[Part], shifts: Mapping[int, int]) -> list[str]:
    """What shows that the parts do not belong to one run; without shifts times show nothing."""
    found = []
    first = parts[0]
    for name, words in (("world_size", "another number of ranks"), ("launch", "another start")):
        others = [p for p in parts if p.manifest.get(name) != first.manifest.get(name)]
        found += [f"rank {p.number} is of {words} than rank {first.number}" for p in others]
    for part in parts if shifts else ():
        begin, length = shifts[first.number], first.manifest.get("duration_ns")
        if length is not None and shifts[part.number] > begin + length:
            found.append(f"rank {part.number} began after rank {first.number} had ended")
    return found


def _time_line(parts: Sequence[Part]) -> tuple[str, dict[int, int]]:
    """How the ranks' clocks were brought together, and what is added to each rank's times, in ns.

    A trace's times count from its own start. On one machine the wall clock is the same for all
    ranks; those of two machines may differ by more than a run takes, so there the moment counts
    in which all ranks left the barrier before their recordings.
    """
    clocks = {part.number: part.manifest.get("clock", {}) for part in parts}
    if not all({"wall_ns", "monotonic_ns", "origin_ns"} <= set(each) for each in clocks.values()):
        return "each rank's own start: a manifest tells no clocks", dict.fromkeys(clocks, 0)
    hosts = {str(part.manifest.get("machine", {}).get("host")) for part in parts}
    has_met = all(clock.get("paired") == PAIRED_TOGETHER for clock in clocks.values())
    starts = {number: each["origin_ns"] - each["monotonic_ns"] for number, each in clocks.items()}
    if len(hosts) > 1 and has_met:
        time_line = "the barrier before the recordings"
    else:
        time_line = _UNSURE if len(hosts) > 1 else "the wall clock"
        starts = {number: start + clocks[number]["wall_ns"] for number, start in starts.items()}
    first = min(starts.values())
    shifts = {number: start - first for number, start in starts.items()}
    if max(shifts.values()) > _MOST_SHIFT:
        raise TraceFormatError(phrase("errors.clocks_apart"))
    return time_line, shifts


def _sources(
    parts: Sequence[Part], schema: pa.Schema
) -> tuple[pa.Table, dict[int, frozenset[str]]]:
    """One row a source, and by rank the keys that mean another text there than before."""
    known: dict[str, dict[str, Any]] = {}
    renamed: dict[int, frozenset[str]] = {}
    for part in parts:
        content = part.contents.get("sources")
        rows = content.scanner(schema.names, None).to_table().to_pylist() if content else []
        others = {row["source"] for row in rows if known.get(row["source"], row) != row}
        for row in rows:
            key = row["source"]
            name = _of_rank(part.number, key) if key in others else key
            known[name] = {**row, "source": name}
        renamed[part.number] = frozenset(others)
    return pa.Table.from_pylist(list(known.values()), schema=schema), renamed


def _of_rank(number: int, name: str) -> str:
    return f"r{number}/{name}"


@dataclasses.dataclass(frozen=True)
class _Change:
    """What turns a batch of one rank into a batch of the run."""

    shift_ns: int
    number: int
    sources: frozenset[str]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            self._changed(name, array) if name in _CHANGED else array
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def _changed(self, name: str, array: pa.Array) -> pa.Array:
        if name == "start_ns":
            return pc.add(array, self.shift_ns) if self.shift_ns else array
        if name != "source":
            return _renamed(array, lambda text: _of_rank(self.number, text))
        if not self.sources:
            return array
        return _renamed(
            array, lambda key: _of_rank(self.number, key) if key in self.sources else key
        )


def _renamed(array: pa.Array, change: Callable[[str], str]) -> pa.Array:
    if array.type != ENCODED_TEXT:
        return mapped(array, change)
    values = pa.array(
        [None if value is None else change(value) for value in array.dictionary.to_pylist()],
        pa.string(),
    )
    return pa.DictionaryArray.from_arrays(array.indices, values)


@dataclasses.dataclass(frozen=True)
class RankedContent:
    """One table of all ranks, rank after rank."""

    schema: pa.Schema
    parts: tuple[tuple[Content, _Change], ...]

    @property
    def rows(self) -> int:
        """Number of rows of all ranks."""
        return sum(content.rows for content, _ in self.parts)

    def batches(self, columns: Sequence[str], *, encoded: bool = False) -> Iterator[pa.RecordBatch]:
        """The asked columns, one batch of one rank at a time."""
        for content, change in self.parts:
            for batch in batches_of(content, columns, encoded=encoded):
                yield change.apply(batch)

    def group(self, row: int) -> tuple[int, pa.Table]:
        """Some rows of one rank around one, and the number of the first of them."""
        first = 0
        for content, change in self.parts:
            if row < first + content.rows:
                begin, found = group_of(content, self.schema.names, row - first)
                changed = [change.apply(batch) for batch in found.to_batches()]
                return first + begin, pa.Table.from_batches(changed)
            first += content.rows
        raise IndexError(f"there is no row {row} among {self.rows}")

    def scanner(self, columns: Sequence[str], where: pc.Expression | None) -> ds.Scanner:
        """A lazy pass; a condition on what merging changes costs reading all columns."""
        is_early = where is None or self._holds_before(where)
        names = list(columns) if is_early else self.schema.names
        schema = pa.schema([self.schema.field(name) for name in names])
        rows = (
            change.apply(batch)
            for content, change in self.parts
            for batch in content.scanner(names, where if is_early else None).to_batches()
        )
        late = None if is_early else where
        return ds.Scanner.from_batches(rows, schema=schema, columns=list(columns), filter=late)

    def _holds_before(self, where: pc.Expression) -> bool:
        """Whether a condition names only columns that are the same in a rank and in the run."""
        same = pa.schema([field for field in self.schema if field.name not in _CHANGED])
        try:
            same.empty_table().filter(where)
        except pa.ArrowInvalid:  # No match for the name of a column
            return False
        return True

    def write(self, target: Target) -> None:
        """Write the rows of all ranks as one Parquet file."""
        write_parquet(target, self.schema, self.batches(self.schema.names))
