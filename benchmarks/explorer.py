"""An answer through the explorer against plain `generate()` on the same ids.

    python -m benchmarks explorer [--quick]

SmolLM2-135M where it was downloaded (`python -m tracer models smollm2`), else a model of its shape
with random weights. Measured: from the press of Run to the last token (`answer`); until all of it
is shown (`shown`), which adds closing the trace and reading it once; and the processor's time of
all that (`processor`), which a busy machine disturbs least. The page itself is no part of this: it
paints in the browser.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.checkpoints import shaped_like_135m, toy
from benchmarks.figures import Figure, figure
from tracer.demo import checkpoint_folder
from tracer.demo.models import SMOLLM2, find
from tracer.widgets.explorer import Explorer

BUDGET = 1.10
TOKENS, ROUNDS = 200, 3
QUESTION = "Why is the sky blue? Explain it to a child, and give three examples."


def opened(scratch: Path, quick: bool) -> tuple[Any, Any, str]:
    """A model of 135M parameters and its tokenizer; of a quick run a toy."""
    found = None if quick else find(SMOLLM2)
    if found is not None:
        model = AutoModelForCausalLM.from_pretrained(found.place, dtype=torch.float32)
        return model, AutoTokenizer.from_pretrained(found.place), "SmolLM2-135M-Instruct"
    folder = (toy if quick else shaped_like_135m)(scratch / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(checkpoint_folder()), "random weights"


def measure(quick: bool) -> list[Figure]:
    """Ratios of the explorer to plain generate, neighbours paired."""
    tokens, rounds = (4, 1) if quick else (TOKENS, ROUNDS)
    with tempfile.TemporaryDirectory() as scratch:
        model, front, name = opened(Path(scratch), quick)
        explorer = Explorer(model, front, delay=0.0)
        explorer.settle()
        # No stop id: both must make all of the tokens.
        model.generation_config.eos_token_id = None
        fields = {"do_sample": "no", "max_new_tokens": str(tokens)}
        for setting, value in fields.items():
            explorer.type_setting(setting, value)
        explorer.type_text("question", QUESTION)
        through_explorer(explorer)  # warm, and gives the ids
        ids = torch.tensor([explorer.state.runs[-1].answer.prompt_ids])
        answers, shows, processor = [], [], []
        for number in range(rounds):
            order = ["plain", "explorer"] if number % 2 == 0 else ["explorer", "plain"]
            times = {}
            for which in order:
                began = time.process_time()
                if which == "plain":
                    found = plainly(model, ids, tokens)
                    times[which] = (found, found, time.process_time() - began)
                else:
                    answer, shown = through_explorer(explorer)
                    times[which] = (answer, shown, time.process_time() - began)
            ratios = [
                one / other for one, other in zip(times["explorer"], times["plain"], strict=True)
            ]
            for found_ratios, ratio in zip((answers, shows, processor), ratios, strict=True):
                found_ratios.append(ratio)
    told = f"{tokens} tokens, {name}"
    return [
        figure("explorer, answer", "x", answers, budget=BUDGET, note=told),
        figure("explorer, shown", "x", shows, processor, note=told),
    ]


def plainly(model: Any, ids: Any, tokens: int) -> float:
    """Seconds of a generate() that nobody watches."""
    began = time.perf_counter()
    output = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens
    )
    if output.shape[1] != ids.shape[1] + tokens:
        raise RuntimeError(f"generate() ended after {output.shape[1] - ids.shape[1]} tokens")
    return time.perf_counter() - began


def through_explorer(explorer: Explorer) -> tuple[float, float]:
    """Seconds to the last token, and until the answer is shown."""
    began = time.perf_counter()
    explorer.press_run()
    explorer.settle(600)
    shown = time.perf_counter() - began
    answer = explorer.state.runs[-1].answer
    if answer.ended != "done":
        raise RuntimeError(answer.error)
    calls = answer.trace["calls"] if answer.trace is not None else None
    if calls is None:
        raise RuntimeError("the answer has no trace")
    call = calls[calls["kind"] == "generate"].iloc[-1]
    # From the press to the call's end: what the user waits for the last token.
    return (call["start_ns"] + call["duration_ns"]) / 1e9, shown
