"""Train the demo model that sees: `python -m tracer.demo.train --out DIR`.

Deterministic: the same steps, threads and library give the same weights. About 50 minutes on one
core. The loss counts the answers alone; every so many steps held-out scenes are asked.
It writes the finished checkpoint; `check` examines it.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
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
from tracer.demo.questions import LANGUAGES, SCENE_KINDS
from tracer.demo.scenes import SHAPE_SHARES
from tracer.demo.seeing_fast import MOVIE_INTERVALS, answer
from tracer.demo.tokenizer import build_tokenizer
from tracer.demo.words import Language

STEPS = 3300
SEED = 20


@dataclass(frozen=True)
class Phase:
    """What the steps before `until` learn from."""

    until: int
    rows: int  # messages with one picture, each step
    questions: int  # about each picture
    others: tuple[int, int] | None  # messages, and questions each, with two pictures or a video
    kinds: tuple[float, ...]  # how often each of SCENE_KINDS is asked
    shares: tuple[float, ...] = SHAPE_SHARES  # how often there are 0, 1, 2 and 3 shapes
    languages: tuple[Language, ...] = LANGUAGES
    cycle: int = 2  # one step in so many has a video, the others two pictures


PHASES = (
    # First it learns to look something up in a picture, and only that: much sooner than in a mix.
    Phase(300, 20, 6, None, (1, 0, 1, 1, 0, 0, 0), (0.0, 0.2, 0.3, 0.5)),
    Phase(900, 16, 6, (8, 4), (2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5)),
    # Once it sees, more questions about fewer pictures, and more of the hard ones.
    Phase(1300, 12, 10, (6, 6), (1.0, 1.0, 1.0, 1.3, 1.0, 1.3, 2.0)),
    Phase(2300, 12, 10, (6, 6), (0.7, 1.0, 0.7, 2, 2, 2, 2), languages=("en", "zh", "zh")),
    # Two pictures are the hardest, and come last.
    Phase(STEPS, 10, 8, (10, 6), (1.0, 1.0, 1.5, 1.0, 1.0, 1.7, 1.0), cycle=4),
)
MATRIX_STEP, OTHER_STEP = 0.02, 0.004
RATES = (
    (0, 0.025),
    (39, 1.0),
    (700, 1.0),
    (900, 0.8),
    (920, 0.4),
    (1600, 0.25),
    (1700, 0.25),
    (1720, 0.5),
    (2300, 0.4),
    (2700, 0.25),
    (STEPS, 0.0),
)
GUIDE = 0.5  # weight of the probe's losses
SEEING_STEPS = 1000  # that it helps to see
LOOKUP_STEP = 1700  # from which on it helps to look up what a question names
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


def rate(step: int) -> float:
    """Give the part of the full step size, in straight lines between the points of `RATES`."""
    for (start, high), (end, low) in pairwise(RATES):
        if step < end:
            return high + (low - high) * (step - start) / (end - start)
    return 0.0


class Training:
    """A model on its way: weights, both optimisers, the source of batches, and the step."""

    def __init__(self) -> None:
        """Begin with random weights."""
        self.step = 0
        self.tokenizer = build_tokenizer()
        self.model = new_model(SEED)
        initialise(self.model, SEED)
        self.maker = Maker(SEED, self.tokenizer)
        self._probe = Probe(self.model.lm_head.in_features, SEED)
        matrices, self._others = split_parameters(self.model)
        self._muon = Muon(matrices, momentum=0.95, decay=0.05)
        self._adam = torch.optim.AdamW(
            self._others, lr=OTHER_STEP, betas=(0.9, 0.98), weight_decay=0.0
        )

    def advance(self) -> list[float]:
        """Do one step; give the loss of each of its batches."""
        losses = [self._learn(batch) for batch in self._batches()]
        size = rate(self.step)
        torch.nn.utils.clip_grad_norm_(self._others, 1.0)
        for group in self._adam.param_groups:
            group["lr"] = OTHER_STEP * size
        self._adam.step()
        self._muon.step(MATRIX_STEP * size)
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        return losses

    def _batches(self) -> Iterator[Batch]:
        """Give the batches that this step learns from."""
        phase = self._phase()
        kinds = {kind: share for kind, share in zip(SCENE_KINDS, phase.kinds, strict=True) if share}
        yield self.maker.pictures(phase.rows, phase.questions, phase.shares, kinds, phase.languages)
        if phase.others is None:
            return
        if self.step % phase.cycle:
            yield self.maker.pairs(*phase.others)
        else:
            yield self.maker.movies(*phase.others)
        if self.step % 4 == 0:
            yield self.maker.texts(4, 6)

    def _phase(self) -> Phase:
        return next(phase for phase in PHASES if self.step < phase.until)

    def _learn(self, batch: Batch) -> float:
        interval = MOVIE_INTERVALS[self.step // self._phase().cycle % 2]
        outcome = answer(self.model, batch, interval)
        loss = functional.cross_entropy(outcome.logits, outcome.labels)
        total = loss
        pictures = len(batch.examples[0].pictures)
        if pictures == 1 and outcome.features is not None and self.step < SEEING_STEPS:
            total = total + GUIDE * self._probe.loss(batch, outcome.features)
        if pictures and self.step >= LOOKUP_STEP:
            total = total + GUIDE * self._probe.lookup_loss(batch, outcome.states)
        torch.autograd.backward(total)
        return loss.item()

    def save(self, path: Path) -> None:
        """Write all that is needed to go on from here."""
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "muon": self._muon.state(),
            "adam": self._adam.state_dict(),
            "chance": self.maker.state(),
        }
        torch.save(state, path)

    def resume(self, path: Path) -> None:
        """Go on from a file that `save` wrote."""
        state = torch.load(path, weights_only=True)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self._muon.restore(state["muon"])
        self._adam.load_state_dict(state["adam"])
        self.maker.restore(state["chance"])


def train(steps: int, threads: int, folder: Path, every: int) -> Qwen2_5_VLForConditionalGeneration:
    """Train from random weights, or from an interrupted training, and return the model in fp32."""
    torch.set_num_threads(threads)
    training = Training()
    if (folder / UNFINISHED).exists():
        training.resume(folder / UNFINISHED)
    with tqdm(total=steps, initial=training.step, unit="step", mininterval=5) as progress:
        while training.step < steps:
            losses = training.advance()
            progress.set_postfix_str(" ".join(f"{loss:.3f}" for loss in losses), refresh=False)
            progress.update()
            if training.step % every == 0:
                shares = evaluate(training.model, training.tokenizer)
                tqdm.write(f"step {training.step}: {summary(shares)}")
                training.save(folder / UNFINISHED)
    return training.model


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
    model: Qwen2_5_VLForConditionalGeneration, tokenizer: Tokenizer, rounds: int = 1
) -> dict[tuple[str, str], float]:
    """Give the share of exact answers on held-out scenes, by kind and language.

    An answer whose every token is the likeliest one is what greedy decoding would write.
    """
    maker = Maker(1, tokenizer, held_out=True)
    asked: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    for _ in range(rounds):
        batches = [maker.pictures(32, 8), maker.pictures(32, 8)]
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
    outcome = answer(model, batch)
    missed = outcome.logits.argmax(-1) != outcome.labels
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
    parser.add_argument("--steps", type=int, default=STEPS, help="stop earlier, for a trial")
    parser.add_argument("--threads", type=int, default=1, help="the result depends on it a little")
    parser.add_argument("--evaluate-every", type=int, default=EVALUATE_EVERY)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = train(options.steps, options.threads, options.out, options.evaluate_every)
    finish(model, options.steps, options.out)


if __name__ == "__main__":
    main()
