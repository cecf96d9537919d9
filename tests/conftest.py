"""Shared by all tests: no network, no display, no bars, the right release. Imports no torch."""

import os
import sys
from importlib import metadata

import hypothesis
import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TQDM_DISABLE"] = "1"

# No deadline: how long an example takes says something about the machine, not about the code.
hypothesis.settings.register_profile("lab", deadline=None)
hypothesis.settings.load_profile("lab")


def _release() -> str:
    """The transformers that this process has loaded, or would load."""
    loaded = sys.modules.get("transformers")
    return loaded.__version__ if loaded else metadata.version("transformers")


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"on transformers {_release()}")


def pytest_sessionfinish(session):
    """Tests that were to run on one release and ran on another have proved nothing."""
    asked = os.environ.get("TRACER_TEST_RELEASE")
    if asked and asked != _release():
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
        print(f"\nasked for transformers {asked}, ran on {_release()}")
