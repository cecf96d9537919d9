"""What is told about a stop: numbers with their unit and provenance, code, sequence, place."""

import gc
import json
import weakref

import pytest
from replayed import first
from synthetic import PROMPT, coherent_rows, event, make_trace

import tracer
from tracer.replaying.buffers import as_json
from tracer.replaying.code import origin_of
from tracer.replaying.details import ROOMS
from tracer.replaying.replay import Replay
from tracer.views.budget import strip_places


def facts(told):
    return {key: (text, provenance) for key, text, provenance in told["facts"]}


def test_a_number_has_its_unit_and_how_it_came_to_be(replay):
    told = facts(first(replay, "tensor", "embed.weight"))
    assert told["size_bytes"] == ("160 B", "measured")
    assert told["duration_ns"] == ("4.00 ms", "measured")
    assert told["share_of_call"] == ("4.0 %", "derived")


def test_a_boolean_stays_one_for_a_page_of_two_languages(replay):
    before = tracer.language()
    try:
        tracer.language("zh")
        told = first(replay, "tensor", "embed.weight")
    finally:
        tracer.language(before)
    assert facts(told)["mapped"] == (False, "measured")
    assert dict(told["row"]["cells"])["mapped"] is False


def test_memory_is_that_of_the_last_sample_before_the_end(replay):
    (sample,) = coherent_rows()["memory"]
    assert sample["rss_bytes"] == 900_000_000
    assert "memory_then" not in facts(first(replay, "tensor", "embed.weight"))
    assert facts(first(replay, "call", "from_pretrained"))["memory_then"] == ("900 MB", "measured")


def test_a_call_says_how_much_of_its_time_was_its_own(replay):
    told = first(replay, "call", "from_pretrained")
    inner = [replay.detail(int(stop)) for stop in replay.stops.of_kind("span")]
    whole = [one for one in inner if dict(one["row"]["cells"])["parent"] == "0"]
    assert len(whole) == 8
    # 100 ms, of which the eight stages take 10 + 10 + 5 + 20 + 40 + 5 + 2 + 8.
    assert "own_ns" not in facts(told) or facts(told)["own_ns"][0] == "0 ns"


def test_the_row_holds_every_cell_that_is_not_missing(replay):
    rows = coherent_rows()["tensor_loads"]
    told = first(replay, "tensor", "embed.weight")
    assert told["row"]["table"] == "tensor_loads"
    shown = dict(told["row"]["cells"])
    assert set(shown) == {name for name, value in rows[0].items() if value is not None}
    assert shown["shape"] == "10 × 4"


def test_a_tensor_lies_in_its_shard_where_the_header_says(replay):
    header = coherent_rows()["checkpoint_tensors"][0]
    (file,) = (one for one in coherent_rows()["files"] if one["path"] == header["file"])
    place = first(replay, "tensor", header["key"])["tensor"]
    assert place["offset"] == header["offset_bytes"]
    assert place["size"] == header["size_bytes"]
    assert place["file_size"] == file["size_bytes"]
    assert place["header"] == file["header_bytes"] + 8
    assert place["label"][1] == "160 B"


def test_reasons_are_there_in_every_language():
    rows = coherent_rows()
    rows["checkpoint_tensors"][0]["because"] = "set as lm_head.weight"
    rows["images"][0]["limit"] = "helper: multiples of the patch only"
    load = rows["spans"][0]
    load["summary"] = {"from": "the hub's cache", "why": "argument", "name": "a local folder"}
    replay = Replay(make_trace(rows))
    key = rows["checkpoint_tensors"][0]["key"]
    because = first(replay, "tensor", key)["tensor"]["because"]
    assert because == {"en": "set as lm_head.weight", "zh": "设为 lm_head.weight"}
    assert first(replay, "image")["image"]["limits"]["zh"] == "helper：只取图块边长的整数倍"
    (stop,) = replay.stops.of_seqs([load["seq"]])
    told = dict(replay.detail(int(stop))["outputs"])
    assert told["from"] == {"en": "the hub's cache", "zh": "Hub 的缓存"}
    assert told["why"]["zh"] == "由参数指定"
    assert told["name"] == "a local folder"


def test_a_tensor_without_a_header_has_no_place():
    rows = coherent_rows()
    rows["checkpoint_tensors"] = []
    assert "tensor" not in first(Replay(make_trace(rows)), "tensor")


def test_a_picture_has_its_sizes_its_grid_and_its_tokens(replay):
    image = first(replay, "image")["image"]
    row = coherent_rows()["images"][0]
    assert image["grid"] == [row["grid_t"], row["grid_h"], row["grid_w"]] == [1, 4, 4]
    assert image["merge"] == 2
    assert image["tokens"] == [4, 4, 4]


def test_a_module_says_what_went_in_and_came_out(recorded):
    told = first(recorded, "module", "lm_head")
    ((_, went_in),) = told["inputs"]
    ((_, came_out),) = told["outputs"]
    assert went_in.startswith("1 × ")
    assert came_out.endswith("640 bfloat16") or "bfloat16" in came_out


