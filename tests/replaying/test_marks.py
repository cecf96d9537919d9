"""Marks: moments of a run, its faults, broken checks and the doctor's findings, at their stops."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from synthetic import coherent_rows, event, make_trace

from tracer.explain import audit_word
from tracer.replaying import marks
from tracer.replaying.nodes import KINDS
from tracer.replaying.replay import Replay
from tracer.trace import open_trace

RECORDED = Path(__file__).resolve().parents[2] / "notebooks" / "traces"


def found(replay, group="moments"):
    return [(mark["key"], mark["stop"]) for mark in replay.marks if mark["group"] == group]


def test_a_load_ends_and_a_first_token_comes():
    replay = Replay(make_trace(coherent_rows()))
    moments = dict(found(replay))
    columns = replay.stops.columns
    (load, generate) = replay.stops.of_kind("call")
    assert moments["load_end"] == columns["last"][load]
    assert moments["first_token"] == columns["token_stop"][0]
    assert load < moments["load_end"] < generate < moments["first_token"]


def test_the_cache_crosses_its_window_once_a_call():
    replay = Replay(open_trace(RECORDED / "06_kv_cache" / "sliding.zip"))
    (stop,) = (stop for key, stop in found(replay) if key == "window")
    layers = replay.trace["cache_layers"]
    over = layers[layers["tokens_seen"] > layers["capacity_tokens"]]
    assert KINDS[replay.stops.columns["kind"][stop]] == "step"
    assert replay.stops.columns["step"][stop] == over["step"].min()


def test_an_exception_is_marked_where_it_was_raised():
    rows = coherent_rows()
    call = event(900, -1, 900, "setup", "generate", 900, 5) | {"status": "error"}
    rows["calls"].append(call | {"kind": "generate"})
    rows["spans"].append(event(901, 900, 900, "setup", "checks", 901, 1) | {"status": "error"})
    replay = Replay(make_trace(rows))
    ((_, stop),) = (one for one in found(replay) if one[0] == "error")
    assert replay.detail(stop)["title"] == "checks"


def test_a_fault_says_what_was_not_observed():
    rows = coherent_rows()
    fault = event(950, -1, -1, "recorder", "fault", 950, 0)
    rows["faults"] = [fault | {"target": "vision", "reason": "the module ran compiled"}]
    (mark,) = (mark for mark in Replay(make_trace(rows)).marks if mark["group"] == "faults")
    assert mark["title"]["en"] == mark["title"]["zh"] == "vision"
    assert mark["text"]["zh"] == "the module ran compiled"


def test_a_fault_of_the_lab_says_it_in_every_language():
    rows = coherent_rows()
    fault = event(950, -1, -1, "recorder", "fault", 950, 0)
    reason = "max_bytes=500 reached: not recorded from seq 17 on"
    rows["faults"] = [fault | {"target": "modules", "reason": reason}]
    (mark,) = (mark for mark in Replay(make_trace(rows)).marks if mark["group"] == "faults")
    assert mark["text"] == {"en": reason, "zh": "达到 max_bytes=500：从 seq 17 起不再记录"}


def test_a_broken_check_has_its_name_in_every_language():
    rows = coherent_rows()
    rows["placements"].pop()
    marked = [mark for mark in Replay(make_trace(rows)).marks if mark["group"] == "audit"]
    assert marked
    for mark in marked:
        assert mark["title"]["zh"] == audit_word(mark["key"], "zh") != mark["title"]["en"]


def test_a_broken_check_is_marked_at_its_evidence():
    rows = coherent_rows()
    rows["placements"][0]["origin"] = "unwritten"
    name = rows["placements"][0]["param"]
    replay = Replay(make_trace(rows))
    audit = replay.trace.audit()
    broken = set(audit[audit["verdict"] == "broken"]["check"])
    assert broken
    assert broken == {key for key, _ in found(replay, "audit")}
    titles = {replay.detail(stop)["title"] for _, stop in found(replay, "audit")}
    assert name in titles
    for mark in replay.marks:
        if mark["group"] == "audit":
            assert re.search("[\u4e00-\u9fff]", mark["title"]["zh"])
            assert re.fullmatch(".*[\u4e00-\u9fff].* ≠ .*[\u4e00-\u9fff].*", mark["text"]["zh"])
            assert not re.search("[\u4e00-\u9fff]", mark["title"]["en"] + mark["text"]["en"])


def test_marks_stand_in_the_order_of_the_walk_and_speak_both_languages():
    replay = Replay(make_trace(coherent_rows()))
    stops = [mark["stop"] for mark in replay.marks]
    assert stops == sorted(stops)
    for mark in replay.marks:
        assert mark["title"]["en"] != mark["title"]["zh"]


@pytest.mark.skipif(find_spec("tracer.diagnosis") is None, reason="there is no doctor here")
def test_a_finding_of_the_doctor_is_marked_at_what_shows_it():
    replay = Replay(open_trace(RECORDED / "06_kv_cache" / "window.zip"))
    stops = [stop for key, stop in found(replay, "findings") if key == "cache_not_reused"]
    assert stops
    for stop in stops:
        assert KINDS[replay.stops.columns["kind"][stop]] in ("call", "step")
    mark = next(mark for mark in replay.marks if mark["group"] == "findings")
    assert mark["title"]["en"] != mark["title"]["zh"]


class _Row:
    def __init__(self, **key):
        self.key, self.cells = key, {}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ({"seq": 0}, "call"),
        ({"event": 0}, "call"),
        ({"call": 0, "file": "model.safetensors", "key": "embed.weight"}, "call"),
    ],
)
def test_a_row_that_shows_a_finding_leads_to_a_stop(key, kind):
    stops = Replay(make_trace(coherent_rows())).stops
    assert KINDS[stops.columns["kind"][marks._shown_at(stops, _Row(**key))]] == kind


def test_a_row_of_a_forward_leads_to_the_forward():
    rows = coherent_rows()
    step = rows["steps"][2]
    stops = Replay(make_trace(rows)).stops
    place = marks._shown_at(stops, _Row(call=step["call"], step=step["step"], row=0))
    assert stops.seq[place] == step["seq"]


def test_a_row_of_nothing_known_leads_nowhere():
    stops = Replay(make_trace(coherent_rows())).stops
    assert marks._shown_at(stops, _Row(path="config.json")) == -1
    assert marks._shown_at(stops, _Row(call=777)) == -1


def test_a_trace_that_the_audit_can_not_read_is_played_and_says_so():
    rows = coherent_rows()
    for record in rows["meta_params"]:
        record["param"] = None
    replay = Replay(make_trace(rows))
    assert {"moments"} <= {mark["group"] for mark in replay.marks}
    (note,) = replay.notes
    assert note["key"] == "marks_failed"
    assert note["values"]["reason"]
