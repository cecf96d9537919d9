"""Recipes with packages that the lab does not need: each runs where its package is installed.

Where it isn't, the answer is one line that says so; nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from tracer.export.text import visible_text
from tracer.trace import Trace

_WRITERS: Final = ("xlsxwriter", "openpyxl")
_MOST_ROWS: Final = 1_048_575  # of a sheet, below its heads
_MOST_CHARACTERS: Final = 32_767  # of a cell


def ask_duckdb(query: str) -> str:
    """What DuckDB answers to a query over Parquet files, as it draws it.

    Returns:
        The answer as text; where DuckDB is not installed, one line that says so.
    """
    if importlib.util.find_spec("duckdb") is None:
        return "DuckDB is not installed here, so the query did not run: pip install duckdb"
    duckdb: Any = importlib.import_module("duckdb")
    with duckdb.connect() as connection:
        return str(connection.sql(query))


def write_xlsx(trace: Trace, path: Path, tables: Sequence[str]) -> str:
    """Write tables of a trace into a workbook, a sheet each.

    Text is text there: no cell is a formula or a link, whatever a token holds. Control characters
    are written out, and what a cell or a sheet has no room for is cut.

    Returns:
        What was written; where no package writes such files, one line that says so.
    """
    writer = next((one for one in _WRITERS if importlib.util.find_spec(one) is not None), None)
    if writer is None:
        return (
            f"nothing here writes {path.name}, so it was not written: "
            f"pip install {' or '.join(_WRITERS)}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"strings_to_formulas": False, "strings_to_urls": False}
    own: Any = {"engine_kwargs": {"options": options}} if writer == "xlsxwriter" else {}
    with pd.ExcelWriter(path, engine=writer, **own) as book:
        for table in tables:
            frame = trace.read(table, limit=_MOST_ROWS)
            frame.apply(_writable).to_excel(book, sheet_name=table, index=False)
            if writer == "openpyxl":
                _no_formulas(book.sheets[table])
    return f"{path.name}: {', '.join(f'{table} {trace.rows(table):,} rows' for table in tables)}"


def _writable(column: pd.Series[Any]) -> pd.Series[Any]:
    """Text without what a cell can't hold; numbers and missing values as they are."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    return column.map(lambda one: one if pd.isna(one) else _text(one)).astype(object)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    return visible_text(str(value))[:_MOST_CHARACTERS]


def _no_formulas(sheet: Any) -> None:
    """What begins like a formula is a token or a name; openpyxl takes it for one."""
    for row in sheet.iter_rows():
        for cell in row:
            if cell.data_type == "f":
                cell.data_type = "s"
