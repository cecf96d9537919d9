"""Words are found by name, in the language that holds or the one that is asked for."""

import concurrent.futures
import subprocess
import sys

import pandas as pd
import pytest

import tracer
from tracer import explain
from tracer.errors import UnknownNameError
from tracer.explain.languages import words
from tracer.schema import STAGES, TABLES


@pytest.fixture
def chinese():
    """Chinese for the test, English again after it."""
    tracer.language("zh")
    yield
    tracer.language("en")


def test_the_lab_speaks_english_until_it_is_told_otherwise():
    code = "import tracer; print(tracer.language(), tracer.language('zh'), tracer.language())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["en", "zh", "zh"]


@pytest.mark.parametrize("code", ["fr", "ZH", "zh-CN", "", "stages", "../en", 3, ["zh"]])
def test_another_language_is_refused_and_changes_nothing(code):
    with pytest.raises(UnknownNameError, match=r"does not speak .* 'en' \(English\) or 'zh'"):
        tracer.language(code)
    assert tracer.language() == "en"
    with pytest.raises(UnknownNameError, match="does not speak"):
        explain.stage("prefill", code)


def test_all_threads_speak_the_chosen_language(chinese):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        titles = {*pool.map(lambda _: explain.stage("prefill").title, range(20))}
    assert titles == {"预填充"}


def test_another_language_can_be_asked_for_without_choosing_it(chinese):
    assert explain.stage("prefill", "en").title == "Prefill"
    assert explain.stage("prefill").title == "预填充"
    assert explain.column("steps", "step", "en").text.startswith("Number of the forward")
    assert explain.label("size_bytes", "en") == "size"
    assert explain.glossary("en")[0]["term"] == "checkpoint"


@pytest.mark.parametrize("code", explain.LANGUAGES)
@pytest.mark.parametrize("name", STAGES)
def test_a_stage_has_title_text_lesson_and_tables(name, code):
    stage = explain.stage(name, code)
    assert all(part in str(stage) for part in (stage.title, stage.text, stage.lesson, name))
    assert set(stage.tables) <= set(TABLES)


def test_sentences_of_a_lesson_are_joined_as_the_language_does(chinese):
    assert ". " in explain.stage("prefill", "en").lesson
    assert "。 " not in explain.stage("prefill").lesson
    assert explain.stage("prefill").lesson.count("。") == len(words("stages")["prefill"]["lesson"])


@pytest.mark.parametrize("code", explain.LANGUAGES)
@pytest.mark.parametrize("name", [*TABLES, "events"])
def test_a_table_is_told_with_all_its_columns(name, code):
    assert explain.table(name, code).text in str(explain.table(name, code))
    frame = pd.DataFrame(explain.columns(name, code))
    assert list(frame) == ["column", "label", "text", "unit", "provenance"]
    known = TABLES[name].column_names if name in TABLES else frame["column"].tolist()
    assert frame["column"].tolist() == known


def test_a_tables_own_text_goes_before_the_shared_one():
    assert explain.column("messages", "source").text.startswith("Logger")
    assert explain.column("calls", "source").text == explain.column("steps", "source").text


def test_a_column_has_its_unit_and_provenance_from_the_schema():
    told = explain.column("calls", "recomputed_ns")
    assert (told.unit, told.provenance, told.label) == ("ns", "estimated", "recomputing")
    assert str(told).startswith("recomputing · calls.recomputed_ns\n")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: explain.stage("prefil"), "no stage 'prefil'; did you mean one of: prefill"),
        (lambda: explain.table("token"), "no table 'token'; did you mean one of: tokens"),
        (lambda: explain.column("token", "text"), "no table 'token'"),
        (lambda: explain.column("tokens", "txt"), "no column of 'tokens' called 'txt'.*text"),
        (lambda: explain.columns("nothing"), "no table 'nothing'"),
        (lambda: explain.finding("padding_atended"), "no rule.*padding_attended"),
        (lambda: explain.text("summary.model"), "no phrase in 'summary' 'model'.*models"),
        (lambda: explain.text("sumary.models"), "no phrase in 'sumary' 'models'"),
        (lambda: explain.count("rows", 3), "no noun 'rows'.*row"),
    ],
)
def test_an_unknown_name_is_told_with_the_close_ones(ask, message):
    with pytest.raises(UnknownNameError, match=message):
        ask()


def test_a_head_is_the_schemas_or_made_of_the_name(chinese):
    assert explain.label("duration_ns") == "耗时"
    assert explain.label("total_ns") == "总耗时"
    assert explain.label("peak_rss_bytes") == "peak rss"


def test_the_glossary_is_a_frame_with_both_terms(chinese):
    frame = pd.DataFrame(explain.glossary()).set_index("en")
    assert frame.loc["prefill", "zh"] == frame.loc["prefill", "term"] == "预填充"
    assert frame.loc["decode", "zh"] == "解码"
    assert frame.loc["KV cache", "zh"] == "键值缓存（KV cache）"
    assert frame.loc["shard", "zh"] == "分片"
    assert frame.loc["placeholder", "zh"] == "占位符"
    assert frame.index.is_unique
    assert frame["zh"].is_unique


def test_moved_names_are_a_frame_with_a_column_a_release():
    frame = pd.DataFrame(explain.moved_names()).set_index("what")
    assert list(frame) == ["4.51.3", "4.57.6", "5.24.0", "text"]
    cache = frame.loc["cache in what generate() returns"]
    assert cache["4.57.6"] == "output.past_key_values"
    assert cache["5.24.0"] == "output.cache"


def test_a_finding_takes_its_numbers(chinese):
    values = {"count": "3", "rows": "第 0 行"}
    assert "3 个填充位置" in explain.finding("padding_attended", **values).text
    assert "3 padding positions" in str(explain.finding("padding_attended", "en", **values))


def test_braces_in_what_is_put_in_stay_as_they_are():
    told = explain.finding("padding_attended", count="{0}", rows="{rows.__class__}")
    assert "{0} padding positions, in row {rows.__class__}" in told.text


@pytest.mark.parametrize(
    ("number", "english", "chinese"),
    [(0, "0 rows", "0 行"), (1, "1 row", "1 行"), (2_000, "2,000 rows", "2,000 行")],
)
def test_counts_agree_with_their_noun(number, english, chinese):
    assert explain.count("row", number) == english
    assert explain.count("row", number, "zh") == chinese