def test_a_load_says_what_was_asked_for_and_what_came_of_it(recorded):
    model = recorded.trace["models"].iloc[0]
    (call,) = recorded.stops.of_seqs([model["event"]])
    told = recorded.detail(int(call))
    assert ["asked", model["asked"]] in told["inputs"]
    assert [model["class_name"], model["dtype"]] in told["outputs"]
    assert ["parameters", f"{model['parameters']:,}"] in told["outputs"]


def test_an_answer_says_why_each_row_ended(recorded):
    calls = recorded.trace["calls"]
    (answer,) = calls[calls["kind"] == "generate"].itertuples()
    (stop,) = recorded.stops.of_seqs([answer.seq])
    assert ["finish", answer.finish] in recorded.detail(int(stop))["outputs"]


def test_a_forward_knows_the_cache_after_it(replay):
    step = first(replay, "step")
    cache = replay.shared("caches", step["cache"])
    assert cache["tokens_after"] == PROMPT
    assert [one["layer"] for one in cache["layers"]] == [0, 1]
    assert {one["tokens"] for one in cache["layers"]} == {PROMPT}
    assert cache["total"].endswith("B")


SOURCE = "library/generation.py:100"
LINES = ["def generate(self):", "    self.check()", "    for _ in range(2):", "        self.step()"]


def with_code(*paths):
    """A call whose children were reached over these paths."""
    call = event(0, -1, 0, "setup", "generate", 0, 10) | {"kind": "generate", "source": SOURCE}
    spans = [
        event(1 + at, 0, 0, "setup", f"child {at}", at, 1) | {"stack": f"k{at}"}
        for at in range(len(paths))
    ]
    stacks = [{"stack": f"k{at}", "frames": list(path)} for at, path in enumerate(paths)]
    source = {"source": SOURCE, "function": "generate", "first_line": 100}
    rows = {"calls": [call | {"stack": "k0"}], "spans": spans, "stacks": stacks}
    return Replay(make_trace(rows | {"sources": [source | {"text": "\n".join(LINES)}]}))


def test_the_source_shows_which_lines_led_inside():
    user, helper = "run.py:3 <module>", "library/checks.py:7 check"
    replay = with_code(
        [user, "library/generation.py:101 generate", helper],
        [user, "library/generation.py:103 generate"],
        [user, "library/generation.py:103 generate", helper],
        [user, "library/generation.py:400 another"],
    )
    told = replay.detail(0)
    assert told["source"] == {"key": SOURCE, "line": 100, "reached": [[101, 1], [103, 2]]}
    source = replay.shared("sources", SOURCE)
    assert source == {
        "file": "library/generation.py",
        "function": "generate",
        "first_line": 100,
        "lines": LINES,
    }


def test_a_forward_shows_the_lines_that_led_into_its_model():
    # The only child of a forward is the call of the same function as a module.
    path = ["library/generation.py:101 forward"]
    step = event(0, -1, -1, "decode", "decode 1", 0, 10) | {"step": 1, "source": SOURCE}
    module = event(1, 0, -1, "decode", "", 1, 8) | {"class_name": "Model", "source": SOURCE}
    inner = event(2, 1, -1, "decode", "embed", 2, 1) | {"class_name": "Embedding", "stack": "k0"}
    source = {"source": SOURCE, "function": "forward", "first_line": 100}
    rows = {
        "steps": [step | {"kind": "decode"}],
        "modules": [module, inner],
        "stacks": [{"stack": "k0", "frames": path}],
        "sources": [source | {"text": "\n".join(LINES)}],
    }
    replay = Replay(make_trace(rows))
    assert replay.detail(0)["source"]["reached"] == [[101, 2]]
    assert replay.detail(1)["source"]["reached"] == [[101, 2]]


def test_a_token_shows_the_code_that_it_was_chosen_in(recorded):
    """A token has no function of its own, and a demanding reader asks all the same."""
    told = first(recorded, "token")
    around = recorded.detail(told["code_of"])
    assert around["row"]["table"] == "steps"
    assert told["stack"] == around["stack"]
    assert told["source"] == around["source"]
    assert "code_of" not in around


def test_of_a_run_without_code_no_stop_shows_any():
    rows = coherent_rows()
    del rows["sources"], rows["stacks"]
    replay = Replay(make_trace(rows))
    for stop in range(len(replay.stops)):
        assert "code_of" not in replay.detail(stop)


def test_a_frame_finds_the_recorded_function_that_its_line_is_in():
    replay = with_code(["library/generation.py:102 generate", "library/generation.py:99 before"])
    inner, before = replay.shared("stacks", "k0")
    assert (inner["source"], before["source"]) == (SOURCE, None)


