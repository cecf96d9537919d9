"""A trace in thirty lines of text, and the time of each stage."""

import re

import pandas as pd
import pytest
from synthetic import MANIFEST, coherent_rows, event, left_behind, make_trace

import tracer
from tracer.schema import STAGES, TABLES
from tracer.summary import stage_totals
from tracer.trace import open_trace
from tracer.views.labels import display_width


@pytest.fixture
def rows():
    """Rows of the coherent trace, to be changed."""
    return coherent_rows()


@pytest.fixture(scope="module")
def trace():
    """The coherent trace in memory; nothing changes a trace."""
    return make_trace(coherent_rows())


def test_the_summary_tells_the_run_in_thirty_lines(trace):
    text = trace.summary()
    assert text.startswith("Trace complete.\n2 calls, 1 model, ")
    for line in [
        r"#0   from_pretrained  m1   100 ms  ok",
        r"m1  TinyForCausalLM  120 parameters  488 B  float32  sdpa",
        r"tensor_load  6  24.0 ms  480 B",
        r"decode       3  30.0 ms",
        r"Faults: none recorded",
    ]:
        assert line in text
    assert "tokens 12" in text
    assert len(text.splitlines()) <= 32


def test_time_inside_a_span_of_the_same_stage_counts_once(rows):
    outer = next(span for span in rows["spans"] if span["stage"] == "config")
    rows["spans"].append(outer | {"seq": 900, "parent": outer["seq"]})
    assert "config       1  10.0 ms" in make_trace(rows).summary()


def test_the_summary_groups_faults(rows):
    rows["faults"] = [
        {"seq": 500 + index, "target": "generate", "reason": "was\ncompiled"} for index in range(3)
    ]
    text = make_trace(rows).summary()
    assert "3 x  generate  was compiled" in text
    assert "none recorded" not in text


def test_the_summary_says_how_the_run_ended(trace, rows):
    ended = make_trace(rows, manifest={**MANIFEST, "ended": "KeyboardInterrupt"})
    assert "How the run ended: KeyboardInterrupt" in ended.summary()
    assert "How the run ended" not in trace.summary()


@pytest.mark.parametrize(
    ("told", "is_said"), [(0.0123, True), (None, False), ("much", False), (7.5, False)]
)
def test_what_the_recorder_cost_is_said_where_it_is_known(told, is_said):
    text = make_trace({}, manifest={"recorder": {"share": told}}).summary()
    assert ("Recorder: 1.2 % of the recording's time" in text) == is_said


def test_an_empty_trace_has_a_summary():
    assert "0 calls, 0 models, 0 rows in 0 tables" in make_trace({}).summary()


def test_many_calls_are_counted_not_listed(rows):
    rows["calls"] = [rows["calls"][0] | {"seq": seq} for seq in range(20)]
    assert "... and 14 more" in make_trace(rows).summary()


def test_names_in_the_summary_move_no_cursor_and_end_no_line(rows):
    rows["calls"][0]["name"] = "load\x1b[2J\nnow"
    line = next(line for line in make_trace(rows).summary().splitlines() if "#0" in line)
    assert "\x1b" not in line
    assert "now" in line


def test_html_is_escaped(rows):
    rows["calls"][0]["name"] = "<script>alert(1)</script>"
    page = make_trace(rows)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_repr_is_one_line(trace):
    assert repr(trace) == "<Trace: complete, 22 tables, 107 rows>"


def test_an_interrupted_trace_says_so_first_and_counts_its_open_spans(tmp_path):
    left_behind(tmp_path / "run")
    first, *_ = open_trace(tmp_path / "run").summary().splitlines()
    assert first == (
        "Trace interrupted: its recording never closed (killed, or still running); 2 open spans."
    )


def totals_of(*spans, **tables):
    """Totals of hand-made spans: (seq, parent, stage, milliseconds or None) each, by stage."""
    records = [
        event(seq, parent, -1, stage, "x", 0, length or 0)
        | ({"duration_ns": None, "status": "interrupted"} if length is None else {})
        for seq, parent, stage, length in spans
    ]
    frame = stage_totals(make_trace({"spans": records, **tables}).read).set_index("stage")
    return {stage: (row.events, row.total_ns) for stage, row in frame.iterrows()}


MS = 1_000_000


def test_stage_totals_are_one_row_a_stage_in_the_order_of_the_schema(trace):
    totals = stage_totals(trace.read)
    assert list(totals.columns) == ["stage", "events", "total_ns", "size_bytes"]
    assert list(totals["stage"]) == [stage for stage in STAGES if stage in set(totals["stage"])]
    loads = trace["tensor_loads"]
    load = totals.set_index("stage").loc["tensor_load"]
    assert load.events == len(loads)
    assert load.total_ns == loads["duration_ns"].sum()
    assert load.size_bytes == loads["size_bytes"].sum()
    assert list(totals[totals["size_bytes"].notna()]["stage"]) == ["tensor_load"]


