"""Write a trace as plain Parquet files, one a table, beside its manifest; batch by batch.

For other tools: any Parquet reader opens the files. It does not derive or drop anything.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet

from tracer.export import TableSource
from tracer.export.target import export_folder
from tracer.schema import TABLES
from tracer.storage import arrow_schema


def write_parquet(store: TableSource, folder: str | Path) -> Path:
    """Write every table that has rows, and the manifest.

    Raises:
        StorageError: The folder holds something that no earlier export left, or can't be written.
    """
    tables = [name for name in TABLES if name in set(store.tables())]
    # Counted, as in a saved trace: a file that goes missing from the export is missed.
    manifest = {**store.manifest, "rows": {table: store.rows(table) for table in tables}}
    with export_folder(folder, "parquet", manifest, [f"{table}.parquet" for table in tables]) as (
        path,
        rows,
    ):
        for table in tables:
            name, schema = f"{table}.parquet", arrow_schema(table)
            rows[name] = 0
            with pyarrow.parquet.ParquetWriter(path / name, schema, compression="zstd") as writer:
                for batch in store.batches(table):
                    writer.write_batch(batch.select(schema.names).cast(schema))
                    rows[name] += batch.num_rows
    return Path(folder)
