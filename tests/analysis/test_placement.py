"""Where the tensors of a model lie when its load has ended."""

import pytest
from synthetic import coherent_rows, make_trace

from tracer.analysis import placement


@pytest.fixture
def rows():
    return coherent_rows()


def change(rows, param, **columns):
    row = next(one for one in rows["placements"] if one["param"] == param)
    row |= columns


def test_bytes_add_up_to_those_of_the_model(rows):
    trace = make_trace(rows)
    found = placement.placed_bytes(trace)
    assert found.to_dict("records") == [
        {"place": "cpu", "dtype": "float32", "tensors": 7, "size_bytes": 488}
    ]
    assert found["size_bytes"].sum() == trace["models"]["size_bytes"].sum()


def test_what_is_offloaded_lies_where_it_is_fetched_from(rows):
    change(rows, "layers.0.weight", device="meta", residence="offloaded_disk")
    change(rows, "layers.1.weight", device="meta", residence="offloaded_cpu")
    change(rows, "norm.weight", device="cuda:1")
    change(rows, "norm.bias", device="meta", residence="meta")
    placed = placement.placed_tensors(make_trace(rows)).set_index("param")["place"]
    assert placed[["layers.0.weight", "layers.1.weight", "norm.weight", "norm.bias"]].tolist() == [
        "disk, offloaded",
        "cpu, offloaded",
        "cuda:1",
        "meta, no values",
    ]


def test_a_tied_name_takes_no_bytes_of_its_own(rows):
    rows["models"][0]["tied"] = {"head.weight": "embed.weight"}
    sizes = placement.placed_tensors(make_trace(rows)).set_index("param")["size_bytes"]
    assert (sizes["head.weight"], sizes["embed.weight"]) == (0, 160)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("bfloat16", 32), ("float8_e4m3fn", 16), ("bool", 16), ("complex64", 128), ("strange", None)],
)
def test_bytes_follow_the_dtype_and_an_unknown_one_has_none(rows, dtype, size):
    change(rows, "layers.0.weight", dtype=dtype)
    found = placement.placed_tensors(make_trace(rows)).set_index("param")["size_bytes"]
    assert (found["layers.0.weight"] == size) if size else found.isna()["layers.0.weight"]


def test_the_last_model_is_meant_or_the_one_asked_for(rows):
    rows["placements"] += [one | {"model": "m2"} for one in rows["placements"][:2]]
    trace = make_trace(rows)
    assert len(placement.placed_tensors(trace)) == 2
    assert len(placement.placed_tensors(trace, "m1")) == 7
    assert placement.placed_tensors(trace, "m3").empty


def test_a_trace_without_a_load_gives_an_empty_frame():
    assert placement.placed_bytes(make_trace({})).empty
