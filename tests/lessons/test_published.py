"""The committed traces of the published processor can be made again by whoever has its files."""

from pathlib import Path

import pytest

from tracer.analysis.inputs import marker_counts
from tracer.lessons.published import record_published
from tracer.trace import open_trace

PUBLISHED = Path(__file__).resolve().parents[3] / "shared/data/folders/Qwen2.5-VL-7B-Instruct"
COMMITTED = Path(__file__).resolve().parents[2] / "notebooks/traces/03_inputs"
TOKENS = {"published": (3577, 3602), "default": (1247, 1272)}


def counts(trace):
    (markers,) = marker_counts(trace).itertuples()
    prompt = (trace["tokens"]["origin"] != "generated").sum()
    assert (markers.images, markers.image_markers_in_text, markers.modules) == (1, 1, 0)
    return markers.image_tokens, prompt


@pytest.mark.parametrize("name", TOKENS)
def test_the_committed_traces_show_the_walks_numbers(name):
    assert counts(open_trace(COMMITTED / f"{name}.zip")) == TOKENS[name]


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no published files at {PUBLISHED}")
def test_they_can_be_made_again(tmp_path):
    kept = record_published(PUBLISHED, tmp_path)
    assert {path.stem: counts(open_trace(path)) for path in kept} == TOKENS
