"""Read the CSV that `csv` writes back into tables: the same cells, the same types.

Whatever is not exactly such a folder is refused with the file and the line: an export for
spreadsheets, a stranger's CSV, one that an editor changed or a copy cut short. `events.csv` is
not read, since it is derived from the rest.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow
import pyarrow.compute as compute
import pyarrow.csv

from tracer.errors import TraceFormatError
from tracer.explain.sentences import phrase
from tracer.export.target import MANIFEST_FILE, read_seal
from tracer.export.text import storable_text
from tracer.manifest import check_manifest
from tracer.schema import EVENTS, SCHEMA_VERSION, TABLES, Table
from tracer.storage import arrow_schema

_ROW: Final = re.compile(r"Row #(\d+)")
_BLOCK_BYTES: Final = 1 << 26  # a line must fit: one row of raw logits takes a megabyte
_LITERAL: Final = r'^"[^"\\]*"$'
_HEADER_LINE: Final = 1


def read_tables(folder: str | Path) -> tuple[dict[str, Any], dict[str, pyarrow.Table]]:
    """Return the manifest and the tables of a CSV export, as they were before it.

    Raises:
        TraceFormatError: The folder is no whole, unchanged CSV export of this or an older schema.
    """
    path = Path(folder)
    manifest, files = _open_seal(path)
    tables = {}
    for name, rows in files.items():
        table = TABLES.get(name.removesuffix(".csv"))
        if name == f"{EVENTS.name}.csv":
            continue
        if table is None:
            raise TraceFormatError(phrase("errors.csv_no_table", path=path / name))
        tables[table.name] = _read_file(path / name, table)
        if tables[table.name].num_rows != rows:
            raise TraceFormatError(
                phrase(
                    "errors.csv_rows",
                    path=path / name,
                    found=tables[table.name].num_rows,
                    written=rows,
                )
            )
    return manifest, tables


def _open_seal(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    sealed = read_seal(path)
    if sealed is None:
        raise TraceFormatError(phrase("errors.csv_no_seal", path=path / MANIFEST_FILE))
    manifest, seal = sealed
    if seal.get("form") != "csv":
        raise TraceFormatError(
            phrase("errors.csv_other_form", path=path / MANIFEST_FILE, form=seal.get("form"))
        )
    if seal.get("complete") is not True or not isinstance(seal["files"], dict):
        raise TraceFormatError(phrase("errors.csv_unfinished", path=path))
    version = manifest.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise TraceFormatError(
            phrase(
                "errors.csv_newer", path=path / MANIFEST_FILE, version=version, known=SCHEMA_VERSION
            )
        )
    check_manifest(manifest, str(path / MANIFEST_FILE))
    return manifest, seal["files"]


def _read_file(path: Path, table: Table) -> pyarrow.Table:
    written = _written_columns(path, table)
    schema = arrow_schema(table.name)
    texts = {c.name for c in table.columns if c.kind in ("text", "json", "bytes")}
    types = {f.name: pyarrow.string() if f.name in texts else f.type for f in schema}
    try:
        # One thread: only then does Arrow know the line of a fault.
        raw = pyarrow.csv.read_csv(
            path,
            pyarrow.csv.ReadOptions(
                use_threads=False,
                block_size=_BLOCK_BYTES,
                column_names=written,
                skip_rows=_HEADER_LINE,
            ),
            pyarrow.csv.ParseOptions(newlines_in_values=False),
            pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["true"],
                false_values=["false"],
            ),
        )
    except pyarrow.ArrowInvalid as error:
        row = _ROW.search(str(error))
        _refuse(path, int(row[1]) if row else None, str(error))
    columns = []
    for column in table.columns:
        if column.name not in written:
            columns.append(pyarrow.nulls(raw.num_rows, schema.field(column.name).type))
            continue
        decode = _DECODERS.get(column.kind)
        cells = raw[column.name]
        columns.append(cells if decode is None else decode(cells, path, column.name))
    return pyarrow.table(columns, schema=schema)


def _written_columns(path: Path, table: Table) -> list[str]:
    """Columns that the file has, in schema order; an older version knew fewer of them.

    Looks at the first line and the last byte, which the parser would take as they come.
    """
    if not path.is_file():
        raise TraceFormatError(phrase("errors.csv_missing", path=path))
    with path.open("rb") as file:
        header = file.readline().rstrip(b"\r\n")
        file.seek(-1, 2) if header else None
        last = file.read(1)
    if header.startswith(b"\xef\xbb\xbf"):
        _refuse(path, _HEADER_LINE, phrase("errors.csv_mark"))
    names = header.decode(errors="replace").split(",")
    if names != [name for name in table.column_names if name in names]:
        _refuse(path, _HEADER_LINE, phrase("errors.csv_header", table=table.name))
    if last != b"\n":
        _refuse(path, None, phrase("errors.csv_cut"))
    return names


def _read_texts(cells: pyarrow.ChunkedArray, path: Path, column: str) -> pyarrow.ChunkedArray:
    return _decoded(cells, path, column, pyarrow.string(), _unliteral, "csv_no_literal")


def _read_bytes(cells: pyarrow.ChunkedArray, path: Path, column: str) -> pyarrow.ChunkedArray:
    return _decoded(cells, path, column, pyarrow.binary(), _unbase64, "csv_no_base64")


_DECODERS: Final = {"text": _read_texts, "json": _read_texts, "bytes": _read_bytes}


def _decoded(
    cells: pyarrow.ChunkedArray,
    path: Path,
    column: str,
    kind: pyarrow.DataType,
    decode: Callable[[str], Any],
    complaint: str,
) -> pyarrow.ChunkedArray:
    """Decode distinct values only; on a bad one find the first line that holds it."""
    chunks = []
    for chunk in cells.chunks:
        encoded = chunk.dictionary_encode()
        values = []
        for text in encoded.dictionary.to_pylist():
            try:
                values.append(decode(text))
            except ValueError:
                line = compute.index(cells, text).as_py() + 1 + _HEADER_LINE
                why = phrase(f"errors.{complaint}", column=column, cell=text[:80])
                _refuse(path, line, why)
        chunks.append(pyarrow.array(values, kind).take(encoded.indices))
    return pyarrow.chunked_array(chunks, kind)


def _unliteral(text: str) -> str:
    value = json.loads(text)
    if not isinstance(value, str):
        raise ValueError(text)
    return storable_text(value)


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error


def _refuse(path: Path, line: int | None, why: object) -> NoReturn:
    if line:
        raise TraceFormatError(phrase("errors.csv_changed_line", path=path, line=line, why=why))
    raise TraceFormatError(phrase("errors.csv_changed", path=path, why=why))
