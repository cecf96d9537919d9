"""The small coherent trace and a recorded one, opened for a player."""

import warnings
from pathlib import Path

import pytest
from synthetic import coherent_rows, make_trace

from tracer.replaying.replay import Replay
from tracer.trace import open_trace

RECORDED = Path(__file__).resolve().parents[2] / "notebooks" / "traces"


@pytest.fixture(scope="module")
def replay():
    return Replay(make_trace(coherent_rows()))


@pytest.fixture(scope="module")
def recorded():
    """A load and an answer as the library ran them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Replay(open_trace(RECORDED / "09_export" / "answer.zip"))
