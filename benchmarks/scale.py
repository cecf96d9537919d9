"""A trace with the shape of a 70B model's: 80 layers, thousands of tokens, ten million rows.

    python -m benchmarks scale [--quick]

Made of the numbers that a recording of such a run would hold, written through a real journal. Every
analysis of the package is asked of it, every chart drawn from what it says; none may take more
than five seconds.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tracer.analysis
from benchmarks.figures import Figure, figure
from benchmarks.pairs import timed
from tracer.analysis import (
    answer,
    candidates,
    inputs,
    latency,
    load_files,
    loads,
    modules,
    placement,
    turns,
)
from tracer.journal import Journal
from tracer.storage import arrow_schema
from tracer.summary import stage_totals
from tracer.trace import Trace, open_trace
from tracer.views import charts

MOST_SECONDS = 5.0
MODEL, CACHE, MAIN = "model-1", "cache-1", "MainThread"
VOCABULARY = 128_256
TOP_K = 10
LOAD, GENERATE = 1, 2  # seqs of the two calls
EVENT_A_STEP = 1_000_000  # seqs that a step may use
MS = 1_000_000
# Modules of a layer, with the place of their parent in this list.
LAYER = {
    "": ("DecoderLayer", -1),
    ".input_layernorm": ("RMSNorm", 0),
    ".self_attn": ("Attention", 0),
    ".self_attn.q_proj": ("Linear", 2),
    ".self_attn.k_proj": ("Linear", 2),
    ".self_attn.v_proj": ("Linear", 2),
    ".self_attn.o_proj": ("Linear", 2),
    ".post_attention_layernorm": ("RMSNorm", 0),
    ".mlp": ("MLP", 0),
    ".mlp.gate_proj": ("Linear", 8),
    ".mlp.up_proj": ("Linear", 8),
    ".mlp.act_fn": ("SiLU", 8),
    ".mlp.down_proj": ("Linear", 8),
}
PROCESSORS = ("RepetitionPenalty", "Temperature", "TopK", "TopP")
PARAMETERS = ({"penalty": 1.05}, {"temperature": 0.7}, {"top_k": 20}, {"top_p": 0.8})
CLASSES = [
    f"{name}Logits{'Processor' if n == 0 else 'Warper'}" for n, name in enumerate(PROCESSORS)
]


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How large a trace is to be."""

    layers: int = 80
    steps: int = 9_600
    prompt: int = 4_000

    @property
    def modules(self) -> int:
        """Module calls of a forward: the model, embedding, norm and head, and the layers'."""
        return 5 + self.layers * len(LAYER)


SMALL = Shape(layers=4, steps=12, prompt=40)
MILLION = Shape(steps=960, prompt=400)


def write_trace(folder: Path, shape: Shape) -> Trace:
    """Write the trace of a load and a generate call and open it."""
    journal = Journal(folder)
    for table, batch in _batches(shape):
        journal.append(table, batch)
    journal.close({"state": "complete", "ended": "completed", "models": [MODEL]})
    return open_trace(folder)


def _batches(shape: Shape) -> Iterator[tuple[str, pa.RecordBatch]]:
    yield from _load(shape)
    yield from _call(shape)
    some = max(1, 100_000 // shape.modules)
    for first in range(0, shape.steps, some):
        steps = np.arange(first, min(first + some, shape.steps))
        yield "modules", _modules(shape, steps)
        yield from _answers(shape, steps)


def _rows(table: str, count: int, **columns: Any) -> pa.RecordBatch:
    """A batch in the table's schema: arrays are cells, anything else all rows' cell."""
    arrays = []
    for field in arrow_schema(table):
        value = columns.pop(field.name, None)
        if isinstance(value, np.ndarray | list):
            arrays.append(pa.array(value, field.type))
        elif isinstance(value, pa.Array):
            arrays.append(value.cast(field.type))
        elif value is None:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), count))
    if columns:
        raise ValueError(f"{table} has no column {', '.join(columns)}")
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(table))


def _event(count: int, call: int, **columns: Any) -> dict[str, Any]:
    return {"call": call, "thread": MAIN, "rank": 0, "status": "ok"} | columns


def _facts(call: int, **columns: Any) -> dict[str, Any]:
    return {"event": call, "call": call, "rank": 0} | columns


