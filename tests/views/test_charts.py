"""Charts draw what the frame says, in words too, whatever a label holds and however long it is.

Warnings are errors: a glyph that no font has would fail each of these tests.
"""

import base64
import io
import itertools
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from synthetic import coherent_rows, make_trace

from tracer.analysis import inputs, modules
from tracer.analysis.answer import answer_tokens
from tracer.analysis.candidates import before_and_after
from tracer.analysis.latency import token_times
from tracer.analysis.load_files import shard_map
from tracer.analysis.placement import placed_tensors
from tracer.analysis.turns import turns
from tracer.explain import language
from tracer.schema import STAGES
from tracer.summary import stage_totals
from tracer.trace import Trace
from tracer.views import charts
from tracer.views.charts import modules as flame
from tracer.views.charts import prompt
from tracer.views.figure import COLOURS, Chart, alt_text, describe, durations, wrapped
from tracer.views.fonts import families, text_inches

HOSTILE = [" the", "红色", "\n", "$x_1$", "<b>", "", None, "\x00", "\ud83d", "\U0001f9e9", "w" * 90]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return make_trace(coherent_rows())


# What each chart takes, out of a trace.
FRAMES = {
    "answer_certainty": answer_tokens,
    "cache_by_layer": lambda trace: trace["cache_layers"],
    "cache_growth": lambda trace: trace["cache_layers"],
    "image_grid": inputs.call_images,
    "layer_times": modules.layer_times,
    "load_waterfall": lambda trace: trace["tensor_loads"],
    "memory_over_time": lambda trace: trace["memory"],
    "module_flame": modules.module_calls,
    "placement_by_device": placed_tensors,
    "prompt_strip": inputs.sequence_tokens,
    "rope_positions": inputs.sequence_tokens,
    "shard_map": shard_map,
    "stage_times": lambda trace: stage_totals(trace.read),
    "step_times": lambda trace: trace["steps"],
    "token_latency": token_times,
    "token_probabilities": answer_tokens,
    "top_candidates": before_and_after,
    "turn_comparison": turns,
}


@pytest.fixture(scope="module")
def made(trace: Trace) -> dict[str, Chart]:
    return {name: getattr(charts, name)(frame(trace)) for name, frame in FRAMES.items()}


@pytest.fixture(scope="module")
def bundles(made: dict[str, Chart]) -> dict[str, tuple[dict, dict]]:
    """What a notebook gets of each chart: drawing takes most of the time of these tests."""
    return {name: chart._repr_mimebundle_() for name, chart in made.items()}


def words(chart: Chart) -> list[str]:
    """Every text of a chart after it was drawn: ticks, legends, labels."""
    chart.png()
    return [text.get_text() for text in chart.findobj(lambda part: hasattr(part, "get_text"))]


def loads(count: int, workers: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "key": [f"layers.{number}.weight" for number in range(count)],
            "worker": [f"worker_{number % workers}" for number in range(count)],
            "size_bytes": 1000,
            "start_ns": np.arange(count) * 10_000,
            "read_ns": 5_000,
            "cast_ns": 2_000,
        }
    )


def tokens(texts: list[str | None]) -> pd.DataFrame:
    count = len(texts)
    return pd.DataFrame(
        {
            "row": 0,
            # A trace holds no lone surrogates; a frame made by hand may.
            "text": pd.Series(texts, dtype=object),
            "token_id": range(count),
            "probability": np.linspace(0.2, 0.9, count),
            "raw_rank": np.arange(count) % 3,
            "entropy": np.linspace(2, 0, count),
        }
    )


def test_every_chart_is_tested():
    assert set(FRAMES) == set(charts.__all__)


@pytest.mark.parametrize("name", charts.__all__)
def test_each_chart_is_a_figure_with_its_finding_in_words(made, name):
    chart = made[name]
    assert isinstance(chart, Figure)
    assert chart.alt_text.endswith(".")
    assert len(chart.alt_text.splitlines()) == 1
    title = chart.get_suptitle().replace("\n", " ")
    assert f"{chart.alt_text}".endswith(f": {title}.")


