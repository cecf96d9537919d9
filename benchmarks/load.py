"""Loading with the recorder on against off: time, processor time and trace, by size of checkpoint.

    python -m benchmarks.load [--rounds N] [--sizes 135m 2gb 20k] [--folder DIR]

A B A B in turn, warm; medians of the ratios with their spread, beside a control that measures the
plain load against itself. The whole recording is measured too, with what opening and closing it
take. Random weights: the times are those of real ones.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

import tracer
from benchmarks.pairs import control, paired
from benchmarks.recording import shaped_like_135m
from tracer.analysis.load_memory import cold_or_warm

TENSORS_A_LAYER = 9
BUDGETS = {"135m": 1.10, "2gb": 1.02}
MICROSECONDS_A_TENSOR = 25
MOST_BYTES = {"20k": 20_000_000}


def shaped_like_2gb(folder: Path) -> Path:
    """A checkpoint of 16 wide layers in several shards: 2.2 GB in bfloat16."""
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
    return _saved(folder, LlamaConfig(vocab_size=32000, **sizes, **heads), "500MB")


def shaped_like_20k(folder: Path) -> Path:
    """A checkpoint of 20,001 tiny tensors: nothing but work that is done once a tensor."""
    sizes = {"vocab_size": 64, "hidden_size": 8, "intermediate_size": 8}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    layers = 20_000 // TENSORS_A_LAYER
    return _saved(folder, LlamaConfig(**sizes, **heads, num_hidden_layers=layers), "5GB")


def _saved(folder: Path, config: LlamaConfig, largest: str) -> Path:
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size=largest)
    return folder


SIZES: dict[str, Callable[[Path], Path]] = {
    "135m": shaped_like_135m,
    "2gb": shaped_like_2gb,
    "20k": shaped_like_20k,
}


def measure(size: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Ratios of one size, and what its trace says of the load."""

    def plain() -> Any:
        return AutoModelForCausalLM.from_pretrained(folder)

    plain()
    ratio = paired(plain, tracer.record, rounds)
    return {
        "size": size,
        "budget": BUDGETS.get(size),
        "call": ratio,
        "control": paired(plain, control, rounds),
        **_whole(plain, folder.with_name("trace"), rounds),
    }


def _whole(plain: Callable[[], Any], target: Path, rounds: int) -> dict[str, Any]:
    """Time a tensor that the recording adds to a load, and what it leaves on the disk."""
    added, processor = [], []
    for _ in range(rounds):
        alone = _timed(plain)
        recorded = _timed(functools.partial(_recorded, plain, target))
        added.append(recorded[0] - alone[0])
        processor.append(recorded[1] - alone[1])
    trace = tracer.open_trace(target)
    tensors = max(1, trace.rows("tensor_loads"))
    own = trace.read("calls", ["recorder_ns"], [("parent", "==", -1)])["recorder_ns"].sum()
    size = sum(file.stat().st_size for file in target.iterdir())
    return {
        "tensors": tensors,
        "added_us_a_tensor": _middle(added, tensors),
        "added_processor_us_a_tensor": _middle(processor, tensors),
        "recorder_us_a_tensor": round(int(own) / tensors / 1e3, 1),
        "budget_us_a_tensor": MICROSECONDS_A_TENSOR,
        "trace_bytes": size,
        "trace_bytes_budget": MOST_BYTES.get(target.parent.name),
        "cache": cold_or_warm(trace)["verdict"].tolist()[0],
    }


def _recorded(plain: Callable[[], Any], target: Path) -> None:
    with tracer.record(target, if_exists="replace"):
        plain()


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    start, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processor


def _middle(seconds: list[float], tensors: int) -> dict[str, float]:
    scaled = [one / tensors * 1e6 for one in seconds]
    return {
        "median": round(statistics.median(scaled), 1),
        "low": round(min(scaled), 1),
        "high": round(max(scaled), 1),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--folder", type=Path, help="where checkpoints are made; a scratch folder")
    options = parser.parse_args()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        found = []
        for size in options.sizes:
            folder = SIZES[size](Path(scratch) / size / "model")
            found.append(measure(size, folder, options.rounds))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
