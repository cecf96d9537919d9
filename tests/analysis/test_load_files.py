"""What each file of a load cost and gave, asked of a trace whose every number is known."""

import pytest
from analysis.load_rows import MS, call, placement, read, span
from synthetic import coherent_rows, make_trace

from tracer.analysis import load_files


@pytest.fixture
def rows():
    """Two files: of one a tensor is mapped and one is cast, of the other one is mapped."""
    loads = [
        read(5, 3, "a", 40, 1, 3),
        read(6, 3, "b", 42, 1, 3, thread="loader_1"),
        read(7, 3, "c", 50, 1, 0),
    ]
    for key, load in zip("abc", loads, strict=True):
        load |= {"file": "one" if key != "c" else "two", "minor_faults": 3, "major_faults": 1}
    loads[1]["mapped"] = loads[2]["mapped"] = True
    held = [("one", "a"), ("one", "b"), ("two", "c"), ("two", "stranger")]
    shared = {"event": 2, "call": 2, "rank": 0, "model": "m1"}
    weights = shared | {"kind": "weights", "format": "safetensors", "access": "mmap", "read": True}
    return {
        "calls": [call(2, -1, 0, 100, model="m1")],
        "spans": [
            span(3, 2, "tensor_load", 30, 60),
            span(4, 3, "metadata", 31, 2) | {"name": "one"},
            span(9, 3, "metadata", 45, 2) | {"name": "two"},
        ],
        "tensor_loads": loads,
        "placements": [placement("a", 0, 1, 2)],
        "files": [weights | {"path": name, "size_bytes": 9_000_000} for name in ("one", "two")],
        "checkpoint_tensors": [
            shared | {"file": file, "key": key, "dtype": "float32", "size_bytes": 4_000_000}
            | {"offset_bytes": 8 + 4_000_000 * number}
            for number, (file, key) in enumerate(held)
        ],
    }  # fmt: skip


def test_only_what_was_read_has_a_speed(rows):
    found = load_files.load_files(make_trace(rows)).set_index("file")
    assert found["tensors"].to_dict() == {"one": 2, "two": 1}
    assert found["mapped_bytes"].to_dict() == {"one": 4_000_000, "two": 4_000_000}
    assert found["read_bytes"].to_dict() == {"one": 4_000_000, "two": 0}
    assert found.loc["one", "mb_per_s"] == pytest.approx(4 / 0.004)
    assert found["mb_per_s"].isna().to_dict() == {"one": False, "two": True}


def test_what_happened_at_once_is_busy_once(rows):
    found = load_files.load_files(make_trace(rows)).set_index("file")
    assert (found["busy_ns"] // MS).to_dict() == {"one": 6, "two": 1}
    assert (found["cast_ns"] // MS).to_dict() == {"one": 6, "two": 0}
    assert (found["opened_ns"] // MS).to_dict() == {"one": 2, "two": 2}
    assert (found["place_ns"] // MS).to_dict() == {"one": 2, "two": 0}
    assert found["major_faults"].to_dict() == {"one": 2, "two": 1}


@pytest.mark.parametrize("access", ["pread", "bytes"])
def test_a_file_that_is_not_mapped_was_read(rows, access):
    rows["files"][1]["access"] = access
    found = load_files.load_files(make_trace(rows)).set_index("file")
    assert found["read_bytes"].to_dict() == {"one": 4_000_000, "two": 4_000_000}


def test_nobody_knows_whether_a_tensor_that_came_whole_was_read(rows):
    rows["tensor_loads"][2]["mapped"] = None
    found = load_files.load_files(make_trace(rows)).set_index("file")
    assert found.loc["two", ["mapped_bytes", "read_bytes"]].tolist() == [0, 0]


def test_after_each_file_it_is_told_what_is_known_loaded_and_left(rows):
    found = load_files.load_progress(make_trace(rows))
    columns = ["file", "after_ns", "known_tensors", "loaded_tensors", "left_tensors", "left_bytes"]
    assert found[columns].to_numpy().tolist() == [
        ["one", 46 * MS, 2, 2, 2, 8_000_000],
        ["two", 51 * MS, 4, 3, 1, 4_000_000],
    ]
    assert found["loaded_bytes"].tolist() == [8_000_000, 12_000_000]


def test_the_map_tells_where_each_tensor_lies_and_when_it_was_read(rows):
    found = load_files.shard_map(make_trace(rows))
    assert found["key"].tolist() == ["a", "b", "c", "stranger"]
    assert found["read_at_ns"].dropna().tolist() == [0, 2 * MS, 10 * MS]
    assert found["read_at_ns"].isna().tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    "question", [load_files.load_files, load_files.load_progress, load_files.shard_map]
)
def test_a_trace_without_a_load_gives_an_empty_frame(question):
    full, empty = question(make_trace(coherent_rows())), question(make_trace({}))
    assert not full.empty
    assert empty.empty
    assert list(empty.columns) == list(full.columns)
