"""What charts of a generate draw: artists against the frame, not pixels."""

import numpy as np
import pandas as pd
import pytest
from synthetic import coherent_rows, make_trace

from tracer.analysis.latency import token_times
from tracer.analysis.turns import turns
from tracer.views import charts

MS = 1_000_000


@pytest.fixture(scope="module")
def trace():
    return make_trace(coherent_rows())


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def labels_of(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def times(gaps, texts=None):
    gaps = np.asarray(gaps)
    frame = pd.DataFrame({"step": range(len(gaps)), "gap_ns": gaps, "at_ns": gaps.cumsum()})
    return frame.assign(tokens=1, text=texts if texts is not None else "a")


def answer(count, **columns):
    frame = pd.DataFrame({"row": 0, "step": range(count), "text": "a", "token_id": range(count)})
    plain = {"probability": 0.5, "entropy": 1.0, "margin": 0.3}
    return frame.assign(**(plain | columns))


def layers(count, stack="model.layers", phase="prefill"):
    frame = pd.DataFrame({"stack": stack, "layer": range(count), "phase": phase, "forwards": 1})
    return frame.assign(
        attention_ns=3 * MS, mlp_ns=2 * MS, rest_ns=1 * MS, total_ns=6 * MS
    )  # fmt: skip


def flame(boxes):
    """Frames of (depth, path, part, start, length)."""
    names = ["depth", "path", "part", "start_ns", "duration_ns"]
    frame = pd.DataFrame(boxes, columns=names)
    return frame.assign(class_name="Toy", self_ns=frame["duration_ns"])


def cells(layer_bytes, **columns):
    """A cache of (layer, step) bytes, layer by layer."""
    rows = [
        {"layer": layer, "step": step, "size_bytes": size}
        for layer, sizes in enumerate(layer_bytes)
        for step, size in enumerate(sizes)
    ]
    return pd.DataFrame(rows).assign(**({"part": "self", "class_name": "Dynamic"} | columns))


def test_the_wait_for_the_first_token_stands_apart(trace):
    above, below = charts.token_latency(token_times(trace)).axes
    assert [bar.get_width() for bar in above.patches] == [30 * MS - 20_000, 30 * MS - 60_000]
    (dots,) = [line for line in below.lines if line.get_marker() == "."]
    assert dots.get_ydata().tolist() == [10 * MS - 20_000] * 3


def test_a_jolt_is_named_with_its_token():
    frame = times([50 * MS] + [5 * MS] * 30, ["a"] * 20 + ["斑"] + ["a"] * 10)
    frame.loc[20, "gap_ns"] = 100 * MS
    chart = charts.token_latency(frame)
    (named,) = texts_of(chart.axes[1])
    assert named.startswith("100 ms ")
    assert "slowest 100 ms at step 20" in chart.alt_text


def test_slower_and_slower_is_part_of_the_finding():
    gaps = [9 * MS] + [round((1 + step / 100) * MS) for step in range(100)]
    assert "the last third took 1.58 × the first" in charts.token_latency(times(gaps)).alt_text


def test_many_gaps_are_folded_into_a_band():
    below = charts.token_latency(times([MS] * 2001)).axes[1]
    assert max(len(line.get_xdata()) for line in below.lines) <= 150
    assert below.get_xlabel() == "step, 14 folded into one"


def test_beam_search_counts_steps_and_says_so():
    frame = times([MS] * 11).assign(tokens=pd.array([None] * 11, dtype="Int64"))
    assert "1,000 steps a second" in charts.token_latency(frame).alt_text


def test_one_token_has_no_gaps():
    chart = charts.token_latency(times([MS]))
    assert len(chart.axes) == 1
    assert chart.alt_text.endswith("first token after 1.00 ms, and no other.")


def test_certainty_has_a_panel_each_for_probability_entropy_and_margin():
    frame = answer(3, probability=[0.9, 0.2, 0.8], entropy=[0.1, 2, 0.3], margin=[0.8, 0.05, 0.7])
    chart = charts.answer_certainty(frame)
    lines = [axes.lines[0].get_ydata().tolist() for axes in chart.axes]
    assert lines == [[0.9, 0.2, 0.8], [0.1, 2, 0.3], [0.8, 0.05, 0.7]]
    assert "1 with the second best closer than 10.0 %; least sure of a (20.0 %)" in chart.alt_text


def test_tokens_stand_below_a_short_answer_and_numbers_below_a_long_one():
    assert labels_of(charts.answer_certainty(answer(40)).axes[2].xaxis) == ["a"] * 40
    assert "a" not in labels_of(charts.answer_certainty(answer(41)).axes[2].xaxis)


def test_a_long_answer_is_folded_and_says_so():
    chart = charts.answer_certainty(answer(2000, probability=np.linspace(0.1, 0.9, 2000)))
    assert len(chart.axes[0].lines[0].get_xdata()) == 200
    assert "10 tokens folded into one" in chart.alt_text


def test_entropies_that_are_missing_are_no_obstacle():
    charts.answer_certainty(answer(3, entropy=np.nan, margin=np.nan)).png()


def candidates(before, after, chosen=0):
    count = len(before)
    frame = pd.DataFrame({"step": 4, "token_rank": range(count), "token_id": range(count)})
    frame = frame.assign(text=list("abcdefgh"[:count]), is_chosen=False)
    frame["raw_probability"], frame["probability"] = before, after
    frame.loc[chosen, "is_chosen"] = True
    rest = {"step": 4, "raw_probability": 1 - sum(before), "probability": 1 - sum(after)}
    return pd.concat([frame, pd.DataFrame([rest | {"is_chosen": False}])], ignore_index=True)


def test_each_candidate_has_a_bar_before_and_one_after():
    axes = charts.top_candidates(candidates([0.5, 0.2], [0.8, 0.2])).axes[0]
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == pytest.approx([0.5, 0.2, 0.3, 0.8, 0.2, 0.0])
    assert labels_of(axes.yaxis) == ["▶ a", "b", "all others"]
    assert texts_of(axes) == ["50.0 % → 80.0 %", "20.0 %", "30.0 % → 0.0 %"]


def test_the_finding_says_what_was_chosen_and_how_much_moved():
    finding = charts.top_candidates(candidates([0.5, 0.2], [0.8, 0.2], chosen=1)).alt_text
    assert "step 4 chose b (20.0 %), rank 1; the likeliest was a; " in finding
    assert finding.endswith("the processors moved 30.0 % of the probability.")


def test_a_choice_that_is_no_candidate_is_said():
    frame = candidates([0.5], [0.5]).assign(is_chosen=False)
    assert "the chosen token is none of these" in charts.top_candidates(frame).alt_text


def test_each_layer_is_a_stack_of_its_parts():
    above, below = charts.layer_times(pd.concat([layers(2), layers(2, phase="decode")])).axes
    for axes in (above, below):
        tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
        assert tops == [3 * MS] * 2 + [5 * MS] * 2 + [6 * MS] * 2
    assert (above.get_ylabel(), below.get_ylabel()) == ("prefill", "a decode step")


def test_an_encoder_stands_beside_the_decoder():
    axes = charts.layer_times(pd.concat([layers(2, "visual.blocks"), layers(3)])).axes[0]
    assert sorted({bar.get_x() + 0.4 for bar in axes.patches}) == [0, 1, 3, 4, 5]
    assert labels_of(axes.xaxis) == ["0", "1", "0", "1", "2"]
    assert texts_of(axes) == ["visual.blocks, 2 layers", "model.layers, 3 layers"]


def test_of_many_layers_neighbours_are_averaged():
    axes = charts.layer_times(layers(200)).axes[0]
    assert len(axes.patches) == 3 * 50
    assert labels_of(axes.xaxis)[1] == "16"


def test_the_finding_of_layers_names_the_slowest():
    frame = layers(3)
    frame.loc[2, "total_ns"] = 9 * MS
    assert "prefill 6.00 ms a layer" in charts.layer_times(frame).alt_text
    assert charts.layer_times(frame).alt_text.endswith("layer 2 slowest.")


def test_a_flame_has_a_box_a_module_below_its_caller():
    frame = flame([(0, "", "other", 0, 100), (1, "attn", "attention", 10, 40)])
    axes = charts.module_flame(frame).axes[0]
    boxes = [path.get_extents() for part in axes.collections for path in part.get_paths()]
    assert [(box.x0, box.x1, round(box.y0)) for box in boxes] == [(0, 100, 0), (10, 50, 1)]
    assert texts_of(axes) == [" Toy  100 ns", " attn  40 ns"]


def test_modules_too_narrow_to_be_seen_run_together():
    many = [(1, f"h.{number}", "attention", number, 1) for number in range(20_000)]
    axes = charts.module_flame(flame([(0, "", "other", 0, 20_000), *many])).axes[0]
    assert sum(len(part.get_paths()) for part in axes.collections) < 1000
    assert len(axes.texts) == 1


def test_a_deep_flame_ends_where_it_would_leave_the_page():
    frame = flame([(depth, "x", "other", 0, 100) for depth in range(40)])
    chart = charts.module_flame(frame)
    assert chart.get_figheight() < 5.5
    assert "40 modules" in chart.alt_text


def test_the_cache_is_a_field_a_layer_and_step():
    chart = charts.cache_by_layer(cells([[10, 20, 30], [10, 20, 20]]))
    field = chart.axes[0].images[0].get_array()
    assert field.tolist() == [[10, 20, 30], [10, 20, 20]]


def test_layers_that_stopped_growing_are_named_by_their_class():
    frame = cells([[10, 20, 30, 40], [10, 20, 20, 20]])
    frame.loc[frame["layer"] == 1, "class_name"] = "Sliding"
    finding = charts.cache_by_layer(frame).alt_text
    assert "60 B in 2 layers after step 3; 1 of them (Sliding) stopped growing" in finding


def test_cross_attention_stands_below_the_decoders_own():
    own = cells([[10, 20], [10, 20]])
    both = pd.concat([cells([[50, 50], [50, 50]], part="cross"), own])
    chart = charts.cache_by_layer(both)
    assert labels_of(chart.axes[0].yaxis) == ["self 0", "self 1", "cross 0", "cross 1"]
    assert "2 of them (cross) stopped growing" in chart.alt_text


def test_a_cache_that_grows_evenly_says_by_how_much():
    finding = charts.cache_by_layer(cells([[100, 110, 120]] * 3)).alt_text
    assert "360 B in 3 layers after step 2; all grow, by 30 B a step; 120 B each" in finding


def test_many_steps_share_a_field_and_keep_their_largest():
    sizes = np.arange(2000)
    chart = charts.cache_by_layer(cells([sizes]))
    field = chart.axes[0].images[0].get_array()
    assert field.shape == (1, 400)
    assert field[0, -1] == 1999
    assert "5 folded into one" in chart.axes[0].get_xlabel()


def conversation(count, name=None):
    turn = np.arange(1, count + 1)
    frame = pd.DataFrame({"turn": turn, "prompt_tokens": 100 * turn, "fed_tokens": 100 * turn})
    frame = frame.assign(first_token_ns=MS * (1 + turn**2), cache_bytes=1000 * turn)
    return frame if name is None else frame.assign(conversation=name)


def test_turns_are_marks_and_the_fit_is_a_curve_through_them():
    chart = charts.turn_comparison(conversation(6))
    marks, curve = chart.axes[0].lines
    assert marks.get_ydata().tolist() == [MS * (1 + turn**2) for turn in range(1, 7)]
    assert curve.get_ydata()[[0, -1]] == pytest.approx(marks.get_ydata()[[0, -1]])
    (label,) = [text.get_text() for text in chart.legends[0].get_texts()]
    assert label.endswith("100 ns n²  (R² 1.000)")


def test_a_fit_needs_four_lengths():
    chart = charts.turn_comparison(conversation(3))
    assert len(chart.axes[0].lines) == 1
    assert "no fit below 4" in chart.legends[0].get_texts()[0].get_text()


def test_conversations_are_told_apart_by_colour_mark_and_stroke():
    both = pd.concat([conversation(6, "history again"), conversation(6, "cache <b>$x$")])
    chart = charts.turn_comparison(both)
    first, second = chart.axes[1].lines
    assert first.get_color() != second.get_color()
    assert first.get_marker() != second.get_marker()
    assert first.get_linestyle() != second.get_linestyle()
    assert "history again: first token after 2.00 ms in turn 1, 37.0 ms in turn 6" in chart.alt_text
    chart.png()


def test_memory_and_tokens_fed_stand_beside_it():
    chart = charts.turn_comparison(conversation(4))
    assert chart.axes[1].lines[0].get_ydata().tolist() == [100, 200, 300, 400]
    assert chart.axes[2].lines[0].get_ydata().tolist() == [1000, 2000, 3000, 4000]


def test_turns_without_a_cache_have_no_memory_line(trace):
    frame = turns(trace).assign(cache_bytes=pd.array([None], dtype="Int64"))
    charts.turn_comparison(frame).png()


def test_numbers_of_turns_do_not_stand_on_each_other():
    frame = pd.concat([conversation(6, name) for name in ("history", "cache", "window", "summary")])
    chart = charts.turn_comparison(frame)
    chart.png()
    boxes = [text.get_window_extent() for text in chart.axes[0].texts if text.get_text()]
    assert len(boxes) >= 6
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])


def test_prefill_alone_has_no_steps_to_draw(trace):
    chart = charts.step_times(trace["steps"].query("kind == 'prefill'"))
    (axes,) = chart.axes
    assert axes.patches
    assert "and no decode step" in chart.alt_text
    assert "0 decode" not in chart.alt_text


def test_a_cache_of_one_step_says_that_there_are_no_more():
    chart = charts.cache_growth(cells([[100], [200]]))
    assert "300 B after prefill, and no step more." in chart.alt_text