def test_an_import_that_an_import_caused_is_not_counted(rows):
    nested = [(1, -1, "import", 9), (2, 1, "import", 5), (3, 2, "config", 3), (4, 3, "import", 1)]
    assert totals_of(*nested) == {"import": (1, 9 * MS), "config": (1, 3 * MS)}
    assert totals_of(*nested, (5, -1, "import", 2))["import"] == (2, 11 * MS)


def test_a_call_in_between_does_not_make_time_count_twice():
    call = event(2, 1, 2, "resolve", "from_pretrained", 0, 4)
    spans = [(1, -1, "tokenizer", 6), (3, 2, "tokenizer", 2)]
    assert totals_of(*spans, calls=[call]) == {"tokenizer": (1, 6 * MS)}


def test_a_missing_duration_is_an_event_adds_nothing_and_covers_nothing():
    assert totals_of((1, -1, "place", None), (2, 1, "place", 3)) == {"place": (2, 3 * MS)}
    events, total = totals_of((1, -1, "place", None))["place"]
    assert events == 1
    assert pd.isna(total)


def test_spans_that_name_each_other_as_parent_end_in_totals_all_the_same():
    circle = [(1, 2, "tie", 1), (2, 1, "tie", 1), (3, 3, "tie", 1), (4, 99, "tie", 1)]
    assert totals_of(*circle) == {"tie": (3, 3 * MS)}


def test_a_stage_that_the_schema_does_not_have_is_left_out():
    assert totals_of((1, -1, "someday", 1), (2, 1, "tie", 1)) == {"tie": (1, MS)}


@pytest.mark.parametrize("depth", [2, 3, 63, 64, 65, 1_000])
def test_time_counts_once_however_deep_a_stage_lies_inside_itself(depth):
    between = [(seq, seq - 1, "config", 1) for seq in range(2, depth)]
    spans = [(1, -1, "verify", 5), *between, (depth, depth - 1, "verify", 1)]
    assert totals_of(*spans)["verify"] == (1, 5 * MS)


def test_an_empty_trace_has_no_stages():
    assert len(stage_totals(make_trace({}).read)) == 0


@pytest.fixture
def chinese():
    """Chinese for the test, English again after it."""
    tracer.language("zh")
    yield
    tracer.language("en")


def test_the_summary_speaks_the_chosen_language(chinese, trace, rows):
    text = trace.summary()
    assert text.startswith("记录完整。\n2 次调用，1 个模型，22 张表共 107 行\n模型\n")
    assert "120 个参数" in text
    assert "故障：无" in text
    rows["faults"] = [{"seq": 500, "target": "generate", "reason": "was compiled"}]
    assert (
        "故障：未观察到，或记录器出错\n  1 x  generate  was compiled" in make_trace(rows).summary()
    )


def test_a_fault_of_the_lab_is_told_in_chinese_and_cut_where_it_is_long(chinese, rows):
    rows["faults"] = [
        {"seq": 500, "target": "modules", "reason": "it is compiled: modules inside a compiled "
         "forward are not seen"},
        {"seq": 501, "target": "routing", "reason": "calls of this thread went to another recording"
         " that is on: the newest one, or the one that knows the model"},
    ]  # fmt: skip
    told = make_trace(rows).summary()
    assert "1 x  modules  它已编译：看不到编译后的前向内部的模块" in told
    assert (
        "1 x  routing  这个线程的调用归入了另一份正在进行的记录：最新的那份，或认识该模型的…"
        in told
    )


def test_only_what_was_recorded_is_english_in_a_chinese_summary(chinese, trace):
    recorded = {"from_pretrained", "generate", "TinyForCausalLM", "float32", "sdpa", "ok", "length"}
    recorded |= {"m1", "ms", "B", "meta", *STAGES, *TABLES}
    assert set(re.findall(r"[A-Za-z_]\w*", trace.summary())) <= recorded


def test_columns_stay_straight_with_chinese_in_them(chinese, trace):
    lines = trace.summary().splitlines()
    stages = lines[lines.index("阶段（各线程的时间相加）") + 1 :]
    ends = {display_width(line[: line.index(" ms") + 3]) for line in stages if " ms" in line}
    assert len(ends) == 1


def test_an_interrupted_trace_says_so_in_chinese_too(chinese, tmp_path):
    left_behind(tmp_path / "run")
    first, *_ = open_trace(tmp_path / "run").summary().splitlines()
    assert first == "记录中断：记录没有正常关闭（进程被杀，或仍在运行）；2 个未结束的跨度。"
