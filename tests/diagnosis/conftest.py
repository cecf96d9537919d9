"""One bench for all tests of the doctor."""

import pytest
from diagnosis.bench import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    """Toy models, made once."""
    return Bench(tmp_path_factory.mktemp("bench"))