@pytest.mark.parametrize("name", charts.__all__)
def test_each_chart_has_ink_on_white_in_any_theme(bundles, name):
    image = Image.open(io.BytesIO(base64.b64decode(bundles[name][0]["image/png"]))).convert("RGB")
    assert image.getpixel((0, 0)) == (255, 255, 255)
    darkest, _ = image.convert("L").getextrema()
    assert darkest < 60


@pytest.mark.parametrize("name", charts.__all__)
def test_a_notebook_shows_it_with_words_for_those_who_cannot_see(made, bundles, name):
    data, metadata = bundles[name]
    assert data["text/plain"] == made[name].alt_text == metadata["image/png"]["alt"]
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert image.text == {"Description": made[name].alt_text}
    assert metadata["image/png"]["width"] <= 900


@pytest.mark.parametrize("name", charts.__all__)
def test_an_empty_frame_says_that_nothing_was_recorded(name):
    chart = getattr(charts, name)(FRAMES[name](make_trace({})))
    assert "nothing was recorded" in chart.alt_text
    assert chart.png().startswith(b"\x89PNG")


@pytest.fixture
def chinese():
    language("zh")
    yield
    language("en")


def latin_words(text: str) -> set[str]:
    return set(re.findall("[a-z]{3,}", text))


@pytest.mark.parametrize("name", charts.__all__)
def test_in_chinese_no_word_is_english_but_names_out_of_the_frame(trace, name, chinese):
    frame = FRAMES[name](trace)
    chart = getattr(charts, name)(frame)
    data = [
        frame[column].dropna().astype(str) for column in frame if frame[column].dtype != "Int64"
    ]
    named = latin_words(" ".join(text for column in data for text in column))
    named |= {"dtype", "logits", "nat", "detail", "layers", "modules"}
    named |= latin_words(" ".join(STAGES))
    said = " ".join([chart.alt_text, *words(chart)] if len(families()) > 1 else [])
    assert latin_words(said) - named == set()
    assert chart.alt_text.endswith("。") or len(families()) == 1


@pytest.mark.parametrize("name", charts.__all__)
def test_an_empty_frame_says_so_in_chinese_too(name, chinese):
    chart = getattr(charts, name)(FRAMES[name](make_trace({})))
    assert "没有记录到内容" in chart.alt_text or len(families()) == 1


def test_a_long_finding_is_broken_between_words_and_not_inside_an_amount():
    chart = Chart(4, 1)
    chart.tell("What", "first token after 59.6 ms in turn 1 and 474 ms in turn 6, 12.5 % of it")
    lines = chart.get_suptitle().splitlines()
    assert len(lines) > 1
    assert not any(line.endswith(("59.6", "474", "12.5")) for line in lines)
    assert " ".join(lines) in chart.alt_text


def test_chinese_is_broken_behind_any_character_but_before_no_mark():
    text = "第一步之后各层的缓存（dynamic）共 1.5 MB，" * 20
    lines = wrapped(text, 5, 11).split("\n")
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert len(lines) > 3
    assert all(text_inches(line, 11) <= 5 for line in lines)
    assert not any(line.startswith(("，", "）")) for line in lines)
    assert not any(line.endswith("（") for line in lines)
    assert not any(line.endswith("1.5") for line in lines)


@pytest.mark.parametrize(
    ("nanoseconds", "shown"),
    [
        (0, "0"),
        (5e9, "5 s"),
        (4.5e9, "4.5 s"),
        (15e6, "15 ms"),
        (1.25e6, "1.25 ms"),
        (900, "900 ns"),
    ],
)
def test_an_axis_has_no_idle_zeros(nanoseconds, shown):
    axes = Chart(2, 1).subplots()
    durations(axes.xaxis)
    assert axes.xaxis.get_major_formatter()(nanoseconds, 0) == shown


def test_any_figure_can_be_described():
    figure = describe(Figure(), "Two bars: the left one is longer.")
    assert alt_text(figure) == "Two bars: the left one is longer."
    assert alt_text(Figure()) == ""


