"""Code imported inside a recorded call: timed, and imported exactly as without a recording."""

import importlib
import json
import sys
import threading

import pytest
from instrument.toys import text_inputs

import tracer
from tracer.spans import ACTIVE


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules that nobody has imported, and one that can't be."""
    folder = tmp_path / "toy_family"
    folder.mkdir()
    (folder / "__init__.py").write_text("from toy_family import part\nNAME = __name__\n")
    (folder / "part.py").write_text("import sys\nLOADER = __loader__\nSPEC = __spec__\n")
    (tmp_path / "toy_broken.py").write_text("raise RuntimeError('broken on purpose')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in ("toy_family", "toy_family.part", "toy_broken"):
        sys.modules.pop(name, None)


def _inside_a_forward(llama, work):
    """Do some work as the user's hook would, inside a recorded call."""
    handle = llama.register_forward_pre_hook(lambda module, args: work())
    try:
        with tracer.record(strict=True) as recording:
            llama(**text_inputs())
    finally:
        handle.remove()
    assert recording.trace.rows("faults") == 0
    return recording.trace


def _imports(trace):
    spans = trace["spans"]
    return spans[spans["stage"] == "import"].set_index("name")


def test_an_import_inside_a_call_is_one_span_that_counts_its_modules(llama, package):
    def work():
        importlib.import_module("toy_family")

    trace = _inside_a_forward(llama, work)
    (call,) = trace["calls"].itertuples()
    span = _imports(trace).loc["toy_family"]
    assert (span["call"], span["status"]) == (call.seq, "ok")
    assert json.loads(span["summary"]) == {"modules": 2}
    assert "toy_family.part" not in _imports(trace).index


def test_a_module_has_the_loader_that_it_would_have_without_a_recording(llama, package):
    def work():
        importlib.import_module("toy_family")

    _inside_a_forward(llama, work)
    part = sys.modules["toy_family.part"]
    assert type(part.__loader__).__module__.startswith(("importlib", "_frozen"))
    assert part.__spec__.loader is part.__loader__ is part.LOADER
    assert importlib.reload(part) is part


def test_a_failing_import_raises_as_it_does_without_a_recording(llama, package):
    errors = []

    def work():
        try:
            importlib.import_module("toy_broken")
        except RuntimeError as error:
            errors.append(error)

    trace = _inside_a_forward(llama, work)
    assert [str(error) for error in errors] == ["broken on purpose"]
    assert "toy_broken" not in sys.modules
    assert _imports(trace).loc["toy_broken", "status"] == "error"


def test_a_module_that_does_not_exist_is_not_found(llama, package):
    def work():
        with pytest.raises(ModuleNotFoundError, match="toy_missing"):
            importlib.import_module("toy_missing")
        assert importlib.util.find_spec("toy_missing") is None

    assert _imports(_inside_a_forward(llama, work)).empty


def test_a_users_import_outside_any_call_is_the_users(package):
    with tracer.record(strict=True) as recording:
        importlib.import_module("toy_family")
    assert recording.trace.rows("spans") == 0


def test_what_the_lab_imports_for_its_own_work_is_its_own_time(llama, package):
    def work():
        with ACTIVE[threading.get_ident()].own_work("a look at a file"):
            importlib.import_module("toy_family")

    assert "toy_family" not in _imports(_inside_a_forward(llama, work)).index
