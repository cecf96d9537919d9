"""Charts of a load: short or very long, mapped or cast, on one device or many."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from synthetic import coherent_rows, make_trace

from tracer.analysis.load_files import shard_map
from tracer.analysis.loads import load_stages
from tracer.analysis.placement import placed_tensors
from tracer.views import charts

MANY = 20_000


def words(chart):
    chart.png()
    return [text.get_text() for text in chart.findobj(lambda part: hasattr(part, "get_text"))]


def dark_share(png):
    """How much of a picture is neither white nor light: a black bar has much."""
    image = Image.open(io.BytesIO(png)).convert("L")
    return float((np.asarray(image) < 60).mean())


def tensors(count, files=1, dtypes=("float32",)):
    number = np.arange(count)
    return pd.DataFrame(
        {
            "file": [f"model-{one % files:05}.safetensors" for one in number],
            "key": [f"layers.{one}.weight" for one in number],
            "dtype": [dtypes[one % len(dtypes)] for one in number],
            "offset_bytes": 400 + number // files * 1000,
            "size_bytes": 1000,
            "read_at_ns": pd.array(number * 10_000, "Int64"),
        }
    )


def samples(count):
    return pd.DataFrame(
        {
            "name": "between reads",
            "start_ns": np.arange(count) * 20_000_000,
            "anonymous_bytes": pd.array(np.arange(count) * 1_000_000, "Int64"),
            "file_bytes": pd.array([5_000_000] * count, "Int64"),
            "device_allocated_bytes": pd.array([None] * count, "Int64"),
        }
    )


def placed(*places, size=1000):
    names = [f"model.layers.{number}.mlp.weight" for number in range(len(places))]
    columns = {"param": names, "kind": "parameter", "place": places, "size_bytes": size}
    return pd.DataFrame(columns)


STAGES = pd.DataFrame(
    {
        "stage": ["meta_init", "tensor_load", "tensor_load", "红色<b>$x$"],
        "start_ns": [0, 40_000_000, 60_000_000, 90_000_000],
        "duration_ns": [30_000_000, 20_000_000, 30_000_000, 10_000_000],
    }
)


def test_stages_are_a_lane_over_the_workers():
    trace = make_trace(coherent_rows())
    chart = charts.load_waterfall(trace["tensor_loads"], load_stages(trace))
    assert {"stages", "loader_0", "meta_init", "since the load began"} <= set(words(chart))
    assert chart.axes[0].get_ylim() == (1.5, -1.5)


def test_tensors_that_came_whole_are_drawn_by_their_casts():
    rows = coherent_rows()
    for load in rows["tensor_loads"]:
        load["read_ns"] = None
    chart = charts.load_waterfall(make_trace(rows)["tensor_loads"])
    assert "6 tensors" in chart.alt_text
    chart.png()


def test_what_takes_longer_is_drawn_on_top():
    """Bars have a least width, so thousands of short casts would cover the reads between them."""
    loads = pd.DataFrame({"key": "a", "worker": "w", "size_bytes": 1, "start_ns": [0, 10**6]})
    for read, cast, last in [(5_000, 20, "#005a9c"), (20, 5_000, "#d55e00")]:
        chart = charts.load_waterfall(loads.assign(read_ns=read, cast_ns=cast))
        *_, top = chart.axes[0].collections
        assert tuple(top.get_facecolor()[0][:3]) == pytest.approx(
            tuple(int(last[at : at + 2], 16) / 255 for at in (1, 3, 5))
        )


def test_a_shard_map_has_a_lane_a_file_and_names_the_largest():
    chart = charts.shard_map(shard_map(make_trace(coherent_rows())))
    assert {"model.safetensors", "embed.weight", "float32"} <= {
        text.replace("F32", "float32") for text in words(chart)
    }
    assert "6 tensors, 480 B in 1 file; all F32; largest embed.weight, 160 B" in chart.alt_text


def test_each_dot_of_a_lane_shows_the_tensor_that_lies_there():
    chart = charts.shard_map(tensors(2, dtypes=("float32", "int8")))
    picture = chart.axes[0].images[0].get_array()[0]
    header, first, second = picture[100], picture[500], picture[1000]
    assert header[3] == 0
    assert tuple(first[:3]) != tuple(second[:3])
    assert {"float32", "int8"} <= set(words(chart))


def test_more_dtypes_than_colours_share_the_last():
    chart = charts.shard_map(tensors(6, dtypes=("f8", "f16", "f32", "i8", "i16", "bool")))
    assert "others" in words(chart)


def test_a_tensor_that_was_never_read_is_white_and_told():
    frame = tensors(3)
    frame.loc[1, "read_at_ns"] = pd.NA
    chart = charts.shard_map(frame, by="time")
    colours = chart.axes[0].images[0].get_array()[0]
    middle = int(1900 / 3400 * len(colours))
    assert colours[middle].tolist() == [1, 1, 1, 1]
    assert "1 tensor never read" in chart.alt_text


def test_reads_in_the_order_of_the_file_are_told_as_such():
    assert "100.0 % of reads went forward" in charts.shard_map(tensors(50), by="time").alt_text
    back = tensors(50).assign(read_at_ns=np.arange(50)[::-1] * 10)
    assert "0.0 % of reads went forward" in charts.shard_map(back, by="time").alt_text


def test_no_read_at_all_is_no_obstacle():
    frame = tensors(3).assign(read_at_ns=pd.array([None] * 3, "Int64"))
    assert "3 tensors never read" in charts.shard_map(frame, by="time").alt_text
    charts.shard_map(frame, by="time").png()


def test_another_colouring_is_refused():
    with pytest.raises(ValueError, match=r"by='size'.*'dtype' or by 'time'"):
        charts.shard_map(tensors(3), by="size")


@pytest.mark.parametrize("by", ["dtype", "time"])
def test_very_many_tensors_and_files_stay_readable(by):
    chart = charts.shard_map(tensors(MANY, files=40), by=by)
    assert len(chart.axes[0].get_yticks()) == 12
    assert "in 40 files, the 12 largest drawn" in chart.alt_text
    png = chart.png()
    assert dark_share(png) < 0.2
    assert len(png) < 200_000


def test_memory_has_a_line_a_kind_that_is_known():
    chart = charts.memory_over_time(samples(10), STAGES)
    shown = set(words(chart))
    assert {"anonymous", "file-backed", "meta_init", "tensor_load", "红色<b>$x$"} <= shown
    assert "device" not in shown
    assert "anonymous 9.00 MB (+9.00 MB), file-backed 5.00 MB (+0 B); 10 samples" in chart.alt_text


def test_equal_stages_side_by_side_are_one_band():
    assert words(charts.memory_over_time(samples(10), STAGES)).count("tensor_load") == 1


def test_the_first_forward_is_a_band_too():
    frame = samples(10)
    frame.loc[3, "name"], frame.loc[8, "name"] = (
        "before the first forward",
        "after the first forward",
    )
    assert "first forward" in words(charts.memory_over_time(frame))


def test_memory_of_very_many_samples_keeps_its_peak():
    frame = samples(MANY)
    frame.loc[7777, "anonymous_bytes"] = 10**12
    chart = charts.memory_over_time(frame)
    line = chart.axes[0].lines[0]
    assert len(line.get_xdata()) <= 600
    assert max(line.get_ydata()) == 10**12


def test_a_system_that_tells_nothing_leaves_an_empty_chart():
    frame = samples(3)
    for name in ("anonymous_bytes", "file_bytes"):
        frame[name] = pd.array([None] * 3, "Int64")
    assert "nothing was recorded" in charts.memory_over_time(frame, STAGES).alt_text


def test_placement_has_a_lane_a_place_and_tells_its_sum():
    chart = charts.placement_by_device(placed("cuda:0", "cuda:0", "cpu", "disk, offloaded"))
    assert {"cuda:0", "cpu", "disk, offloaded", "2.00 kB, 2 tensors"} <= set(words(chart))
    assert "4.00 kB on 3 places: cuda:0 2.00 kB (50.0 %)" in chart.alt_text


def test_blocks_lie_where_the_model_has_them():
    chart = charts.placement_by_device(placed("cpu", "cuda:0", "cpu"))
    first, second = chart.axes[0].collections
    assert [path.get_extents().x0 for path in first.get_paths()] == [0, 2000]
    assert [path.get_extents().x0 for path in second.get_paths()] == [1000]


def test_offloaded_blocks_are_hatched():
    hatches = [
        part.get_hatch()
        for part in charts.placement_by_device(placed("cpu", "disk, offloaded")).axes[0].collections
    ]
    assert [bool(hatch) for hatch in hatches] == [False, True]


def test_a_scattered_model_of_very_many_tensors_stays_readable():
    places = [f"cuda:{number % 30}" for number in range(MANY)]
    chart = charts.placement_by_device(placed(*places))
    assert len(chart.axes[0].get_yticks()) == 12
    assert sum(len(part.get_paths()) for part in chart.axes[0].collections) <= 12 * 1200
    assert "on 30 places" in chart.alt_text


def test_the_synthetic_model_lies_on_one_device():
    chart = charts.placement_by_device(placed_tensors(make_trace(coherent_rows())))
    assert chart.alt_text.endswith("488 B on 1 place: cpu 488 B (100.0 %).")


def test_sizes_that_are_not_known_count_as_nothing():
    frame = placed("cpu", "cpu").assign(size_bytes=pd.array([None, 10], "Int64"))
    assert "10 B on 1 place" in charts.placement_by_device(frame).alt_text


@pytest.mark.parametrize("kept", [1.0, 0.05])
def test_names_of_stages_stand_above_every_line_and_inside_the_time(kept):
    spans = pd.DataFrame(
        {
            "stage": ["import", "tensor_load", "verify"],
            "start_ns": [0, 400_000_000, 800_000_000],
            "duration_ns": 390_000_000,
        }
    )
    late = samples(30).assign(start_ns=lambda frame: 350_000_000 + frame["start_ns"])
    late["anonymous_bytes"] = (late["anonymous_bytes"] * kept + 500_000_000).astype("Int64")
    chart = charts.memory_over_time(late, spans)
    chart.png()
    (axes,) = chart.axes
    highest = max(line.get_window_extent().y1 for line in axes.lines)
    named = [text for text in axes.texts if text.get_text()]
    assert [text.get_text() for text in named] == ["import", "tensor_load", "verify"]
    for text in named:
        box = text.get_window_extent()
        assert box.y0 > highest
        assert axes.bbox.x0 <= box.x0
