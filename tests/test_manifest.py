"""A manifest's fields have the types that readers rely on, or one sentence names the field."""

import json

import pytest
from synthetic import MANIFEST, coherent_rows, make_trace

from tracer.errors import TraceFormatError
from tracer.manifest import _FIELDS, check_manifest
from tracer.storage import Store
from tracer.trace import Trace, open_trace, read_csv

VALUES = [None, 3, -1, 2.5, True, "text", [], [None], [3], ["text"], [[]], [{}], {}, {"a": None}]
VALUES += [{"a": 3}, {"a": "text"}, {"a": [None]}]
TARGET = {"target": "generate", "expected": True, "seen": 1}


def uses(trace):
    """Everything that reads a manifest, so that a raw error of any of them would show."""
    return [trace.audit(), trace.summary(), repr(trace), trace._repr_html_(), trace.scrub()]


def opened(folder, **fields):
    """The trace of a folder after somebody changed fields of its manifest."""
    file = folder / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    return open_trace(folder)


def complaint(work):
    """What the lab itself refuses, in words; any other error passes."""
    try:
        work()
    except TraceFormatError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def small():
    """A trace of one table, so that many audits are quick."""
    return {"faults": [{"seq": 1, "target": "generate", "reason": "compiled"}]}


@pytest.mark.filterwarnings("ignore::tracer.errors.IncompleteTraceWarning")
@pytest.mark.parametrize("field", _FIELDS)
def test_a_value_of_any_type_in_any_field_is_fine_or_named(small, tmp_path, field):
    make_trace(small, tmp_path / "run", MANIFEST)
    for value in VALUES:
        if field == "schema_version" and value == 3:
            continue  # a newer version has a sentence of its own
        said = complaint(lambda value=value: uses(opened(tmp_path / "run", **{field: value})))
        assert said is None or (field in said and "\n" not in said)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("targets", 3, "'targets' holds 3 where a list is expected"),
        ("targets", [3], r"'targets\[0\]' holds 3 where an object is expected"),
        ("targets", [TARGET, {}], r"'targets\[1\].target' holds None where text is expected"),
        ("targets", [{**TARGET, "seen": "1"}], "'1' where a whole number is expected"),
        ("targets", [{**TARGET, "seen": True}], "True where a whole number is expected"),
        ("dropped", None, "'dropped' holds None"),
        ("dropped", [["modules"]], r"'dropped\[0\]'"),
        ("options", "all", "'options' holds 'all' where an object is expected"),
        ("index_only", {"m1": "key"}, "'index_only.m1' holds 'key' where a list is expected"),
        ("state", 1, "'state' holds 1 where text is expected"),
        ("scrubbed", 5, "'scrubbed'"),
        ("clock", {"wall_ns": "now"}, "'clock.wall_ns'"),
        ("rank", "0", "'rank'"),
        ("ended", ["x" * 500], r"x\.\.\. where text or null is expected"),
    ],
)
def test_a_field_of_another_type_is_named_on_opening(small, tmp_path, field, value, message):
    make_trace(small, tmp_path / "run")
    with pytest.raises(TraceFormatError, match=message):
        opened(tmp_path / "run", **{field: value})


@pytest.mark.parametrize("use", [Trace.audit, Trace.summary])
def test_a_manifest_in_memory_is_checked_when_it_is_read(use):
    trace = Trace(Store.from_tables({"targets": None}, {}))
    with pytest.raises(TraceFormatError, match=r"The trace's manifest .* 'targets' holds None"):
        use(trace)


def test_the_manifest_of_an_export_is_checked_too(small, tmp_path):
    file = make_trace(small).to_csv(tmp_path / "csv") / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "dropped": 7}))
    with pytest.raises(TraceFormatError, match=r"manifest\.json .* 'dropped' holds 7"):
        read_csv(tmp_path / "csv")


def test_fields_that_nobody_reads_are_let_be(small, tmp_path):
    make_trace(small, tmp_path / "run")
    uses(opened(tmp_path / "run", colour=[None, {"deep": [1]}]))


def test_a_coherent_manifest_passes():
    check_manifest(make_trace(coherent_rows()).manifest, "it")
