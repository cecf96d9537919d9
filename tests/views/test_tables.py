"""Tables show any frame safely: escaped, bounded, in human units, with what a column means."""

import html.parser
import re

import numpy as np
import pandas as pd
import pytest
from synthetic import coherent_rows, make_trace

from tracer.errors import UnknownNameError
from tracer.explain import language
from tracer.trace import open_trace
from tracer.views.labels import display_width
from tracer.views.tables import excerpt, styled, text_table

HOSTILE = [
    "<script>alert(1)</script>",
    "</td></tr></table><img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "\"quoted\" 'twice'",
    "line\nfeed\tand tab",
    "\x1b[2J\x07bell",
    "\u202ereversed",
    "\ud83d",
    "=1+1",
    "x" * 5000,
]


TAGS = {"div", "table", "thead", "tbody", "tr", "th", "br", "small", "td"}


class Reader(html.parser.HTMLParser):
    """Collect tags, tooltips and the text of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.titles += [value for name, value in attrs if name == "title"]
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data):
        if self.cells and self.tags[-1] == "td":
            self.cells[-1] += data


def read(frame: pd.DataFrame) -> Reader:
    return Reader(styled(frame)._repr_html_())


@pytest.mark.parametrize("column", ["name", "text", "some_bytes_", "<b>"])
@pytest.mark.parametrize("cell", HOSTILE)
def test_no_cell_and_no_head_becomes_markup(column, cell):
    heads = pd.Index([column, cell[:40]], dtype=object)
    reader = read(pd.DataFrame([[cell, "plain"]], columns=heads, dtype=object))
    assert set(reader.tags) == TAGS
    assert reader.tags.count("td") == 2


@pytest.mark.parametrize("cell", HOSTILE)
def test_a_row_of_text_is_one_line_that_moves_no_cursor(cell):
    lines = text_table(pd.DataFrame({"name": [cell]}, dtype=object)).split("\n")
    assert len(lines) == 2
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e\ud800-\udfff]", lines[1])
    assert len(lines[1]) <= 60


def test_a_text_column_keeps_its_spaces_in_quotes():
    assert "' red'" in text_table(pd.DataFrame({"text": [" red"]}))


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("read_ns", 2_300_000, "2.30 ms"),
        ("size_bytes", 16_600_000_000, "16.6 GB"),
        ("input_shape", "[1, 3602, 3584]", "1 × 3602 × 3584"),
        ("parameters", 8_292_166_656, "8,292,166,656"),
        ("parameters", '{"penalty": 1.05}', '{"penalty": 1.05}'),
        ("token_id", 151_643, "151643"),
        ("probability", 0.123456, "0.1235"),
        ("accepted", True, "yes"),
        ("accepted", np.False_, "no"),
        ("finish", None, "-"),
        ("read_ns", pd.NA, "-"),
        ("entropy", float("nan"), "-"),
    ],
)
def test_values_are_shown_as_people_read_them(name, value, shown):
    assert read(pd.DataFrame({name: pd.Series([value], dtype=object)})).cells == [shown]


@pytest.fixture
def chinese():
    language("zh")
    yield
    language("en")


def test_in_chinese_heads_are_words_above_the_columns_names(chinese):
    frame = make_trace(coherent_rows())["steps"][["step", "select_ns", "input_tokens"]]
    page = styled(frame)._repr_html_()
    heads = re.findall(r"<th [^>]*>(.*?)<br><small[^>]*>(.*?)</small>", page)
    assert [head for head, _ in heads] == ["步", "选择", "送入的词元"]
    assert [below for _, below in heads] == [
        "step · 测量",
        "select_ns · 推导",
        "input_tokens · 测量",
    ]
    titles = Reader(page).titles
    assert all(re.search("[\u4e00-\u9fff]", title) for title in titles)
    assert titles[1].startswith("select_ns：")
    assert titles[1].endswith("（推导，单位 ns）")


def test_in_chinese_a_terminals_table_has_both_too(chinese):
    frame = pd.DataFrame({"step": range(300), "undone": True, "own_ns": 5})
    heads, columns, first, *_ = text_table(frame, source="steps.parquet").splitlines()
    assert heads.split() == ["步", "已撤销", "own"]
    assert columns.split() == ["step", "undone", "own_ns"]
    assert first.split() == ["0", "是", "5", "ns"]
    assert text_table(frame, source="steps.parquet").endswith(
        "共 300 行，显示 200 行，全部在 steps.parquet"
    )
    assert text_table(frame.head(0)) == "  （没有行）"
    assert repr(styled(frame)).splitlines()[-2] == "  推导：own；其余为测量"


def test_numbers_stand_to_the_right_and_words_to_the_left():
    page = styled(pd.DataFrame({"step": [1], "is_cached": [True], "name": ["a"]}))._repr_html_()
    assert re.findall('<td style="text-align:(left|right)', page) == ["right", "left", "left"]


def test_200_of_20_000_rows_are_shown_and_the_rest_is_counted():
    frame = pd.DataFrame({"step": range(20_000)})
    assert read(frame).tags.count("td") == 200
    assert "200 of 20,000 rows" in styled(frame)._repr_html_()
    assert text_table(frame).endswith("200 of 20,000 rows")
    assert len(text_table(frame).splitlines()) == 202


def test_a_frame_without_rows_says_so():
    frame = pd.DataFrame({"step": []})
    assert styled(frame)._repr_html_() == "<p>(no rows)</p>"
    assert text_table(frame) == "  (no rows)"


def test_heads_tell_meaning_provenance_and_unit():
    titles = read(make_trace(coherent_rows())["steps"]).titles
    assert "select_ns: Choice of the token: from processors to stopping test (derived, in ns)" in (
        titles
    )
    assert len(titles) == len(make_trace({})["steps"].columns)


def test_a_name_in_many_tables_means_what_it_means_in_the_table_shown():
    trace = make_trace(coherent_rows())
    loads = trace.read("tensor_loads", ["key", "file", "shape", "read_ns"])
    built = trace.read("meta_params", ["param", "module_class", "planned_device", "shape"])
    (of_loads,), (of_built,) = (
        [title for title in read(table).titles if title.startswith("shape: ")]
        for table in (loads, built)
    )
    assert of_loads.startswith("shape: Shape in the file")
    assert of_built == "shape: Shape (measured)"


def test_a_column_that_no_table_has_is_said_to_be_computed():
    assert read(pd.DataFrame({"step_share": [0.5]})).titles == [
        "step_share: computed for this table"
    ]


def test_the_frame_itself_is_kept_for_computing():
    frame = pd.DataFrame({"step": [1, 2]})
    assert styled(frame).frame is frame


def test_as_text_it_reads_like_the_text_table():
    frame = pd.DataFrame({"step": [1, 2]})
    assert repr(styled(frame)) == text_table(frame, provenance=True)


def test_of_rows_left_out_the_file_that_has_them_all_is_named():
    table = styled(pd.DataFrame({"step": range(20_000)}), source="runs/a<b>/steps.parquet")
    assert repr(table).endswith("200 of 20,000 rows, all in runs/a<b>/steps.parquet")
    assert "<p>200 of 20,000 rows, all in runs/a&lt;b&gt;/steps.parquet</p>" in (
        table._repr_html_()
    )


def test_a_whole_frame_names_no_file():
    assert "all in" not in repr(styled(pd.DataFrame({"step": [1]}), source="steps.parquet"))


def test_each_head_shows_how_its_values_came_to_be():
    frame = pd.DataFrame([[1, 2, 3, 4]])
    frame.columns = ["forward_ns", "select_ns", "recomputed_ns", "step_share"]
    page = styled(frame)._repr_html_()
    kinds = re.findall("<small style=[^>]*>([a-z]+)</small>", page)
    assert kinds == ["measured", "derived", "estimated", "derived"]
    assert repr(styled(frame)).splitlines()[-1] == (
        "  derived: select, step share; estimated: recomputed; the others measured"
    )


def test_where_all_was_measured_it_says_so():
    frame = pd.DataFrame({"step": [1]})
    assert repr(styled(frame)).endswith("all measured")
    assert "measured" not in text_table(frame)


def test_colours_are_the_themes_and_nothing_comes_from_elsewhere():
    page = styled(make_trace(coherent_rows())["steps"])._repr_html_()
    colours = set(re.findall(r"(?:color|background):([^;\"]+)", page))
    assert colours
    assert all(colour.startswith("var(--jp-") for colour in colours)
    assert not re.search("https?:|url\\(|<style|<script", page)


def test_spaces_inside_a_token_are_kept():
    page = styled(pd.DataFrame({"text": ["a   b", "c"]}))._repr_html_()
    assert re.search('<td style="[^"]*white-space:pre-wrap[^"]*">&#x27;a   b&#x27;</td>', page)
    assert page.count("pre-wrap") == 1


def test_a_large_table_stays_small_in_a_notebook():
    frame = pd.DataFrame({f"name_{number}": ["x"] * 20_000 for number in range(10)})
    assert len(styled(frame)._repr_html_()) < 90_000


def test_a_screen_gets_the_columns_that_it_has_room_for(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    frame = pd.DataFrame({f"column_{number}": ["x" * 40] for number in range(10)})
    lines = repr(styled(frame)).splitlines()
    assert max(map(len, lines[:2])) <= 120
    assert "  2 of 10 columns" in lines
    assert len(text_table(frame).splitlines()[0]) > 120


def test_a_narrow_screen_gets_what_a_hundred_characters_hold(monkeypatch):
    monkeypatch.setenv("COLUMNS", "1")
    frame = pd.DataFrame({"x" * 60: ["y" * 99], "z": ["z" * 99], "last": [1]})
    assert "2 of 3 columns" in repr(styled(frame))


@pytest.mark.parametrize("value", [b"\x00" * 300_000, "[" + "1," * 200_000, "x" * 10**6])
@pytest.mark.parametrize("name", ["values", "input_shape", "text", "asked"])
def test_a_huge_cell_is_cut_before_anything_walks_through_it(name, value):
    frame = pd.DataFrame({name: [value] * 200}, dtype=object)
    assert len(text_table(frame)) < 202 * 60
    assert len(styled(frame)._repr_html_()) < 200 * 400 + 2000


def test_bytes_are_counted_and_not_shown():
    assert read(pd.DataFrame({"values": [b"\x00" * 2048]})).cells == ["2.05 kB of bytes"]


def test_a_column_named_like_a_shape_may_hold_something_else():
    assert read(pd.DataFrame({"shape": ["round", 3, None]})).cells == ["round", "3", "-"]


def test_an_excerpt_of_a_trace_reads_what_it_shows_and_names_the_file(tmp_path):
    rows = coherent_rows()
    trace = make_trace(rows, tmp_path / "run")
    table = excerpt(trace, "tokens", ["index", "text"], most=3)
    assert len(table.frame) == 3
    where = tmp_path / "run" / "tokens.parquet"
    assert repr(table).endswith(f"3 of {len(rows['tokens'])} rows, all in {where}")


def test_an_excerpt_counts_the_rows_that_fulfil_its_condition():
    trace = make_trace(coherent_rows())
    table = excerpt(trace, "tokens", where=[("kind", "==", "image")], most=1)
    assert repr(table).endswith('1 of 4 rows, all in trace["tokens"]')
    assert "all in" not in repr(excerpt(trace, "tokens", where=[("kind", "==", "image")]))


def test_an_excerpt_of_a_zip_names_the_member(tmp_path):
    trace = open_trace(make_trace(coherent_rows()).save(tmp_path / "run.zip"))
    assert repr(excerpt(trace, "steps", ["step"], most=1)).endswith("run.zip/steps.parquet")


def test_an_excerpt_of_what_is_no_table_is_one_clear_error():
    with pytest.raises(UnknownNameError, match="stepps"):
        excerpt(make_trace({}), "stepps")


def test_chinese_keeps_columns_aligned_in_a_terminal():
    frame = pd.DataFrame({"name": ["红色", "red"], "step": [1, 2]})
    _, chinese, latin = text_table(frame).splitlines()
    # Two characters of two columns each are as wide as four letters.
    assert len(latin) - len(chinese) == 2


def test_columns_of_one_name_are_both_shown():
    frame = pd.DataFrame([[1, "a"]], columns=["step", "step"])
    assert read(frame).cells == ["1", "a"]


@pytest.mark.parametrize("table", ["calls", "placements", "tokens", "choices", "sources"])
def test_any_table_of_a_trace_can_be_shown(table):
    frame = make_trace(coherent_rows())[table]
    assert read(frame).tags.count("td") == frame.size
    assert len(text_table(frame).splitlines()) == len(frame) + 1


def test_shares_are_shown_in_percent():
    assert "78.4 %" in text_table(pd.DataFrame({"share": [0.7844]}))


def test_a_terminals_cell_is_cut_by_the_room_that_it_takes(chinese):
    frame = pd.DataFrame({"check": ["3 bytes of a file"], "found": ["个张量" * 60]})
    *_, row, _ = repr(styled(frame)).splitlines()
    assert row.endswith("张…")
    assert display_width(row) <= 100
    assert "3 文件的字节数" in row


def test_keys_that_code_asks_for_are_words_to_people(chinese):
    frame = pd.DataFrame({"verdict": ["holds", "broken", "strange"], "check": ["4 ties"] * 3})
    assert read(frame).cells == ["成立", "4 绑定", "不成立", "4 绑定", "strange", "4 绑定"]
    assert frame["verdict"].tolist() == ["holds", "broken", "strange"]
