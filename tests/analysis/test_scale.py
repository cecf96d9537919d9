"""Large traces: what is asked of them reads little, and what is drawn of them stays readable."""

import matplotlib.pyplot as plt
import pytest

from benchmarks.scale import MILLION, SMALL, drawings, questions, write_trace
from tracer.schema import TABLES
from tracer.storage import Store

MOST_ARTISTS = 12_000
ASKED = {**questions(), "audit": lambda trace: trace.audit(), "summary": lambda t: t.summary()}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write_trace(tmp_path_factory.mktemp("small") / "trace", SMALL)


@pytest.fixture
def reads(monkeypatch):
    """What is read at once of a table: its columns and the number of its rows."""
    found = []
    read = Store.read

    def noting(self, table, columns=None, where=None, limit=None):
        rows = read(self, table, columns, where, limit)
        found.append((table, rows.column_names, rows.num_rows))
        return rows

    monkeypatch.setattr(Store, "read", noting)
    return found


# Each of them gives or shows a table as it is.
WHOLE = {"inputs.sequence_tokens", "inputs.call_images", "inputs.image_chain", "audit"}


@pytest.mark.parametrize("name", ASKED)
def test_a_question_reads_what_it_needs(small, reads, name):
    """Of modules no more than one forward at once, and no table with all its columns."""
    ASKED[name](small)
    assert all(rows <= SMALL.modules for table, _, rows in reads if table == "modules")
    whole = {table for table, names, rows in reads if rows and names == TABLES[table].column_names}
    assert name in WHOLE or not whole
    assert small.rows("modules") == SMALL.steps * SMALL.modules


def test_a_trace_of_any_size_is_coherent(small):
    """The maker of large traces makes none that a recording could not make."""
    audit = small.audit().set_index("check")
    assert audit.loc["6 cache growth", "verdict"] == "holds"
    assert not small["modules"]["seq"].duplicated().any()
    assert set(small["modules"].query("path != ''")["parent"]) <= set(small["modules"]["seq"])


@pytest.fixture(scope="module")
def million(tmp_path_factory):
    trace = write_trace(tmp_path_factory.mktemp("million") / "trace", MILLION)
    assert trace.rows("modules") > 1_000_000
    return trace


@pytest.mark.slow
@pytest.mark.parametrize("name", questions())
def test_every_question_is_answered_of_a_million_rows(million, name):
    questions()[name](million)


@pytest.mark.slow
@pytest.mark.parametrize("name", drawings())
def test_a_chart_of_a_million_rows_draws_what_a_page_has_room_for(million, name):
    chart = drawings()[name](million)
    figure = chart.figure if hasattr(chart, "figure") else chart
    try:
        assert len(figure.findobj()) <= MOST_ARTISTS
    finally:
        plt.close("all")
