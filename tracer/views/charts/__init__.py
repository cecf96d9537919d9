"""Charts: a frame in, a figure out. Each answers one question and says its finding in words.

A chart reads no trace, saves no file and shows nothing; `views/figure.py` holds what they share. To
add one: take a frame of `analysis/`, return `empty_chart` where it has no rows, make a `Chart`,
draw, `tell` what is seen, and name the function here. Long inputs are folded or binned, and the
finding says so.
"""

from tracer.views.charts.cache import cache_by_layer
from tracer.views.charts.certainty import answer_certainty, top_candidates
from tracer.views.charts.generation import cache_growth, step_times, token_probabilities
from tracer.views.charts.latency import token_latency
from tracer.views.charts.loading import load_waterfall, stage_times
from tracer.views.charts.memory import memory_over_time
from tracer.views.charts.modules import layer_times, module_flame
from tracer.views.charts.picture import image_grid
from tracer.views.charts.placement import placement_by_device
from tracer.views.charts.positions import rope_positions
from tracer.views.charts.prompt import prompt_strip
from tracer.views.charts.shards import shard_map
from tracer.views.charts.turns import turn_comparison

__all__ = [
    "answer_certainty",
    "cache_by_layer",
    "cache_growth",
    "image_grid",
    "layer_times",
    "load_waterfall",
    "memory_over_time",
    "module_flame",
    "placement_by_device",
    "prompt_strip",
    "rope_positions",
    "shard_map",
    "stage_times",
    "step_times",
    "token_latency",
    "token_probabilities",
    "top_candidates",
    "turn_comparison",
]
