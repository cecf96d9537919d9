"""Memory and disk of a load: peaks, cold or warm, and who paid for the bytes."""

import pytest
from analysis.load_rows import call, read, span
from synthetic import event, make_trace

from tracer.analysis import load_memory

WEIGHTS = 8_000_000


def sample(seq, of, name, start, anonymous, file=100, disk=0, faults=(0, 0)):
    row = event(seq, of, of, "tensor_load", name, start, 0)
    row |= {"anonymous_bytes": anonymous, "file_bytes": file, "disk_bytes": disk}
    return row | {"minor_faults": faults[0], "major_faults": faults[1]}


@pytest.fixture
def rows():
    """A load that maps both its tensors, and a forward that reads them from the disk."""
    loads = [read(5, 3, "a", 40, 1, 0), read(6, 3, "b", 42, 1, 0)]
    for load in loads:
        load |= {"mapped": True, "minor_faults": 3, "major_faults": 0, "file": "one"}
        load |= {"stored_dtype": "float32", "loaded_dtype": "float32"}
    file = {"event": 2, "call": 2, "rank": 0, "model": "m1", "path": "one", "kind": "weights"}
    file |= {"format": "safetensors", "access": "mmap", "read": True, "filesystem": "ext4"}
    forward = event(9, -1, 9, "setup", "generate", 200, 50) | {"kind": "generate", "model": "m1"}
    return {
        "calls": [call(2, -1, 0, 100, model="m1"), forward],
        "spans": [span(3, 2, "tensor_load", 30, 60)],
        "tensor_loads": loads,
        "files": [file | {"size_bytes": WEIGHTS + 500}],
        "memory": [
            sample(10, 2, "before the load", 1, 1000, faults=(10, 0)),
            sample(11, 2, "between reads", 45, 5000, file=300),
            sample(12, 2, "after the load", 99, 2000, file=200, faults=(50, 0)),
            sample(13, 9, "before the first forward", 210, 2000, file=200, faults=(60, 0)),
            sample(14, 9, "after the first forward", 240, 3000, WEIGHTS, WEIGHTS, (900, 40)),
        ],
    }


def paid(rows):
    return load_memory.where_paid(make_trace(rows)).set_index("phase")


def verdict(rows):
    (found,) = load_memory.cold_or_warm(make_trace(rows)).to_dict("records")
    return found


def test_a_mapped_load_reads_nothing_and_the_first_forward_pays(rows):
    found = paid(rows)
    assert found["tensors"].to_dict() == pytest.approx(
        {"mapped": 2, "read": 0, "load": 2, "first forward": None}, nan_ok=True
    )
    assert found.loc[["load", "first forward"], "minor_faults"].tolist() == [40, 840]
    assert found.loc[["load", "first forward"], "major_faults"].tolist() == [0, 40]
    assert found.loc[["load", "first forward"], "disk_bytes"].tolist() == [0, WEIGHTS]
    assert found.loc["first forward", "file_added_bytes"] == WEIGHTS - 200
    assert found.loc["mapped", "minor_faults"] == 6


def test_a_cast_pays_in_the_load(rows):
    for load in rows["tensor_loads"]:
        load |= {"mapped": False, "loaded_dtype": "bfloat16", "minor_faults": 1000}
    found = paid(rows)
    assert found.loc["read", ["tensors", "size_bytes", "minor_faults"]].tolist() == [
        2,
        WEIGHTS,
        2000,
    ]
    assert found.loc["mapped", "tensors"] == 0
    assert load_memory.load_memory(make_trace(rows))["cast"].tolist() == ["float32 to bfloat16"]


def test_the_forward_of_another_model_pays_for_nothing_of_this_one(rows):
    rows["calls"][1]["model"] = "m2"
    assert "first forward" not in paid(rows).index


def test_the_peak_is_the_highest_sample_above_the_first(rows):
    (found,) = load_memory.load_memory(make_trace(rows)).to_dict("records")
    assert (found["before_bytes"], found["peak_bytes"], found["after_bytes"]) == (1000, 5000, 2000)
    assert found["added_bytes"] == 4000
    assert found["times_weights"] == pytest.approx(4000 / WEIGHTS)
    assert (found["samples"], found["weight_bytes"], found["format"]) == (3, WEIGHTS, "safetensors")
    assert found["file_added_bytes"] == 200


def test_tied_tensors_of_one_file_weigh_no_more_than_the_file(rows):
    rows["files"][0]["size_bytes"] = WEIGHTS // 2
    assert load_memory.load_memory(make_trace(rows))["weight_bytes"].tolist() == [WEIGHTS // 2]


def test_bytes_from_the_disk_make_a_run_cold(rows):
    found = verdict(rows)
    assert (found["verdict"], found["disk_bytes"]) == ("cold", WEIGHTS)
    assert found["disk_mb_per_s"] == pytest.approx(8 / 0.030)


def test_a_warm_run_has_no_speed_of_a_disk(rows):
    rows["memory"][-1]["disk_bytes"] = 0
    found = verdict(rows)
    assert found["verdict"] == "warm"
    assert load_memory.cold_or_warm(make_trace(rows))["disk_mb_per_s"].isna().all()


def test_some_bytes_from_the_disk_are_told_as_some(rows):
    rows["memory"][-1]["disk_bytes"] = WEIGHTS // 4
    found = verdict(rows)
    assert (found["verdict"], found["because"][:3]) == ("partly cold", "25%")


@pytest.mark.parametrize("system", ["nfs4", "9p", "tmpfs", None])
def test_no_bytes_from_a_disk_say_nothing_of_another_kind_of_file_system(rows, system):
    rows["memory"][-1]["disk_bytes"] = 0
    rows["files"][0]["filesystem"] = system
    assert verdict(rows)["verdict"] == "unknown"


def test_a_load_that_only_mapped_is_not_called_warm(rows):
    del rows["memory"][3:]
    found = verdict(rows)
    assert (found["verdict"], found["touched_bytes"]) == ("unknown", 0)
    assert "nothing of them read" in found["because"]


def test_where_the_system_hides_the_disk_nothing_is_claimed(rows):
    for row in rows["memory"]:
        row |= {"disk_bytes": None, "minor_faults": None, "anonymous_bytes": None}
    found = verdict(rows)
    assert (found["verdict"], found["because"][:16]) == ("unknown", "the system hides")
    trace = make_trace(rows)
    assert load_memory.load_memory(trace)[["peak_bytes", "times_weights"]].isna().all(axis=None)
    phases = load_memory.where_paid(trace).set_index("phase")
    assert phases.loc[["load", "first forward"], "minor_faults"].isna().all()


@pytest.mark.parametrize(
    "question", [load_memory.load_memory, load_memory.where_paid, load_memory.cold_or_warm]
)
def test_a_trace_without_a_load_gives_an_empty_frame(question, rows):
    full, empty = question(make_trace(rows)), question(make_trace({}))
    assert empty.empty
    assert list(empty.columns) == list(full.columns)
