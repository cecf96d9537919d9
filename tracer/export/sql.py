"""Many traces as tables of one database: SQL for DuckDB, which reads their Parquet where it lies.

Makes text and looks at names of files; needs no database and reads no rows.
"""

from __future__ import annotations

from pathlib import Path

from tracer.errors import TracerError
from tracer.explain.sentences import phrase
from tracer.folder import MANIFEST
from tracer.schema import TABLES

_GLOB = "*?[{"


def views_sql(folder: Path | str) -> str:
    """Statements that make a view of each table over all traces below a folder.

    Each view has the column `run` (path of the trace below `folder`; of a run of several ranks that
    of the rank) before the table's own; `manifests` has `run`, `state`, `ended`, `run_ns` (of the
    whole recording) and the JSON of `versions`, `options`, `machine` and `recorder`. Traces in a
    zip and recordings that never ended have no Parquet and are left out.

        import duckdb
        database = duckdb.connect()
        database.execute(views_sql("runs"))
        database.sql("select run, count(*) from steps group by run").df()

    Args:
        folder: Traces lie in it, at any depth; its name may hold no `*`, `?`, `[` or `{`.

    Raises:
        TracerError: There is no trace below it, or its name is a pattern.
    """
    place = Path(folder)
    if any(sign in str(place) for sign in _GLOB):
        raise TracerError(phrase("errors.glob_in_name", path=str(place)))
    found = {path.stem for path in place.rglob("*.parquet")}
    tables = [name for name in TABLES if name in found]
    if not tables:
        raise TracerError(phrase("errors.no_closed_trace", path=str(place)))
    return "\n".join([_manifests(place), *(_view(place, table) for table in tables)])


def _view(folder: Path, table: str) -> str:
    # Traces of older versions may lack columns: they are missing there.
    file = f"{table}.parquet"
    return (
        f'create or replace view "{table}" as select {_run(folder, file)} as run, '
        f"* exclude (filename) from read_parquet({_pattern(folder, file)}, "
        "filename = true, union_by_name = true);"
    )


def _manifests(folder: Path) -> str:
    columns = {"state": "VARCHAR", "ended": "VARCHAR", "duration_ns": "BIGINT"}
    columns |= dict.fromkeys(["versions", "options", "machine", "recorder"], "JSON")
    types = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
    return (
        f"create or replace view manifests as select {_run(folder, MANIFEST)} as run, "
        # Named apart from the column of events, so that a join with it is plain.
        "* exclude (filename, duration_ns), duration_ns as run_ns "
        f"from read_json({_pattern(folder, MANIFEST)}, "
        f"filename = true, columns = {{{types}}});"
    )


def _pattern(folder: Path, file: str) -> str:
    text = (folder / "**" / file).as_posix().replace("'", "''")
    return f"'{text}'"


def _run(folder: Path, file: str) -> str:
    """What stands between the folder and the file in a path."""
    before = 0 if folder == Path() else len(folder.as_posix().rstrip("/")) + 1
    return f"substr(filename, {before + 1}, length(filename) - {before + len(file) + 1})"
