"""What charts of the way in draw: artists against the frame, not pixels."""

import numpy as np
import pandas as pd
import pytest
from synthetic import coherent_rows, make_trace

from tracer.analysis.inputs import call_images, sequence_tokens
from tracer.views import charts

HOSTILE = ["红色", "\n", "$x_1$", "<b>", "", None, "\x00", "\U0001f9e9", "w" * 90, "שלום"]


@pytest.fixture(scope="module")
def trace():
    return make_trace(coherent_rows())


def tokens(texts, **columns):
    count = len(texts)
    frame = pd.DataFrame(
        {"row": 0, "index": range(count), "position": range(count), "token_id": range(count)}
        | {"text": pd.Series(texts, dtype=object), "kind": "text", "origin": "user"}
        | {"image": pd.array([None] * count, dtype="Int64"), "attended": True}
    )
    return frame.assign(**columns)


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def pieces(axes):
    """First and last place of each piece of the bars, by row."""
    boxes = [path.get_extents() for part in axes.collections for path in part.get_paths()]
    return sorted((round(box.y0 + 0.4), box.x0, box.x1) for box in boxes)


def test_every_token_has_its_place_in_the_bar(trace):
    chart = charts.prompt_strip(sequence_tokens(trace))
    assert pieces(chart.axes[0]) == [(0, 0, 2), (0, 2, 6), (0, 6, 8), (0, 8, 12)]


def test_placeholders_are_one_box_and_words_are_their_own(trace):
    chart = charts.prompt_strip(sequence_tokens(trace))
    assert texts_of(chart.axes[1]) == [
        "␣word1", "␣word2", "␣word9  × 4", "␣word3", "␣word4", *[f"␣word{n}" for n in (5, 6, 7, 8)],
    ]  # fmt: skip


def test_the_finding_counts_what_the_prompt_is_made_of(trace):
    finding = charts.prompt_strip(sequence_tokens(trace)).alt_text
    assert finding.endswith("8 prompt tokens: 4 user, 4 image (50.0 % user); 4 generated.")


def test_two_images_side_by_side_are_two_boxes():
    frame = tokens(["<img>"] * 6, kind="image", image=[0, 0, 0, 1, 1, 1])
    assert texts_of(charts.prompt_strip(frame).axes[1]) == ["<img>  × 3", "<img>  × 3"]


def test_rows_of_a_batch_stand_below_each_other_and_show_their_padding():
    short = tokens(["<pad>", "<pad>", "a"], kind=["pad", "pad", "text"])
    frame = pd.concat([short, tokens(["a", "b", "c"]).assign(row=1)])
    chart = charts.prompt_strip(frame)
    assert pieces(chart.axes[0]) == [(0, 0, 2), (0, 2, 3), (1, 0, 3)]
    assert "row 0 of 2: 3 prompt tokens: 2 padding, 1 user" in chart.alt_text
    assert texts_of(charts.prompt_strip(frame, row=1).axes[1]) == ["a", "b", "c"]


def test_what_attention_does_not_see_is_grey():
    frame = tokens(["a", "b"], attended=[True, False])
    seen, unseen = charts.prompt_strip(frame).axes[1].texts
    assert seen.get_color() != unseen.get_color()


def test_a_special_token_has_a_frame():
    frame = tokens(["a", "<end>"], kind=["text", "special"])
    boxes = charts.prompt_strip(frame).axes[1].patches[::2]
    assert [box.get_linewidth() > 0 for box in boxes] == [False, True]


def test_tokens_that_were_cut_away_are_shown_and_not_counted():
    frame = tokens(["a", "b", "c"], kind=["text", "text", "cut"])
    assert "2 prompt tokens: 2 user; 1 cut away" in charts.prompt_strip(frame).alt_text


def test_hostile_tokens_become_boxes_with_visible_text():
    shown = texts_of(charts.prompt_strip(tokens(HOSTILE)).axes[1])
    assert {"\\n", "$x_1$", "<b>", "#4", "#5", "\\u0000"} <= set(shown)
    assert max(map(len, shown)) <= 40


def test_a_prompt_without_a_tokenizer_shows_ids():
    shown = texts_of(charts.prompt_strip(tokens([None, None])).axes[1])
    assert shown == ["#0", "#1"]


def test_the_middle_of_a_long_prompt_is_left_out_and_counted():
    chart = charts.prompt_strip(tokens(["word"] * 2000))
    shown = texts_of(chart.axes[1])
    hidden = next(text for text in shown if "more" in text)
    assert f"… {2000 - len(shown) + 1:,} more …" == hidden
    assert chart.get_figheight() < 6
    assert pieces(chart.axes[0]) == [(0, 0, 2000)]


