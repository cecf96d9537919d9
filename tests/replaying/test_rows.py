"""Rows by number: of small tables whole, of large ones by groups, wherever a trace lies."""

import warnings

import pytest
from synthetic import coherent_rows, left_behind, make_trace
from test_ranks import write_rank

from tracer import batches
from tracer.errors import IncompleteTraceWarning
from tracer.replaying import rows as rows_module
from tracer.replaying.rows import Rows
from tracer.trace import open_trace, read_csv


def in_memory(folder):
    return make_trace(coherent_rows())


def on_disk(folder):
    return make_trace(coherent_rows(), folder)


def in_a_zip(folder):
    make_trace(coherent_rows()).save(folder / "run.zip")
    return open_trace(folder / "run.zip")


def as_csv(folder):
    make_trace(coherent_rows()).to_csv(folder / "csv")
    return read_csv(folder / "csv")


def killed(folder):
    left_behind(folder)
    return open_trace(folder)


def of_two_ranks(folder):
    for number in (0, 1):
        write_rank(folder, number)
    return open_trace(folder)


@pytest.mark.parametrize("made", [in_memory, on_disk, in_a_zip, as_csv, killed, of_two_ranks])
def test_a_row_of_a_large_table_is_the_one_that_was_stored(made, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "_GROUP_ROWS", 2)
    monkeypatch.setattr(rows_module, "_MOST_KEPT", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteTraceWarning)
        trace = made(tmp_path)
    rows = Rows(trace)
    for table in trace.tables:
        for number, stored in enumerate(trace.arrow(table).to_pylist()):
            told = {name: value for name, value in stored.items() if value is not None}
            assert rows.row(table, number) == told


def test_a_row_that_is_none_is_refused():
    trace = make_trace(coherent_rows())
    with pytest.raises(IndexError):
        trace.store.group("spans", 10**6)
