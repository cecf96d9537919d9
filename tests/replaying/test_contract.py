"""What the page script is promised: the header, the typed columns, details and shared rooms."""

import json

import numpy as np
import pytest
from synthetic import coherent_rows, make_trace

from tracer.replaying.buffers import as_json
from tracer.replaying.nodes import KINDS
from tracer.replaying.replay import Replay


@pytest.fixture(scope="module")
def replay():
    return Replay(make_trace(coherent_rows()))


def columns_of(replay):
    """The columns as the page script reads them."""
    return {
        name: np.frombuffer(replay.columns, place["type"], place["length"], place["offset"])
        for name, place in replay.header["columns"].items()
    }


def test_a_stop_comes_before_all_that_happened_inside_it(replay):
    columns = columns_of(replay)
    count = replay.header["count"]
    assert count == len(columns["parent"]) > 10
    for stop, parent in enumerate(columns["parent"].tolist()):
        assert parent < stop
        if parent >= 0:
            assert columns["last"][stop] <= columns["last"][parent]
            assert columns["depth"][stop] == columns["depth"][parent] + 1
        else:
            assert columns["depth"][stop] == 0


def test_every_number_points_into_its_list(replay):
    columns, header = columns_of(replay), replay.header
    for name in ("kind", "stage", "status", "name", "thread"):
        plural = {"status": "statuses"}.get(name, f"{name}s")
        assert columns[name].max() < len(header[plural])
    assert len(header["kinds"]) == len(header["tables"])


def test_every_stop_has_details_that_are_json(replay):
    for stop in range(replay.header["count"]):
        told = json.loads(as_json(replay.detail(stop)))
        assert told["stop"] == stop
        assert told["row"]["cells"]


def test_a_token_hangs_below_its_forward(replay):
    columns = columns_of(replay)
    tokens = columns["token_stop"]
    assert len(tokens)
    for stop in tokens.tolist():
        assert KINDS[columns["kind"][columns["parent"][stop]]] == "step"
        assert columns["step"][stop] == columns["step"][columns["parent"][stop]]


def test_both_languages_have_the_same_words(replay):
    english, chinese = (replay.header["words"][code] for code in ("en", "zh"))
    assert english.keys() == chinese.keys()
    for part in english:
        assert english[part].keys() == chinese[part].keys()