def test_a_description_is_what_a_notebook_shows():
    chart = Chart(2, 1)
    assert describe(chart, "All of it.") is chart
    assert chart._repr_mimebundle_()[1]["image/png"]["alt"] == alt_text(chart) == "All of it."


def luminance(colour):
    """Relative luminance, as the web's contrast rule has it."""
    linear = ((np.array(to_rgb(colour)) + 0.055) / 1.055) ** 2.4
    return float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05


@pytest.mark.parametrize(
    "looks",
    [
        prompt._ROLES,
        {part: (colour, hatch) for part, (colour, _, hatch) in flame._COLOURS.items()},
        {part: (colour, hatch) for part, colour, hatch in flame._LAYER_PARTS.values()},
    ],
    ids=["prompt", "flame", "layers"],
)
def test_what_means_another_thing_is_told_apart_in_grey(looks):
    """Neighbours in a picture: a step of lightness that an eye sees, or another hatch."""
    for (one, (colour, hatch)), (other, (second, pattern)) in itertools.combinations(
        looks.items(), 2
    ):
        dark, light = sorted((luminance(colour), luminance(second)))
        assert hatch != pattern or light / dark > 1.2, (one, other)


def test_colours_differ_in_lightness():
    """Apart in print and for every eye."""
    found = np.array([luminance(colour) for colour in COLOURS])
    assert (found[1:] / found[:-1] > 1.3).all()


def test_the_waterfall_counts_tensors_bytes_and_workers(made):
    assert "6 tensors" in made["load_waterfall"].alt_text
    assert "2 workers" in made["load_waterfall"].alt_text
    assert {"loader_0", "loader_1", "read or map"} <= set(words(made["load_waterfall"]))


def test_the_waterfall_draws_each_read_where_it_was():
    chart = charts.load_waterfall(loads(3, workers=1))
    casts, reads = chart.axes[0].collections  # what takes longer is drawn last
    spans = [path.get_extents() for path in reads.get_paths()]
    assert [(box.x0, box.x1) for box in spans] == [(0, 5e3), (1e4, 1.5e4), (2e4, 2.5e4)]
    assert [path.get_extents().x0 for path in casts.get_paths()] == [5e3, 1.5e4, 2.5e4]


def test_a_long_load_stays_readable():
    chart = charts.load_waterfall(loads(20_000, workers=40))
    assert len(chart.axes[0].get_yticks()) == 12
    assert "by 40 workers, the 12 busiest drawn" in chart.alt_text
    bars = sum(len(part.get_paths()) for part in chart.axes[0].collections)
    assert bars < 12 * 2 * 1600


def test_a_crowded_lane_shows_shares_of_time_not_one_solid_bar():
    chart = charts.load_waterfall(loads(2_000, workers=1))
    reads, casts = (part.get_paths()[0].vertices[:, 1] for part in chart.axes[0].collections)
    # Half of the time reads, a fifth casts, from the lane's foot at 0.35 up to -0.35.
    assert reads.min() == pytest.approx(0.35 - 0.7 * 0.5, abs=0.05)
    assert casts.min() == pytest.approx(0.35 - 0.7 * 0.7, abs=0.05)
    assert "heights are shares of time" in chart.alt_text


def test_reads_without_a_worker_or_an_end_are_no_obstacle():
    frame = loads(3, workers=1).convert_dtypes()
    frame.loc[0, "worker"] = pd.NA
    frame.loc[1, ["read_ns", "cast_ns"]] = pd.NA
    assert "2 tensors" in charts.load_waterfall(frame).alt_text


def test_stages_keep_their_order_and_name_the_longest(made):
    labels = [text.get_text() for text in made["stage_times"].axes[0].get_yticklabels()]
    assert labels.index("config") < labels.index("tensor_load") < labels.index("decode")
    assert made["stage_times"].alt_text.startswith("Time of each stage: ")


def test_a_stage_of_a_newer_version_is_drawn_too():
    totals = pd.DataFrame({"stage": ["config", "dream"], "events": [1, 2], "total_ns": [10, 90]})
    chart = charts.stage_times(totals)
    assert "dream took longest: 90 ns, 90.0 % of 2 stages" in chart.alt_text