def test_boxes_stay_inside_the_line():
    axes = charts.prompt_strip(tokens(["word", "红色的", "w" * 90] * 40)).axes[1]
    right = [box.get_x() + box.get_width() for box in axes.patches]
    assert max(right) <= axes.get_xlim()[1]


def test_an_unknown_origin_is_drawn_as_unknown():
    chart = charts.prompt_strip(tokens(["a"], origin="dreamt"))
    assert "1 text, writer unknown" in chart.alt_text


def test_cells_are_numbered_and_the_span_has_their_place(trace):
    chart = charts.image_grid(call_images(trace), total=12)
    cells, span, _ = chart.axes
    assert texts_of(cells) == ["0", "1", "2", "3"]
    assert span.images[0].get_extent()[2:] == [6, 2]
    assert span.get_ylim() == (12, 0)
    assert "60 × 60 → 56 × 56 pixels are 4 × 4 patches, 2 × 2 of them one token: 2 × 2 = 4" in (
        chart.alt_text
    )


def test_lines_lie_round_patches_and_cells(trace):
    patches, cells = charts.image_grid(call_images(trace)).axes[0].collections
    assert len(patches.get_segments()) == 2 * 5
    assert len(cells.get_segments()) == 2 * 3


def test_the_picture_itself_is_drawn_where_it_is_given(trace):
    picture = np.full((28, 28, 3), 200, dtype=np.uint8)
    cells = charts.image_grid(call_images(trace), picture=picture).axes[0]
    assert (cells.images[0].get_array() == picture).all()


def test_a_large_grid_draws_cells_without_numbers(trace):
    images = call_images(trace).assign(grid_h=98, grid_w=146, expected_tokens=3577)
    cells = charts.image_grid(images).axes[0]
    assert texts_of(cells) == []
    assert len(cells.collections) == 1
    assert "73 × 49 = 3,577 tokens" in charts.image_grid(images).alt_text


def test_a_video_has_the_grid_once_and_the_span_for_all_frames(trace):
    images = call_images(trace).assign(grid_t=3, expected_tokens=12, kind="video")
    span = charts.image_grid(images).axes[1]
    assert span.images[0].get_extent()[2:] == [14, 2]


def test_placeholders_that_are_lacking_are_named(trace):
    span = charts.image_grid(call_images(trace).assign(found_tokens=3)).axes[1]
    assert span.get_xlabel() == "4 placeholders,\nfound 3"


@pytest.mark.parametrize("index", [0, 5])
def test_an_image_without_a_grid_or_none_at_all_gives_one_sentence(trace, index):
    images = call_images(trace).assign(grid_h=pd.NA)
    assert "nothing was recorded; this needs" in charts.image_grid(images, index).alt_text


def test_positions_are_drawn_on_three_axes(trace):
    panels = charts.rope_positions(sequence_tokens(trace)).axes
    lines = [axes.lines[1].get_ydata().tolist() for axes in panels]
    assert lines == [[0, 1, 2, 2, 2, 2, 4, 5, 6, 7, 8, 9], [0, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9],
                     [0, 1, 2, 3, 2, 3, 4, 5, 6, 7, 8, 9]]  # fmt: skip


def test_the_finding_says_how_far_positions_fall_behind(trace):
    assert charts.rope_positions(sequence_tokens(trace)).alt_text.endswith(
        "4 image tokens take up 2 positions; the last prompt token stands at 9, 2 behind its index."
    )


def test_images_are_shaded_from_first_to_last_placeholder(trace):
    axes = charts.rope_positions(sequence_tokens(trace)).axes[0]
    (span,) = axes.patches
    assert (span.get_x(), span.get_x() + span.get_width()) == (1.5, 5.5)


def test_many_positions_are_folded_into_a_band():
    count = 4000
    place = np.arange(count)
    frame = tokens(["a"] * count, position_t=place, position_h=place, position_w=place % 70)
    axes = charts.rope_positions(frame).axes[2]
    assert len(axes.lines[1].get_xdata()) <= 400
    assert len(axes.collections) == 1


def test_a_model_with_one_axis_has_no_such_chart():
    nothing = pd.array([None, None], dtype="Int64")
    frame = tokens(["a", "b"], position_t=nothing, position_h=nothing, position_w=nothing)
    assert "this needs a model that is given positions on three axes" in (
        charts.rope_positions(frame).alt_text
    )
