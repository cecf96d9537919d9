"""Every benchmark runs in its smallest size; what it measures there says nothing."""

import importlib.util

import pytest

from benchmarks.__main__ import run
from benchmarks.peers import CannotError, Work, hook_pair, measure_here
from benchmarks.results import NAMES, RESULTS
from benchmarks.table import COSTS, shown

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures():
    """All figures of a quick run, by benchmark; the committed results stay as they are."""
    before = RESULTS.read_bytes()
    found = {name: run(name, True) for name in NAMES}
    assert RESULTS.read_bytes() == before
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_runs(figures, name):
    assert figures[name]
    for one in figures[name]:
        assert one.value is not None
        assert shown(one).startswith(one.name)
        assert one.rounds >= 1


def test_a_quick_run_measures_what_the_table_shows(figures):
    """Except the large ones: figures of a name are made by the same code at every size."""
    measured = {one.name for found in figures.values() for one in found}
    missing = set(COSTS) - measured
    assert all(name.startswith(("load 2gb", "load 20k", "10M rows")) for name in missing), missing


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    from benchmarks.checkpoints import toy

    return toy(tmp_path_factory.mktemp("toy") / "model")


@pytest.mark.parametrize("name", ["tracer, layers", "hook pair", "cProfile", "torch.profiler"])
def test_peers_that_are_there_anyway_run(checkpoint, name):
    assert measure_here(name, "decode", checkpoint, 1).value > 0


def test_what_a_peer_cannot_do_is_a_dash(checkpoint, tmp_path):
    told = measure_here("hook pair", "load", checkpoint, 1)
    assert told.value is None
    assert "no" in told.note
    work = Work("load", print, print, {}, None, tmp_path)
    with pytest.raises(CannotError):
        hook_pair(work)


@pytest.mark.skipif(importlib.util.find_spec("torchlens") is not None, reason="it is installed")
def test_a_peer_that_is_not_installed_is_a_dash(checkpoint):
    told = measure_here("TorchLens", "forward", checkpoint, 1)
    assert told.note == "ModuleNotFoundError: No module named 'torchlens'"