def test_tokens_stand_under_their_bars(made):
    above = made["token_probabilities"].axes[0]
    labels = [text.get_text() for text in above.get_xticklabels()]
    assert labels == ["␣word5", "␣word6", "␣word7", "␣word8"]
    assert [bar.get_height() for bar in above.patches] == [pytest.approx(0.6065)] * 4


def test_a_token_that_was_not_the_first_choice_looks_different():
    chart = charts.token_probabilities(tokens(["a", "b", "c", "d"]))
    hatched = [bool(bar.get_hatch()) for bar in chart.axes[0].patches]
    assert sorted(hatched) == [False, False, True, True]
    assert "4 tokens, 2 of them the model's first choice; least sure of a (20.0 %)" in (
        chart.alt_text
    )


def test_hostile_tokens_become_labels_without_boxes():
    chart = charts.token_probabilities(tokens(HOSTILE))
    shown = words(chart)
    assert {"␣the", "\\n", "$x_1$", "<b>", "#5", "#6", "\\u0000", "\\ud83d"} <= set(shown)
    assert max(map(len, shown[:12])) <= 60


@pytest.mark.parametrize(("count", "lines", "drawn"), [(24, 1, 24), (25, 2, 25), (500, 4, 96)])
def test_a_long_answer_goes_on_in_further_lines(count, lines, drawn):
    chart = charts.token_probabilities(tokens(["a"] * count))
    assert len(chart.axes) == 2 * lines
    assert sum(len(axes.patches) for axes in chart.axes[::2]) == drawn
    assert ("the first 96 are drawn" in chart.alt_text) == (count > drawn)


def test_of_a_batch_the_first_row_is_drawn():
    both = pd.concat([tokens(["a", "b"]), tokens(["c", "d", "e"]).assign(row=1)])
    assert "2 tokens" in charts.token_probabilities(both).alt_text


def test_steps_are_split_into_their_parts(made):
    chart = made["step_times"]
    assert "prefill 20.0 ms, then 3 decode steps of 10.0 ms on average" in chart.alt_text
    assert {"prepare", "forward", "processors", "select", "stop test"} <= set(words(chart))
    below = chart.axes[1]
    tops = [bar.get_y() + bar.get_height() for bar in below.patches[-3:]]
    assert tops == [pytest.approx(10e6)] * 3


def test_many_steps_are_binned_and_the_axis_says_so(trace):
    one = trace["steps"].iloc[[1]]
    many = pd.concat([one] * 2000).assign(step=range(1, 2001))
    chart = charts.step_times(pd.concat([trace["steps"].head(1), many]))
    assert len(chart.axes[1].patches) <= 60 * 5
    assert chart.axes[1].get_xlabel() == "decode step, means of 34"


def test_a_generation_of_one_token_has_no_decode_steps(trace):
    chart = charts.step_times(trace["steps"].head(1))
    assert "and no decode step" in chart.alt_text
    chart.png()


def test_the_cache_grows_by_the_same_bytes_each_step(made):
    assert made["cache_growth"].alt_text.endswith(
        "1.02 kB after prefill, 1.41 kB after 3 more steps, 128 B a step."
    )


def test_layers_of_different_classes_are_bands_of_their_own(trace):
    layers = trace["cache_layers"]
    layers.loc[layers["layer"] == 1, "class_name"] = "DynamicSlidingWindowLayer"
    chart = charts.cache_growth(layers)
    assert {"1 layer DynamicLayer, self", "1 layer DynamicSlidingWindowLayer, self"} <= set(
        words(chart)
    )


def test_in_chinese_what_is_offloaded_is_so_in_words():
    columns = {"param": ["a.weight", "b.weight"], "kind": "parameter", "size_bytes": 1000}
    placed = pd.DataFrame(columns | {"place": ["cuda:0", "disk, offloaded"]})
    language("zh")
    try:
        chart = charts.placement_by_device(placed)
    finally:
        language("en")
    assert "磁盘（已卸载） 1.00 kB" in chart.alt_text
    assert {"cuda:0", "磁盘（已卸载）"} <= set(words(chart))