def test_the_call_path_shows_decorators_and_whose_code_each_frame_is(recorded):
    told = first(recorded, "module", "lm_head")
    frames = recorded.shared("stacks", told["stack"])
    functions = [frame["function"] for frame in frames]
    assert any("_call_impl" in name for name in functions)
    assert any("decorate_context" in name for name in functions)
    assert {"torch", "transformers"} <= {frame["origin"] for frame in frames}


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        ("transformers/models/llama/modeling_llama.py", "transformers"),
        ("accelerate/hooks.py", "accelerate"),
        ("torch/nn/modules/module.py", "torch"),
        ("concurrent/futures/thread.py", "python"),
        ("<frozen runpy>", "python"),
        ("qwen_vl_utils/vision_process.py", "other"),
        ("serve.py", "user"),
        ("tracer/demo/story.py", "tracer"),
    ],
)
def test_a_frame_belongs_to_its_package(file, origin):
    assert origin_of(file) == origin


def test_a_trace_without_sources_tells_the_rest():
    rows = coherent_rows()
    del rows["sources"], rows["stacks"]
    replay = Replay(make_trace(rows))
    told = first(replay, "call")
    assert "source" not in told
    assert replay.shared("stacks", told["stack"]) is None


def test_of_a_redacted_trace_kinds_and_counts_remain():
    trace = make_trace(coherent_rows()).scrub()
    replay = Replay(trace)
    told = [replay.detail(stop) for stop in range(len(replay.stops))]
    strip = replay.shared("strips", first(replay, "token")["token"]["strip"])
    assert strip["redacted"]
    assert [chip[4] for chip in strip["chips"] if chip[1] == "image"] == [4]
    assert "word" not in as_json([told, replay.header["names"]])


@pytest.mark.parametrize("frames", ["no json", "3", '{"a": 1}', "[1, null]", '["no line"]'])
def test_a_strangers_stack_breaks_nothing(frames):
    rows = coherent_rows()
    rows["stacks"][0]["frames"] = frames
    replay = Replay(make_trace(rows))
    for stop in range(len(replay.stops)):
        json.loads(as_json(replay.detail(stop)))
    replay.shared("stacks", "k1")


@pytest.mark.parametrize("summary", ["no json", "[1]", '{"size_bytes": {"a": 1}, "x_ns": "soon"}'])
def test_a_strangers_summary_breaks_nothing(summary):
    rows = coherent_rows()
    for span in rows["spans"]:
        span["summary"] = summary
    replay = Replay(make_trace(rows))
    for stop in replay.stops.of_kind("span"):
        json.loads(as_json(replay.detail(int(stop))))


STRANGE = [
    ("checkpoint_tensors", "shape", "NaN"),
    ("checkpoint_tensors", "shape", "[1,"),
    ("choices", "row", None),
    ("choices", "step", None),
    ("spans", "seq", None),
    ("calls", "seq", None),
    ("sources", "source", None),
    ("spans", "start_ns", -(2**63)),
    ("choices", "step", 2**62),
    ("images", "grid_h", -4),
    ("images", "expected_tokens", -4),
    ("files", "size_bytes", -1),
    ("cache_layers", "step", None),
    ("cache_layers", "tokens_seen", 2**62),
]


@pytest.mark.parametrize(("table", "column", "value"), STRANGE)
def test_a_strangers_cell_breaks_nothing(table, column, value):
    rows = coherent_rows()
    for record in rows[table]:
        record[column] = value
    replay = Replay(make_trace(rows))
    for stop in range(len(replay.stops)):
        told = replay.detail(stop)
        as_json(told)
        for place in (told.get("token", {}), *strip_places(told)):
            as_json(replay.shared("strips", place.get("strip", "")))


@pytest.mark.parametrize("key", ["", "1", "1:2:3", "a:b", "-5:0", "99:0", "1:0:0:0", "9" * 30])
@pytest.mark.parametrize("room", [*ROOMS, "attic"])
def test_a_key_that_is_none_gives_nothing_or_what_is_empty(replay, room, key):
    found = replay.shared(room, key)
    assert found is None or found["chips"] == [] or found["prompt"] >= 0


def test_a_stop_that_is_none_is_refused(replay):
    for stop in (-1, len(replay.stops)):
        with pytest.raises(IndexError):
            replay.detail(stop)


def test_every_detail_of_a_recorded_run_points_at_what_is_there(recorded):
    for stop in range(len(recorded.stops)):
        told = recorded.detail(stop)
        assert json.loads(as_json(told)) == told
        keys = [("sources", told.get("source", {}).get("key")), ("stacks", told.get("stack"))]
        keys += [("caches", told.get("cache"))]
        keys += [("strips", told.get("token", {}).get("strip"))]
        keys += [("strips", place["strip"]) for place in strip_places(told)]
        for room, key in keys:
            assert key is None or recorded.shared(room, key) is not None


def test_a_player_that_is_gone_keeps_no_trace():
    replay = Replay(make_trace(coherent_rows()))
    for stop in range(len(replay.stops)):
        replay.detail(stop)
    gone = weakref.ref(replay.trace)
    del replay
    gc.collect()
    assert gone() is None
