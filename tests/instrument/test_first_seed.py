"""The first seed's walk in a debugger: each of its stops is seen in a recording, without one.

The seed walks transformers 4.51.3; where a stop has moved or gone, the table says where to, or what
shows it instead. A stop is seen if its line lies in the text of a recorded `sources` row, or is the
current line of a frame of a recorded call path.
"""

import json
from importlib import util

import pytest
from instrument.toys import ask
from transformers import AutoModelForImageTextToText, AutoProcessor

import tracer
from tracer.demo import checkpoint_folder
from tracer.instrument.installer import release

pytestmark = pytest.mark.generations

LOADING = "transformers/modeling_utils.py"
CONVERTING = "transformers/core_model_loading.py"
GENERATING = "transformers/generation/utils.py"
SEEING = "transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py"
# What the seed stops at: file and line on 4.51.3 (the seed's own numbers), 4.57.6 and 5.24; text
# instead of a place says that the stop is gone there, and which table shows it.
STOPS = {
    "dtype restored round the load": (
        (LOADING, 279), (LOADING, 277), "calls: from_pretrained is not decorated any more",
    ),
    "arguments of from_pretrained": ((LOADING, 3959), (LOADING, 4620), (LOADING, 4149)),
    "weights begin": ((LOADING, 4399), (LOADING, 5048), (LOADING, 4444)),
    "keys of the checkpoint": (
        (LOADING, 4633), (LOADING, 5311), "checkpoint_tensors: keys come from the headers",
    ),
    "missing and unexpected keys": ((LOADING, 4659), (LOADING, 5336), (LOADING, 4447)),
    "loop over the shards": ((LOADING, 4796), (LOADING, 5467), "tensor_loads: all headers first"),
    "shard as meta tensors": ((LOADING, 4822), (LOADING, 831), "meta_params: slices are lazy"),
    "shard into the model": ((LOADING, 4833), (LOADING, 843), (LOADING, 4591)),
    "loop over a shard's tensors": ((LOADING, 755), (LOADING, 701), (CONVERTING, 1748)),
    "slice of a tensor": ((LOADING, 763), (LOADING, 707), (LOADING, 4582)),
    "bytes of a tensor": ((LOADING, 787), (LOADING, 748), (CONVERTING, 1463)),
    "tensor into its place": ((LOADING, 824), (LOADING, 770), (CONVERTING, 1996)),
    "generate": ((GENERATING, 2113), (GENERATING, 2234), (GENERATING, 2584)),
    "length of the answer": ((GENERATING, 2306), (GENERATING, 2501), (GENERATING, 2943)),
    "cache": ((GENERATING, 2334), (GENERATING, 2529), (GENERATING, 2970)),
    "processors": ((GENERATING, 2358), (GENERATING, 2545), (GENERATING, 2987)),
    "stopping criteria": ((GENERATING, 2369), (GENERATING, 2556), (GENERATING, 2998)),
    "decoding method": ((GENERATING, 2465), (GENERATING, 2566), (GENERATING, 3008)),
    "loop over tokens": ((GENERATING, 3422), (GENERATING, 2781), (GENERATING, 3230)),
    "prefill": ((GENERATING, 3430), (GENERATING, 2785), (GENERATING, 3208)),
    "image features": ((SEEING, 1756), (SEEING, 1257), (SEEING, 1206)),
    "embeddings": ((SEEING, 1754), (SEEING, 1254), (SEEING, 1202)),
    "features into embeddings": ((SEEING, 1771), (SEEING, 1262), (SEEING, 1222)),
    "three-axis positions": ((SEEING, 1795), (SEEING, 1272), (SEEING, 1400)),
    "language model": ((SEEING, 1825), (SEEING, 1305), (SEEING, 1245)),
    "decoder layers": ((SEEING, 1171), (SEEING, 891), (SEEING, 847)),
    "last norm": ((SEEING, 1190), (SEEING, 908), (SEEING, 857)),
    "cache handed back": (
        (SEEING, 1196), "steps: the cache is filled", "steps: the cache is filled in place",
    ),
    "logits": ((SEEING, 1839), (SEEING, 1499), (SEEING, 1382)),
}  # fmt: skip
RELEASES = [(4, 51), (4, 57), (5, 24)]


@pytest.fixture(scope="module")
def walk():
    """The seed's whole walk, recorded: load, question, answer."""
    with tracer.record() as recording:
        processor = AutoProcessor.from_pretrained(checkpoint_folder())
        model = AutoModelForImageTextToText.from_pretrained(checkpoint_folder())
        _, inputs = ask(processor)
        model.generate(**inputs, max_new_tokens=2)
    return recording.trace


def _lies_in_a_function(trace, file, line):
    return any(
        row.source.startswith(f"{file}:")
        and row.first_line <= line < row.first_line + row.text.count("\n")
        for row in trace["sources"].itertuples()
        if isinstance(row.text, str)
    )


def _is_a_current_line(trace, file, line):
    return any(
        frame.startswith(f"{file}:{line} ")
        for frames in trace["stacks"]["frames"]
        for frame in json.loads(frames)
    )


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_of_the_first_seed_is_seen_in_the_recording(walk, stop):
    if release() not in RELEASES:
        pytest.skip("the lines of this release were not looked up")
    place = STOPS[stop][RELEASES.index(release())]
    if isinstance(place, str):
        assert walk.rows(place.partition(":")[0]) > 0
    else:
        assert _lies_in_a_function(walk, *place) or _is_a_current_line(walk, *place)


@pytest.mark.skipif(util.find_spec("modelscope") is None, reason="modelscope is not installed")
def test_a_model_out_of_modelscope_says_what_was_asked(walk):
    assert walk["models"]["asked"].notna().all()


def test_the_walk_shows_what_the_seed_looked_at(walk):
    for table in ("models", "files", "settings", "checkpoint_tensors", "tensor_loads"):
        assert walk.rows(table) > 0, table
    for table in ("meta_params", "placements", "prompts", "images", "steps", "cache_layers"):
        assert walk.rows(table) > 0, table