def _names(values: list[str], places: Any) -> pa.Array:
    """Texts by their place in a list of few."""
    return pa.array(values).take(pa.array(places))


# The load


def _load(shape: Shape) -> Iterator[tuple[str, pa.RecordBatch]]:
    keys = [f"model.layers.{n}{part}.weight" for n in range(shape.layers) for part in LAYER if part]
    count, files = len(keys), max(1, shape.layers // 3)
    place = np.arange(count)
    size = 2 * 8192 * 8192
    file = [f"model-{n // (count // files + 1):05}.safetensors" for n in range(count)]
    whole = {"model": MODEL, "shape": "[8192, 8192]"}
    yield "calls", _rows(
        "calls", 1, **_event(1, LOAD), seq=LOAD, parent=-1, stage="resolve",
        name="from_pretrained", kind="from_pretrained", model=MODEL, start_ns=0,
        duration_ns=count * 12 * MS, recorder_ns=count * 20_000,
    )  # fmt: skip
    yield "spans", _rows(
        "spans", 2, **_event(2, LOAD), seq=[10, 11], parent=LOAD, stage=["meta_init", "place"],
        name=["meta_init", "place"], start_ns=[0, 5 * MS], duration_ns=[4 * MS, count * 11 * MS],
    )  # fmt: skip
    yield "tensor_loads", _rows(
        "tensor_loads", count,
        **_event(count, LOAD) | {"thread": [f"loader_{n % 4}" for n in place]}, **whole,
        seq=place + 100, parent=11, stage="tensor_load", name=keys,
        start_ns=place * 10 * MS + 6 * MS, duration_ns=9 * MS, key=keys, param=keys, file=file,
        stored_dtype="BF16", loaded_dtype="bfloat16", size_bytes=size, queue_ns=MS,
        read_ns=8 * MS, cast_ns=MS,
        mapped=False, discarded=False, device="cuda:0", worker=[f"loader_{n % 4}" for n in place],
    )  # fmt: skip
    yield "checkpoint_tensors", _rows(
        "checkpoint_tensors", count, **_facts(LOAD), **whole, file=file, key=keys, dtype="BF16",
        offset_bytes=place * size, size_bytes=size, in_index=True, fate="loaded",
    )  # fmt: skip
    yield "meta_params", _rows(
        "meta_params", count, **_facts(LOAD), **whole, param=keys, kind="parameter",
        persistent=True, module_class="Linear", dtype="bfloat16", device="meta", size_bytes=size,
        planned_device="cuda:0",
    )  # fmt: skip
    yield "placements", _rows(
        "placements", count, **_facts(LOAD), **whole, param=keys, kind="parameter",
        origin="checkpoint", because="set during the load", expected_shape="[8192, 8192]",
        sources=[json.dumps([key]) for key in keys], operations="[]", matches=True,
        stored_dtype="BF16", dtype="bfloat16", device=[f"cuda:{n % 8}" for n in place],
        residence="resident", wait_ns=MS, convert_ns=MS, place_ns=MS,
    )  # fmt: skip
    names = sorted(set(file))
    yield "files", _rows(
        "files", len(names), **_facts(LOAD), model=MODEL, path=names, kind="weights",
        format="safetensors", size_bytes=size * count // len(names), header_bytes=4_000,
        tensors=count // len(names), metadata='{"format": "pt"}', read=True, filesystem="ext4",
        access="mmap",
    )  # fmt: skip
    yield "models", _rows(
        "models", 1, **_facts(LOAD), model=MODEL, class_name="LlamaForCausalLM",
        dtype="bfloat16", attention="sdpa", tied="{}", parameters=70_000_000_000,
        size_bytes=140_000_000_000, training=False,
    )  # fmt: skip
    yield "memory", _memory(count)


def _memory(tensors: int) -> pa.RecordBatch:
    """A sample every 20 ms of a load, so as many as a slow disk gives."""
    count = max(2, tensors // 2)
    place = np.arange(count)
    return _rows(
        "memory", count, **_event(count, LOAD), seq=place + 10_000, parent=LOAD, stage="place",
        name="sample", start_ns=place * 20 * MS, duration_ns=0, rss_bytes=place * 10**6,
        anonymous_bytes=place * 10**5, file_bytes=place * 9 * 10**5, disk_bytes=place * 10**6,
        minor_faults=place, major_faults=place // 10,
    )  # fmt: skip


# The call of generate()


def _start(steps: Any) -> Any:
    return 10**12 + steps * 30 * MS


def _call(shape: Shape) -> Iterator[tuple[str, pa.RecordBatch]]:
    prompt, total = shape.prompt, shape.prompt + shape.steps
    yield "calls", _rows(
        "calls", 1, **_event(1, GENERATE), seq=GENERATE, parent=-1, stage="setup",
        name="generate", kind="generate", model=MODEL, mode="sample", rows=1, beams=1,
        return_sequences=1, cache=CACHE, cache_class="DynamicCache", start_ns=10**12 - 9 * MS,
        duration_ns=shape.steps * 30 * MS + 10 * MS, recorder_ns=shape.steps * 300_000,
        finish='["length"]',
    )  # fmt: skip
    yield "chain", _rows(
        "chain", 4, **_facts(GENERATE), model=MODEL, kind="processor", index=[0, 1, 2, 3],
        class_name=CLASSES, parameters=[json.dumps(one) for one in PARAMETERS],
        defined_in="transformers.generation.logits_process",
    )  # fmt: skip
    yield "settings", _rows(
        "settings", 4, **_facts(GENERATE), model=MODEL, scope="generate",
        setting=["repetition_penalty", "temperature", "top_k", "top_p"],
        asked=["1.05", "0.7", "20", "0.8"], effective=["1.05", "0.7", "20", "0.8"],
        origin="call", used=True,
    )  # fmt: skip
    place = np.arange(total)
    ids = _chosen(place - prompt)
    yield "tokens", _rows(
        "tokens", total, **_facts(GENERATE), row=0, index=place, position=place, token_id=ids,
        vocab=[f"w{one}" for one in ids], bytes_hex="20", text=[f" w{one}" for one in ids],
        kind="text", origin=np.where(place < prompt, "user", "generated").tolist(),
        attended=True,
    )  # fmt: skip


def _chosen(steps: Any) -> Any:
    """The id chosen at a step; below 0 the prompt's."""
    return (steps * 7_919) % (VOCABULARY - TOP_K)


def _step_seq(steps: Any) -> Any:
    return (steps + 1) * EVENT_A_STEP


def _modules(shape: Shape, steps: Any) -> pa.RecordBatch:
    """Module calls of some steps, as hooks record them: each after those inside it began."""
    paths, classes, parents = _forward(shape.layers)
    count = len(paths)
    noise = np.random.default_rng(int(steps[0]))
    seq = (_step_seq(steps)[:, None] + 1 + np.arange(count)).ravel()
    above = np.where(parents < 0, 0, parents + 1)
    parent = (_step_seq(steps)[:, None] + above).ravel()
    which = np.tile(np.arange(count), len(steps))
    first = (steps == 0).repeat(count)
    shapes = np.where(first, 0, 1)
    told = [f"[1, {shape.prompt}, 8192]", "[1, 1, 8192]"]
    return _rows(
        "modules", len(seq), **_event(len(seq), GENERATE), seq=seq, parent=parent,
        stage=_names(["prefill", "decode"], shapes), name=_names(paths, which),
        start_ns=(_start(steps)[:, None] + np.arange(count) * 20_000).ravel(),
        duration_ns=noise.integers(5_000, 200_000, len(seq)), model=MODEL,
        path=_names(paths, which), class_name=_names(classes, which), step=steps.repeat(count),
        input_shape=_names(told, shapes), output_shape=_names(told, shapes), dtype="bfloat16",
        device="cuda:0", source=_names([f"transformers/llama.py:{n}" for n in range(9)], which % 9),
        stack=_names([f"k{n}" for n in range(13)], which % 13),
    )  # fmt: skip


def _forward(layers: int) -> tuple[list[str], list[str], Any]:
    """Paths, classes and the place of the parent of the modules of a forward, in order."""
    paths = ["", "model", "model.embed_tokens", "model.norm", "lm_head"]
    classes = ["LlamaForCausalLM", "LlamaModel", "Embedding", "RMSNorm", "Linear"]
    parents = [-1, 0, 1, 1, 0]
    for layer in range(layers):
        first = len(paths)
        for part, (kind, above) in LAYER.items():
            paths.append(f"model.layers.{layer}{part}")
            classes.append(kind)
            parents.append(1 if above < 0 else first + above)
    return paths, classes, np.array(parents)


def _answers(shape: Shape, steps: Any) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Steps, choices, candidates, effects, stops and caches of some steps."""
    count, seq = len(steps), _step_seq(steps)
    cached = shape.prompt + steps
    is_first = steps == 0
    place = _facts(GENERATE) | {"row": 0, "offset": 0}
    noise = np.random.default_rng(int(steps[0]))
    yield "steps", _rows(
        "steps", count, **_event(count, GENERATE), seq=seq, parent=GENERATE,
        stage=np.where(is_first, "prefill", "decode").tolist(), name=[f"step {n}" for n in steps],
        start_ns=_start(steps), duration_ns=np.full(count, 29 * MS), model=MODEL, step=steps,
        kind=np.where(is_first, "prefill", "decode").tolist(),
        input_tokens=np.where(is_first, shape.prompt, 1),
        first_position=np.where(is_first, 0, cached), last_position=cached, position_offset=0,
        cache=CACHE, cache_tokens_before=np.where(is_first, 0, cached - 1),
        cache_tokens_after=cached, cache_bytes=cached * shape.layers * 4096, prepare_ns=MS,
        forward_ns=20 * MS, processors_ns=2 * MS, select_ns=3 * MS, stop_ns=MS,
        recorder_ns=MS // 4, undone=False,
    )  # fmt: skip
    sure = noise.random(count)
    ids = _chosen(steps)
    text = [f" w{one}" for one in ids]
    yield "choices", _rows(
        "choices", count, **place | {"event": seq}, step=steps, token_id=ids, text=text,
        raw_logprob=np.log(sure), raw_rank=0, raw_entropy=1 - sure, logprob=np.log(sure),
        probability=sure, entropy=1 - sure, margin=sure / 2, score=sure, parent_row=0, sequence=0,
        accepted=True,
    )  # fmt: skip
    rank = np.tile(np.arange(TOP_K), count)
    among = ids.repeat(TOP_K) + rank
    share = sure.repeat(TOP_K) / 2 ** (rank + 1)
    yield "candidates", _rows(
        "candidates", count * TOP_K, **place | {"event": seq.repeat(TOP_K)},
        step=steps.repeat(TOP_K), token_rank=rank, token_id=among, text=[f" w{n}" for n in among],
        raw_logit=10.0 - rank, raw_probability=share, score=10.0 - rank, probability=share,
    )  # fmt: skip
    index = np.tile(np.arange(4), count)
    yield "effects", _rows(
        "effects", count * 4, **place | {"event": seq.repeat(4)}, step=steps.repeat(4),
        index=index, class_name=_names(CLASSES, index), removed_tokens=index, chosen_delta=0.1,
        entropy_before=1.0, entropy_after=0.9,
    )  # fmt: skip
    yield "stops", _rows(
        "stops", count, **place | {"event": seq}, step=steps, token_id=2, token_rank=9_000,
        probability=1e-6,
    )  # fmt: skip
    layers = shape.layers
    tokens = cached.repeat(layers)
    yield "cache_layers", _rows(
        "cache_layers", count * layers, **_facts(GENERATE) | {"event": seq.repeat(layers)},
        step=steps.repeat(layers), cache=CACHE, layer=np.tile(np.arange(layers), count),
        part="self", class_name="DynamicLayer", dtype="bfloat16", tokens_seen=tokens,
        tensor_tokens=tokens, size_bytes=tokens * 4096, device="cuda:0",
    )  # fmt: skip


# What is asked of it

ARGUMENTS: dict[str, Any] = {"step": 1, "call": GENERATE, "also": []}


def questions() -> dict[str, Callable[[Trace], Any]]:
    """Every public function of `tracer.analysis` whose first argument is a trace, by its name."""
    found: dict[str, Callable[[Trace], Any]] = {}
    for module in pkgutil.iter_modules(tracer.analysis.__path__, "tracer.analysis."):
        room = importlib.import_module(module.name)
        for name, function in vars(room).items():
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            if function.__module__ != room.__name__:
                continue
            asked = _asked(function)
            if asked is not None:
                found[f"{module.name.rpartition('.')[2]}.{name}"] = asked
    return found


def _asked(function: Callable[..., Any]) -> Callable[[Trace], Any] | None:
    first, *others = inspect.signature(function).parameters.values()
    if first.name != "trace":
        return None
    needed = [one.name for one in others if one.default is inspect.Parameter.empty]
    if "load" in needed:  # asked by others with the load that they found
        return lambda trace: function(trace, loads.find_load(trace))
    given = {name: ARGUMENTS[name] for name in needed}
    return lambda trace: function(trace, **given)


def drawings() -> dict[str, Callable[[Trace], Any]]:
    """Every chart that a trace of this kind can be drawn as, from trace to figure."""
    return {
        "answer_certainty": lambda trace: charts.answer_certainty(answer.answer_tokens(trace)),
        "cache_by_layer": lambda trace: charts.cache_by_layer(trace["cache_layers"]),
        "cache_growth": lambda trace: charts.cache_growth(trace["cache_layers"]),
        "layer_times": lambda trace: charts.layer_times(modules.layer_times(trace)),
        "load_waterfall": lambda trace: charts.load_waterfall(
            trace["tensor_loads"], loads.load_stages(trace)
        ),
        "memory_over_time": lambda trace: charts.memory_over_time(trace["memory"]),
        "module_flame": lambda trace: charts.module_flame(modules.module_calls(trace)),
        "placement_by_device": lambda trace: charts.placement_by_device(
            placement.placed_tensors(trace)
        ),
        "prompt_strip": lambda trace: charts.prompt_strip(inputs.sequence_tokens(trace)),
        "rope_positions": lambda trace: charts.rope_positions(inputs.sequence_tokens(trace)),
        "shard_map": lambda trace: charts.shard_map(load_files.shard_map(trace)),
        "stage_times": lambda trace: charts.stage_times(stage_totals(trace.read)),
        "step_times": lambda trace: charts.step_times(trace["steps"]),
        "token_latency": lambda trace: charts.token_latency(latency.token_times(trace)),
        "token_probabilities": lambda trace: charts.token_probabilities(
            answer.answer_tokens(trace)
        ),
        "top_candidates": lambda trace: charts.top_candidates(candidates.before_and_after(trace)),
        "turn_comparison": lambda trace: charts.turn_comparison(turns.turns(trace)),
    }


def measure(quick: bool) -> list[Figure]:
    """Seconds of the slowest analysis and chart, of summary and audit; the slowest is named."""
    with tempfile.TemporaryDirectory() as place:
        trace = write_trace(Path(place) / "trace", SMALL if quick else Shape())
        return [
            _slowest("scale, slowest analysis", questions(), trace),
            _slowest("scale, slowest chart", drawings(), trace),
            _seconds("scale, summary", trace.summary),
            _seconds("scale, audit", trace.audit),
        ]


def _slowest(name: str, works: dict[str, Callable[[Trace], Any]], trace: Trace) -> Figure:
    times = {one: timed(lambda work=work: work(trace)) for one, work in works.items()}
    slowest = max(times, key=lambda one: times[one][1])
    note = f"{slowest}, of {len(works)}"
    wall, processor = times[slowest]
    return figure(name, "s", [wall], [processor], budget=MOST_SECONDS, note=note)


def _seconds(name: str, work: Callable[[], object]) -> Figure:
    wall, processor = timed(work)
    return figure(name, "s", [wall], [processor], budget=MOST_SECONDS)


def main() -> None:
    """Print every analysis and chart with its seconds, the slowest last."""
    import sys

    with tempfile.TemporaryDirectory() as place:
        shape = {"small": SMALL, "million": MILLION}.get(sys.argv[-1], Shape())
        trace = write_trace(Path(place) / "trace", shape)
        print(trace)
        for kind in (questions(), drawings()):
            times = {}
            for name, work in kind.items():
                try:
                    times[name] = timed(lambda work=work: work(trace))
                except Exception as error:
                    print(name, repr(error))
            for name, (wall, processor) in sorted(times.items(), key=lambda one: one[1]):
                print(f"{wall:8.2f} s {processor:8.2f} s  {name}")


if __name__ == "__main__":
    main()
