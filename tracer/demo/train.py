"""Train the demo model that sees: `python -m tracer.demo.train --out DIR`.

Deterministic: the same steps, threads and library give the same weights. About 50 minutes on one
core. The loss counts the answers alone; every so many steps held-out scenes are asked.
It writes the finished checkpoint; `check` examines it.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from tqdm import tqdm
from transformers import Qwen2_5_VLForConditionalGeneration

from tracer.demo.batches import IGNORED, Batch, Maker
from tracer.demo.card import model_card
from tracer.demo.checkpoint import new_model, write_checkpoint
from tracer.demo.optimiser import Muon
from tracer.demo.probe import Probe
from tracer.demo.scenes import SHAPE_SHARES
from tracer.demo.seeing_fast import MOVIE_INTERVALS, answer_logits
from tracer.demo.tokenizer import build_tokenizer

STEPS = 2200
SEED = 20
EASY_SHARES = (0.02, 0.6, 0.38, 0.0)  # 0, 1, 2, 3 shapes at the beginning
EASY_PART = 0.1  # of all steps
MATRIX_STEP, OTHER_STEP = 0.012, 0.003
WARM_UP = 40
HOLD = 0.35  # part of the steps before the step size falls, in a line to zero
GUIDE, GUIDE_PART = 0.3, 0.5  # weight of the probe's loss, and for which part of the steps
UNFINISHED = "unfinished.pt"  # the weights so far, beside the checkpoint to be
EVALUATE_EVERY = 100


def initialise(model: Qwen2_5_VLForConditionalGeneration, seed: int) -> None:
    """Give random weights that suit this small width better than the family's 0.02."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        fan_in = weight[0].numel()
        spread = 0.5 if "embed_tokens" in name else fan_in**-0.5
        if name.endswith(("attn.proj.weight", "o_proj.weight", "down_proj.weight")):
            spread = 0.0  # each block begins as the identity
        if name == "lm_head.weight":
            spread = 0.02
        torch.nn.init.normal_(weight, std=spread, generator=generator)


def batches_of_step(maker: Maker, step: int, steps: int) -> Iterator[Batch]:
    """Give the batches that one step learns from."""
    shares = EASY_SHARES if step < steps * EASY_PART else SHAPE_SHARES
    yield maker.pictures(16, 6, shares)
    if step % 2:
        yield maker.pairs(8, 4)
    else:
        yield maker.movies(8, 4)
    if step % 4 == 0:
        yield maker.texts(4, 6)


def rate(step: int, steps: int) -> float:
    """Give the part of the full step size: warm-up, hold, then down to zero."""
    warm = min(1.0, (step + 1) / WARM_UP)
    left = (steps - step) / (steps * (1 - HOLD))
    return min(warm, left, 1.0)


def train(steps: int, threads: int, folder: Path, every: int) -> Qwen2_5_VLForConditionalGeneration:
    """Train from random weights and return the model in fp32."""
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer()
    model = new_model(SEED)
    initialise(model, SEED)
    torch.manual_seed(SEED)
    probe = Probe(model.config.vision_config.out_hidden_size)
    matrices, others = split_parameters(model)
    others += probe.parameters()
    muon = Muon(matrices, momentum=0.95, decay=0.05)
    adam = torch.optim.AdamW(others, lr=OTHER_STEP, betas=(0.9, 0.98), weight_decay=0.0)
    maker = Maker(SEED, tokenizer)
    progress = tqdm(range(steps), unit="step", mininterval=5)
    for step in progress:
        losses = []
        for batch in batches_of_step(maker, step, steps):
            interval = MOVIE_INTERVALS[step // 2 % 2]
            logits, labels, features = answer_logits(model, batch, interval)
            loss = functional.cross_entropy(logits, labels)
            total = loss
            if features is not None and len(batch.examples[0].pictures) == 1:
                guide = probe.loss(batch, features)
                total = loss + GUIDE * guide * (step < steps * GUIDE_PART)
                losses.append(guide.item())
            torch.autograd.backward(total)
            losses.append(loss.item())
        size = rate(step, steps)
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for group in adam.param_groups:
            group["lr"] = OTHER_STEP * size
        adam.step()
        muon.step(MATRIX_STEP * size)
        model.zero_grad(set_to_none=True)
        probe.zero_grad(set_to_none=True)
        progress.set_postfix_str(" ".join(f"{loss:.3f}" for loss in losses))
        if (step + 1) % every == 0:
            tqdm.write(f"step {step + 1}: {summary(evaluate(model, tokenizer))}")
            torch.save(model.state_dict(), folder / UNFINISHED)
    return model


def split_parameters(
    model: torch.nn.Module,
) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Give the matrices inside the blocks, and all other parameters."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        outer = "embed" in name or name.startswith("lm_head")
        (others if outer or weight.ndim != 2 else matrices).append(weight)
    return matrices, others


@torch.no_grad()
def evaluate(
    model: Qwen2_5_VLForConditionalGeneration, tokenizer: Tokenizer, rounds: int = 2
) -> dict[tuple[str, str], float]:
    """Give the share of exact answers on held-out scenes, by kind and language.

    An answer whose every token is the likeliest one is what greedy decoding would write.
    """
    maker = Maker(1, tokenizer, held_out=True)
    asked: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    for _ in range(rounds):
        batches = [maker.pictures(32, 8, SHAPE_SHARES), maker.pictures(32, 8, SHAPE_SHARES)]
        batches += [maker.pairs(24, 4), maker.movies(24, 4), maker.texts(12, 6)]
        for batch in batches:
            wrong = wrong_answers(model, batch)
            for row, example in enumerate(batch.examples):
                for branch, question in enumerate(example.questions, start=1):
                    asked[question.kind, question.language] += 1
                    right[question.kind, question.language] += (row, branch) not in wrong
    return {key: right[key] / asked[key] for key in sorted(asked)}


def wrong_answers(model: Qwen2_5_VLForConditionalGeneration, batch: Batch) -> set[tuple[int, int]]:
    """Give row and branch of each answer with a token that is not the likeliest."""
    logits, labels, _ = answer_logits(model, batch)
    missed = logits.argmax(-1) != labels
    rows, columns = torch.nonzero(batch.labels != IGNORED, as_tuple=True)
    branches = batch.branches[rows, columns]
    return set(zip(rows[missed].tolist(), branches[missed].tolist(), strict=True))


def summary(shares: dict[tuple[str, str], float]) -> str:
    """Write the shares on one line."""
    return " ".join(f"{kind}-{language} {share:.3f}" for (kind, language), share in shares.items())


def finish(model: Qwen2_5_VLForConditionalGeneration, steps: int, folder: Path) -> None:
    """Round the weights to bf16, examine them so, and write the checkpoint with its card."""
    with torch.no_grad():
        for weight in model.parameters():  # not the buffers: rotary angles stay exact
            weight.copy_(weight.bfloat16())
    shares = evaluate(model, build_tokenizer(), rounds=8)
    write_checkpoint(model, folder, model_card(model.num_parameters(), steps, shares))
    (folder / UNFINISHED).unlink(missing_ok=True)


def main() -> None:
    """Read the command line, train, and write the checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m tracer.demo.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the new checkpoint")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=1, help="the result depends on it a little")
    parser.add_argument("--evaluate-every", type=int, default=EVALUATE_EVERY)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = train(options.steps, options.threads, options.out, options.evaluate_every)
    finish(model, options.steps, options.out)


if __name__ == "__main__":
    main()
