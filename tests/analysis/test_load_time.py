"""Where the time of a load went, asked of traces whose every number is known."""

import pytest
from analysis.load_rows import MODEL, MS, call, placement, read, span
from synthetic import coherent_rows, make_trace

from tracer.analysis import load_time, loads


@pytest.fixture
def five():
    """As generation 5 loads: headers first, two workers that read, one thread that sets."""
    return {
        "calls": [call(0, -1, 0, 100), call(2, 0, 12, 88, model=MODEL)],
        "spans": [
            span(1, 0, "import", 0, 10, of=0),
            span(3, 2, "meta_init", 12, 20),
            span(4, 2, "tensor_load", 32, 60),
            span(5, 4, "metadata", 33, 2),
            span(8, 2, "recorder", 94, 2),
        ],
        "tensor_loads": [
            read(6, 4, "a", 40, 8, 2),
            read(7, 4, "b", 44, 10, 4, thread="loader_1", queue=2),
        ],
        "placements": [placement("a", 10, 1, 3), placement("b", 5, 1, 4)],
    }


@pytest.fixture
def four(five):
    """As generation 4 does: one thread reads, casts and sets, a file at a time."""
    rows = five | {"tensor_loads": [], "placements": [placement("a", 0, 0, 3)]}
    rows["tensor_loads"] = [read(6, 4, "a", 40, 8, 2, thread="MainThread", queue=0)]
    rows["tensor_loads"][0]["queue_ns"] = None
    return rows


def by_part(rows):
    return load_time.by_part(load_time.load_time(make_trace(rows))).set_index("part")


def test_the_parts_of_the_loading_thread_add_up_to_the_wall_time(five, four):
    for rows in (five, four, coherent_rows()):
        times = load_time.load_time(make_trace(rows))
        assert times.loc[times["is_loading"], "total_ns"].sum() == 100 * MS


def test_each_part_is_what_was_recorded(five):
    found = by_part(five)
    milliseconds = (found["total_ns"] // MS).to_dict()
    assert milliseconds == {
        "import": 10,
        "metadata": 2,
        "meta_init": 20,
        "queue": 8,  # from 32 to the last submission at 42, less the header
        "read": 0,
        "cast": 0,
        "wait": 15,
        "convert": 2,
        "place": 7,
        "loop": 60 - 2 - 8 - 15 - 2 - 7,
        "recorder": 2,
        "unexplained": 2 + 88 - 20 - 60 - 2,
    }
    assert found["share"].sum() == pytest.approx(1)


def test_workers_are_told_apart(five):
    times = load_time.load_time(make_trace(five))
    beside = times[~times["is_loading"]].set_index(["thread", "part"])["total_ns"] // MS
    assert beside.to_dict() == {
        ("loader_0", "read"): 8,
        ("loader_0", "cast"): 2,
        ("loader_1", "read"): 10,
        ("loader_1", "cast"): 4,
    }
    assert (by_part(five)["workers_ns"] // MS).loc[["read", "cast"]].tolist() == [18, 6]


def test_times_of_tensors_bear_their_file(five):
    times = load_time.load_time(make_trace(five))
    of_b = times[times["file"] == "b.safetensors"].set_index("part")["total_ns"] // MS
    assert of_b.to_dict() == {"wait": 5, "convert": 1, "place": 4, "read": 10, "cast": 4}
    assert times.loc[times["part"] == "import", "file"].isna().all()


def test_a_parameter_out_of_two_files_belongs_to_neither(five):
    for row in five["tensor_loads"]:
        row["param"] = "model.a"
    times = load_time.load_time(make_trace(five))
    assert times.loc[times["part"] == "place", "file"].isna().all()


def test_a_thread_that_reads_for_itself_does_not_wait(five):
    """Without workers the library reads when it asks for the tensor."""
    for row in five["tensor_loads"]:
        row |= {"thread": "MainThread", "worker": "MainThread"}
    five["tensor_loads"][1]["start_ns"] = 60 * MS
    found = by_part(five)["total_ns"] // MS
    assert found[["read", "cast"]].tolist() == [18, 6]
    assert "wait" not in found.index  # 10 ms for a tensor that took 10, and 5 for one of 14
    assert by_part(five)["total_ns"].sum() == 100 * MS


def test_generation_4_reads_casts_and_sets_in_one_thread(four):
    found = by_part(four)["total_ns"] // MS
    assert found[["read", "cast", "place", "loop"]].tolist() == [8, 2, 3, 60 - 2 - 10 - 3]
    assert "queue" not in found.index


def test_what_the_recorder_did_between_events_is_taken_out(five):
    five["calls"][0]["recorder_ns"] = 12 * MS
    found = by_part(five)["total_ns"]
    assert found["recorder"] == 12 * MS
    assert found.sum() == 100 * MS
    assert found["import"] == 10 * MS
    assert found["loop"] < 26 * MS


def test_a_recorder_that_was_busier_than_that_shortens_the_stages_too(five):
    five["calls"][0]["recorder_ns"] = 60 * MS
    found = by_part(five)["total_ns"]
    assert (found["recorder"], found.sum()) == (60 * MS, 100 * MS)
    assert (found >= 0).all()
    assert found["import"] < 10 * MS
    assert found["place"] == 7 * MS  # timed by itself


def test_overlap_is_the_time_in_which_so_many_read(five):
    overlap = load_time.worker_overlap(make_trace(five)).set_index("reading")["total_ns"] // MS
    assert overlap.to_dict() == {1: 4 + 8, 2: 6}


def test_an_interrupted_span_leaves_its_time_to_what_encloses_it(five):
    five["spans"][2] |= {"duration_ns": None, "status": "interrupted"}
    found = by_part(five)["total_ns"]
    assert found.sum() == 100 * MS
    assert found["metadata"] == 2 * MS


def test_a_call_that_never_ended_has_no_time(five):
    five["calls"][0]["duration_ns"] = None
    times = load_time.load_time(make_trace(five))
    assert times.empty
    assert load_time.by_part(times).empty


def test_the_last_load_is_meant_or_the_one_asked_for(five):
    later = [call(20, -1, 200, 50), call(21, 20, 210, 40, model="m2")]
    five["calls"] += later
    trace = make_trace(five)
    assert loads.find_load(trace).call == 20
    assert loads.find_load(trace, 0) == loads.find_load(trace, 2)
    assert loads.find_load(trace, 2).model == MODEL
    assert loads.find_load(trace, 99) is None


def test_a_load_inside_a_load_is_part_of_it(five):
    five["calls"].append(call(9, 3, 15, 5, model="m2"))
    found = loads.find_load(make_trace(five))
    assert (found.call, found.inner, found.model) == (0, 2, MODEL)


def test_stages_follow_one_another(five):
    stages = loads.load_stages(make_trace(five))
    assert stages["stage"].tolist() == ["import", "meta_init", "tensor_load", "recorder"]


@pytest.mark.parametrize("question", [load_time.load_time, load_time.worker_overlap])
def test_a_trace_without_a_load_gives_an_empty_frame(question, five):
    full, empty = question(make_trace(five)), question(make_trace({}))
    assert empty.empty
    assert list(empty.columns) == list(full.columns)
    assert loads.load_stages(make_trace({})).empty
