"""generate() recorded against generate() alone: each detail, each option, two vocabularies.

A loop of the user's own over the model is measured beside it.

    python -m benchmarks generating [--quick]

Random weights: the times are those of a real model of these shapes, the words are not.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

import tracer
from benchmarks.checkpoints import shaped_like_135m, shaped_like_152k, toy
from benchmarks.figures import Figure, figure
from benchmarks.pairs import control, paired
from tracer.demo import checkpoint_folder
from tracer.instrument.modules import selected

PROMPT_TOKENS = 64
NEW_TOKENS = 64
LONG_PROMPT = 512
ROUNDS = 5

FOUR_PROCESSORS = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 0.8,
    "repetition_penalty": 1.05,
}
Options = dict[str, Any]
STAGES: Options = {"detail": "stages"}
LAYERS: Options = {"detail": "layers", "effects": False}
EFFECTS: Options = {"detail": "layers", "effects": True}
MODULES: Options = {"detail": "modules", "effects": False}
# What is recorded, and its budget.
DETAILS: dict[str, tuple[Options, float | None]] = {
    "stages": (STAGES, 1.01),
    "layers": (LAYERS, 1.02),
    "effects": (EFFECTS, 1.03),
    "modules": (MODULES, 1.06),
    "top_k 100": (LAYERS | {"top_k": 100}, None),
    "logits": (LAYERS | {"logits": True}, None),
    "values": (LAYERS | {"values": True}, None),
}


def measure(quick: bool) -> list[Figure]:
    """Ratios of prefill and decoding, and the bytes that a trace takes on the disk."""
    rounds, tokens = (1, 2) if quick else (ROUNDS, NEW_TOKENS)
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        folder = (toy if quick else shaped_like_135m)(place / "49k")
        model = AutoModelForCausalLM.from_pretrained(folder)
        found += _decoding(model, rounds, tokens)
        found += _own_loop(model, rounds, tokens)
        found += _prefill(model, rounds)
        found += _sizes(model, place / "trace", tokens)
        del model
        folder = (toy if quick else shaped_like_152k)(place / "152k")
        model = AutoModelForCausalLM.from_pretrained(folder)
        found += _named(_decoding(model, rounds, tokens, ["layers", "effects"]), "152k, ")
        del model
    demo = AutoModelForImageTextToText.from_pretrained(checkpoint_folder())
    details = ["stages", "layers", "effects", "modules"]
    found += _named(_decoding(demo, rounds, tokens, details, budgets=False), "demo, ")
    return found


def _named(figures: list[Figure], before: str) -> list[Figure]:
    return [dataclasses.replace(one, name=before + one.name) for one in figures]


def _prompt(model: Any, tokens: int) -> torch.Tensor:
    """Ids of a prompt without a meaning, one row."""
    ids = torch.arange(5, 5 + tokens).remainder(model.config.get_text_config().vocab_size)
    return ids[None]


def answering(model: Any, tokens: int = NEW_TOKENS, prompt: int = PROMPT_TOKENS) -> Any:
    """A call of generate() that takes no arguments and always makes the same tokens."""
    ids = _prompt(model, prompt)
    inputs = {"input_ids": ids, "attention_mask": torch.ones(1, prompt, dtype=int)}

    def answer() -> Any:
        torch.manual_seed(0)
        return model.generate(
            **inputs, max_new_tokens=tokens, min_new_tokens=tokens, **FOUR_PROCESSORS
        )

    answer()  # what is made once is made now
    return answer


def _decoding(
    model: Any,
    rounds: int,
    tokens: int,
    details: Sequence[str] = tuple(DETAILS),
    *,
    budgets: bool = True,
) -> list[Figure]:
    answer = answering(model, tokens)
    found = [paired("decode, control", answer, control, rounds)]
    empty = functools.partial(empty_hooks, model)
    found.append(paired("decode, empty hooks", answer, empty, rounds))
    for name in details:
        options, budget = DETAILS[name]
        around = functools.partial(tracer.record, **options)
        most = budget if budgets else None
        found.append(paired(f"decode, {name}", answer, around, rounds, budget=most))
    return found


@contextmanager
def empty_hooks(model: Any) -> Iterator[None]:
    """A pair of hooks that do nothing on each module of detail "layers": less can't be had."""
    modules = [module for _, module in selected(model, "layers")]
    handles = [one.register_forward_pre_hook(lambda module, args: None) for one in modules]
    handles += [
        one.register_forward_hook(lambda module, args, kwargs, output: None, with_kwargs=True)
        for one in modules
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _own_loop(model: Any, rounds: int, tokens: int) -> list[Figure]:
    """A loop as users write it: the model, its cache, the best id, and again."""
    prompt = _prompt(model, PROMPT_TOKENS)

    @torch.no_grad()
    def loop() -> None:
        ids, cache = prompt, None
        for _ in range(tokens):
            given = model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
            cache, ids = given.cache, given.logits[:, -1:].argmax(-1)

    loop()
    found = [paired("own loop, control", loop, control, rounds)]
    for name in ("stages", "layers"):
        around = functools.partial(tracer.record, **DETAILS[name][0])
        found.append(paired(f"own loop, {name}", loop, around, rounds))
    return found


def _prefill(model: Any, rounds: int) -> list[Figure]:
    """One forward of a long prompt and one token."""
    answer = answering(model, tokens=1, prompt=LONG_PROMPT)
    found = [paired("prefill, control", answer, control, rounds)]
    for name in ("layers", "modules"):
        around = functools.partial(tracer.record, **DETAILS[name][0])
        found.append(paired(f"prefill, {name}", answer, around, rounds))
    return found


def _sizes(model: Any, target: Path, tokens: int) -> list[Figure]:
    """Bytes on the disk a generated token, of a whole trace."""
    answer = answering(model, tokens)
    found = []
    for name, (options, _) in DETAILS.items():
        with tracer.record(target, if_exists="replace", **options):
            answer()
        size = sum(file.stat().st_size for file in target.iterdir())
        found.append(figure(f"trace, {name}", "bytes", [size / tokens]))
    return found
