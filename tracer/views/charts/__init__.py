"""Charts: a frame in, a figure out. Each answers one question and says its finding in words.

A chart reads no trace, saves no file and shows nothing; `views/figure.py` holds what they share. To
add one: take a frame of `analysis/`, return `empty_chart` where it has no rows, make a `Chart`,
draw, `tell` what is seen, and name the function here. Long inputs are folded or binned, and the
finding says so.
"""

from tracer.views.charts.generation import cache_growth, step_times, token_probabilities
from tracer.views.charts.loading import load_waterfall, stage_times
from tracer.views.charts.memory import memory_over_time
from tracer.views.charts.placement import placement_by_device
from tracer.views.charts.shards import shard_map

__all__ = [
    "cache_growth",
    "load_waterfall",
    "memory_over_time",
    "placement_by_device",
    "shard_map",
    "stage_times",
    "step_times",
    "token_probabilities",
]
