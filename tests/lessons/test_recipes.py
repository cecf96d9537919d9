"""Recipes with packages that need not be there: run where they are, one honest line where not."""

import importlib.util
import subprocess
import sys

import pandas as pd
import pytest
from synthetic import coherent_rows, make_trace

from tracer.lessons import recipes

TABLES = ["calls", "steps", "choices"]
HOSTILE = ["=1+1", "http://a.org/x", "\x00\x1b[2J", "x" * 40_000, "-3", "@a", "你好", "NA", " "]


@pytest.fixture
def trace():
    rows = coherent_rows()
    for place, text in enumerate(HOSTILE[: len(rows["choices"])]):
        rows["choices"][place]["text"] = text
    return make_trace(rows)


def hides(monkeypatch, *packages):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name in packages else find(name)
    )


def test_without_duckdb_the_answer_says_so(monkeypatch):
    hides(monkeypatch, "duckdb")
    assert recipes.ask_duckdb("SELECT 1").endswith("did not run: pip install duckdb")


def test_without_a_writer_nothing_is_written_and_the_answer_says_so(trace, tmp_path, monkeypatch):
    hides(monkeypatch, "openpyxl", "xlsxwriter")
    told = recipes.write_xlsx(trace, tmp_path / "trace.xlsx", TABLES)
    assert told.endswith("pip install xlsxwriter or openpyxl")
    assert list(tmp_path.iterdir()) == []


def test_the_recipes_import_nothing_of_the_kind_beforehand():
    code = "import sys, tracer.lessons.recipes; print({'duckdb', 'openpyxl'} & {*sys.modules})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


@pytest.mark.parametrize("writer", ["xlsxwriter", "openpyxl"])
def test_a_workbook_has_a_sheet_a_table_and_runs_no_text(writer, trace, tmp_path, monkeypatch):
    pytest.importorskip(writer, reason=f"{writer} is not installed")
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl, which reads it, is not installed")
    monkeypatch.setattr(recipes, "_WRITERS", (writer,))
    path = tmp_path / "trace.xlsx"
    told = recipes.write_xlsx(trace, path, TABLES)
    assert told == "trace.xlsx: calls 2 rows, steps 4 rows, choices 4 rows"
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == TABLES
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    assert {cell.data_type for cell in cells} <= {"s", "inlineStr", "n", "b"}
    assert not any(cell.hyperlink for cell in cells)
    back = pd.read_excel(path, "choices", keep_default_na=False)
    assert back["token_id"].tolist() == trace["choices"]["token_id"].tolist()
    assert back["text"].iloc[0] == "=1+1"
    assert max(back["text"].astype(str).map(len)) <= 32_767


def test_duckdb_answers_as_pandas_does(trace, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    parquet = trace.to_parquet(tmp_path / "parquet")
    query = (
        f"SELECT kind, count(*) AS steps, sum(forward_ns) AS forward_ns "
        f"FROM '{parquet.as_posix()}/steps.parquet' GROUP BY kind ORDER BY kind"
    )
    assert "decode" in recipes.ask_duckdb(query)
    found = duckdb.sql(query).df().astype({"forward_ns": "int64"})
    own = (
        trace["steps"]
        .groupby("kind", as_index=False)
        .agg(steps=("step", "size"), forward_ns=("forward_ns", "sum"))
    )
    assert found.astype(str).equals(own.astype({"forward_ns": "int64"}).astype(str))


def test_a_folder_of_many_traces_is_one_table(trace, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    for number in range(200):
        trace.save(tmp_path / f"run-{number:03}")
    files = f"'{tmp_path.as_posix()}/*/choices.parquet'"
    query = (
        "SELECT parse_path(filename)[-2] AS trace, count(*) AS tokens "
        f"FROM read_parquet({files}, filename = true, union_by_name = true) "
        "GROUP BY trace ORDER BY trace"
    )
    assert "run-199" in recipes.ask_duckdb(query)
    found = duckdb.sql(query).fetchall()
    assert found == [(f"run-{number:03}", trace.rows("choices")) for number in range(200)]
